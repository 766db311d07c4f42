"""Traces and digests behind URLs: copied, and nothing else that lies there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest
from support.synthetic import Job, mark_columns
from support.unprivileged import let_through

from netprof.analysis.hosts.open_job import open_job
from netprof.copies import as_named
from netprof.errors import TraceError, UsageError
from netprof.files import by_the_caller
from netprof.session.digest import write_digests
from netprof.trace import TraceReader, remote
from netprof.trace.keep import Keep
from netprof.trace.named import fitting, traces_named
from netprof.trace.remote import fetched, is_url
from netprof.trace.ring import RingWriter, reader_of


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return Job().fill().write(tmp_path / "job" / "a.netprof")


@pytest.fixture
def memory(trace):
    files = fsspec.filesystem("memory")
    files.put(str(trace), "/bucket/job/a.netprof", recursive=True)
    files.pipe("/bucket/job/a.netprof/core.dump", b"x")
    files.pipe("/bucket/job/notes.txt", b"x")
    yield files
    files.rm("/bucket", recursive=True)


def test_what_is_a_url():
    assert is_url("s3://bucket/job")
    assert is_url("memory://x")
    assert not any(map(is_url, ("job.netprof", "/a//b", "C://x"[1:], "a:b", "s3:/bucket", "s3://")))


def test_a_trace_a_folder_and_a_pattern_of_them(memory, trace):
    for url, place in (
        ("memory://bucket/job/a.netprof", "."),
        ("memory://bucket/job/", "a.netprof"),
        ("memory://bucket/job/*.netprof", "."),
        ("memory://bucket/j*/a.netprof", "."),
    ):
        (found,) = (each / place for each in fitting(fetched(url)))
        assert sorted(each.name for each in found.iterdir()) == sorted(each.name for each in trace.iterdir())
        assert all((found / each.name).read_bytes() == each.read_bytes() for each in trace.iterdir())
        assert not list(found.parent.glob("**/notes.txt"))


def sources(named):
    return [found for path in fitting(named) for found in traces_named([path])]


@pytest.fixture
def digests(memory, tmp_path):
    """Digests of two hosts, each made alone, of two jobs, here and there; returns where they are here."""
    for rank, host in enumerate(("n0", "n1")):
        job = Job(ranks=2).fill()
        job.changes |= {"host": host, "targets": job.meta().targets[rank : rank + 1]}
        reader = TraceReader(job.write(tmp_path / host))
        for name in ("x", "y"):
            write_digests(reader, tmp_path / "digests", name)
    memory.put(str(tmp_path / "digests"), "/bucket/digests", recursive=True)
    return tmp_path / "digests"


@pytest.mark.slow
@pytest.mark.parametrize(
    "named", ["job=y/host=n0", "job=y/host=n1/", "job=y/host=*", "job=y", "job=*/host=n0", "job=y*"]
)
def test_digests_one_or_a_folder_or_a_pattern_of_them(named, digests):
    """Their hosts lie in the folder of their job, with what the hosts have in common beside them."""
    there = sources(fetched(f"memory://bucket/digests/{named}"))
    here = sources(digests / named)
    assert here
    assert [each.parts[-2:] for each in there] == [each.parts[-2:] for each in here]
    for mine, other in zip(there, here, strict=True):
        assert TraceReader(mine).meta == TraceReader(other).meta


@pytest.mark.slow
def test_what_is_said_names_what_the_person_named(digests, memory):
    with pytest.raises(UsageError, match="2 jobs") as error:
        sources(fetched("memory://bucket/digests"))
    assert as_named(error.value.hint) == "name one, as memory://bucket/digests/job=x"
    memory.pipe("/bucket/digests/job=y/host=n0/meta.json", b"{")
    warnings = open_job(sources(fetched("memory://bucket/digests/job=y/"))).meta.warnings
    said = "memory://bucket/digests/job=y/host=n0/meta.json is not readable as JSON"
    assert any(said in warning for warning in warnings)
    assert not any("/netprof-" in warning for warning in warnings)


def test_a_ring_is_read_as_one(memory, tmp_path):
    job = Job().fill()
    writer = RingWriter(tmp_path / "r.netprof", job.meta(), Keep(ns=1 << 60))
    writer.append("marks", mark_columns(job.marks))
    writer.close(job.meta())
    memory.put(str(tmp_path / "r.netprof"), "/bucket/job/r.netprof", recursive=True)
    (found,) = traces_named([fetched("memory://bucket/job/r.netprof")])
    assert reader_of(found).table("marks").num_rows == len(job.marks)


def test_so_does_what_is_said_of_a_damaged_trace(memory, trace):
    memory.put(str(trace), "/bucket/job/b.netprof", recursive=True)
    memory.pipe("/bucket/job/b.netprof/meta.json", b"{")
    (said,) = open_job(traces_named([fetched("memory://bucket/job")])).meta.warnings
    assert said.startswith("b.netprof is left out: memory://bucket/job/b.netprof/meta.json is not")


def test_what_is_not_there(memory):
    with pytest.raises((TraceError, UsageError), match="memory://bucket/none"):
        fetched("memory://bucket/none")
    with pytest.raises(UsageError, match="no trace"):
        fetched("memory://bucket/x*")
    with pytest.raises(UsageError, match="cannot open"):
        fetched("nothing-like-it://bucket/x")


@pytest.mark.slow
def test_what_else_lies_beside_hosts_is_left_there(memory, digests):
    memory.pipe("/bucket/digests/job=y/notes.txt", b"x")
    memory.pipe("/bucket/digests/job=y/meta.json", b"x")
    (found,) = sources(fetched("memory://bucket/digests/job=y/host=n0"))
    assert {each.name for each in found.parent.iterdir()}.isdisjoint({"notes.txt", "meta.json"})


def test_without_what_reads_urls_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(UsageError, match="not installed") as caught:
        fetched("memory://bucket/job")
    assert "netprof-ebpf[remote]" in caught.value.hint


@pytest.mark.parametrize(
    "name",
    [
        "../meta.json",
        "job/../../meta.json",
        "/etc/meta.json",
        "a/b/c/d/e/meta.json",
        "a/b/c/d/e/f/meta.json",
        "meta.json",
        "a/meta.json.sh",
        "a//meta.json",
    ],
)
def test_a_listing_leads_nowhere_else(name):
    assert remote._belongs(name, 4) is None


@pytest.mark.parametrize("name", ["a/meta.json", "a/b/c/d/meta.json", "job=x/host=y/marks.arrows"])
def test_what_belongs_to_a_trace_or_a_digest_is_copied_as_deep_as_it_may_lie(name):
    assert str(remote._belongs(name, 4)) == name


def test_how_deep_the_place_lies_that_is_named_does_not_matter(trace):
    files = fsspec.filesystem("memory")
    files.put(str(trace), "/bucket/a/b/c/d/e/f/job/a.netprof", recursive=True)
    try:
        for named in ("memory://bucket/a/b/c/d/e/f/job", "memory://bucket/a/b/c/d/e/f/j*/a.netprof"):
            (found,) = (path for path in traces_named([fetched(named)]))
            assert TraceReader(found).meta.host
    finally:
        files.rm("/bucket", recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize("named", ["job=y/host=n0", "job=y/host=*"])
def test_what_the_folders_are_called_that_a_job_s_lies_in_does_not_matter(named, digests, memory):
    """What lies around it is not copied, and may be called as no folder of a digest is."""
    memory.put(str(digests / "job=y"), "/bucket/Übung/.hidden/job=y", recursive=True)
    there = sources(fetched(f"memory://bucket/Übung/.hidden/{named}"))
    assert [each.name for each in there] == [each.name for each in sources(digests / named)]
    assert {each.parent.name for each in there} == {"job=y"}


def test_storage_that_fails_on_the_way_is_one_line(memory, monkeypatch):
    def failing(*given, **more):
        raise RuntimeError("the bucket\nis gone")

    monkeypatch.setattr(type(memory), "find", failing)
    with pytest.raises(TraceError, match=r"cannot read memory://bucket/job: .*bucket") as caught:
        fetched("memory://bucket/job")
    assert "\n" not in caught.value.message


@pytest.mark.slow
def test_the_command_reads_one_by_http(trace):
    pytest.importorskip("aiohttp", reason="what fsspec needs for http")
    handler = partial(_Quiet, directory=str(trace.parent.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/job/a.netprof"
        done = subprocess.run(
            [sys.executable, "-m", "netprof", "report", url, "--json"], capture_output=True, text=True
        )
        server.shutdown()
    assert done.returncode == 0, done.stderr
    own = subprocess.run(
        [sys.executable, "-m", "netprof", "report", str(trace), "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == json.loads(own.stdout)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.mark.parametrize("most", [2, 1])
def test_no_more_files_are_copied_than_a_job_has(memory, trace, most, monkeypatch):
    there = len(list(trace.iterdir()))
    monkeypatch.setattr(remote, "_MOST_FILES", there if most == 2 else there - 1)
    if most == 2:
        fetched("memory://bucket/job/a.netprof")
        return
    with pytest.raises(TraceError, match="holds more files than a job has"):
        fetched("memory://bucket/job/a.netprof")


def test_why_a_place_cannot_be_reached_is_one_line_of_what_is_said():
    assert remote._reason(OSError("no bucket\nand more")) == "no bucket"
    assert remote._reason(OSError("x" * 500)) == "x" * 200
    assert remote._reason(TimeoutError()) == "TimeoutError"


SECRET = "xyzzy-21"


@pytest.mark.parametrize(
    "url", [f"memory://user:{SECRET}@bucket/none", f"memory://bucket/none?sig={SECRET}", f"none://user:{SECRET}@b/c"]
)
def test_no_credentials_are_shown(url):
    with pytest.raises((TraceError, UsageError)) as caught:
        fetched(url)
    assert SECRET not in as_named(f"{caught.value.message} {caught.value.hint}")
    assert "***" in as_named(caught.value.message)


def test_nor_in_what_a_copy_is_called(memory, trace):
    memory.put(str(trace), f"/bucket/token={SECRET}/a.netprof", recursive=True)
    place = fetched(f"memory://bucket/token={SECRET}/a.netprof")
    assert as_named(f"{place} is") == "memory://bucket/token=***/a.netprof is"


def test_files_of_this_machine_are_paths_like_others(tmp_path: Path) -> None:
    assert fetched(f"file://{tmp_path}/x") == fetched(f"local://{tmp_path}/x") == tmp_path / "x"
    assert fetched("file://x/*.netprof") == Path("x/*.netprof")


def zipped(trace: Path, into: Path) -> str:
    with zipfile.ZipFile(into, "w") as archive:
        for path in trace.iterdir():
            archive.write(path, f"a.netprof/{path.name}")
    return f"zip://a.netprof::file://{into}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to be misused")
def test_under_sudo_what_is_read_is_what_the_caller_may_read(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the scheme opens: fsspec runs in a process that cannot be root any more."""
    url = zipped(trace, tmp_path / "job.zip")
    let_through(tmp_path)
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    copied = fetched(url)
    assert copied.stat().st_uid == 65534
    assert (copied / "meta.json").read_bytes() == (trace / "meta.json").read_bytes()
    TraceReader(copied)
    (tmp_path / "roots").mkdir()
    (tmp_path / "job.zip").rename(tmp_path / "roots" / "job.zip")
    (tmp_path / "roots").chmod(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "roots")
    os.lchown(tmp_path / "link", 65534, 65534)
    said = []
    for name in ("job.zip", "absent.zip"):
        with pytest.raises(UsageError, match="cannot open zip://") as caught:
            fetched(f"zip://a.netprof::file://{tmp_path}/link/{name}")
        said.append(caught.value.message.replace("absent", "job"))
    assert said[0] == said[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to be misused")
def test_what_fsspec_is_configured_by_is_read_as_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf.json").write_text("{}")
    tmp_path.chmod(0o700)
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    monkeypatch.setenv("FSSPEC_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    seen: list[str] = []

    def work() -> list[str]:
        return [*seen, os.environ["HOME"], os.environ.get("FSSPEC_CONFIG_DIR", "")]

    def prepare() -> None:
        remote._imported("zip://x::file:///y")
        seen.append(os.environ["HOME"])

    assert by_the_caller(prepare, work) == [os.devnull, "/nonexistent", ""]


def test_an_archive_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_text("no archive")
    with pytest.raises(UsageError, match="cannot open zip://"):
        fetched(f"zip://x::file://{tmp_path}/x.zip")
