"""Where a person wants something written: no URL anywhere, and a place for digests is tried before any work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.synthetic import Job

from netprof.cli.main import app
from netprof.cli.save import save
from netprof.errors import NetprofError, TraceError, UsageError
from netprof.files import OutputPlace
from netprof.session.digest import check_place
from netprof.trace import TraceReader

URLS = ["s3://bucket/x", "file:///tmp/x", "S3://x", "simplecache::s3://x", "memory://"]
COMMANDS = [
    ["attach", "1", "-o"],
    ["attach", "1", "--digest"],
    ["run", "--json"],
    ["run", "--out"],
    ["report", "nothing.netprof", "--csv"],
    ["report", "nothing.netprof", "--html"],
    ["report", "nothing.netprof", "-o", "x.html", "-o"],
    ["digest", "nothing.netprof", "-o"],
    ["timeline", "nothing.json", "--out"],
    ["capture", "nothing.pcap", "--out"],
    ["diff", "a.netprof", "b.netprof", "--markdown"],
    ["whatif", "nothing.netprof", "--csv"],
]


@pytest.mark.parametrize("url", [URLS[0], *(pytest.param(url, marks=pytest.mark.slow) for url in URLS[1:])])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_url_is_refused_before_anything_is_done(
    command: list[str], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = ["--", "true"] if command[0] == "run" else []
    with pytest.raises(UsageError, match="is a URL: netprof writes to this machine only"):
        app([*command, url, *program], standalone_mode=False)
    assert list(tmp_path.iterdir()) == []


def test_a_place_for_digests_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    check_place(OutputPlace(tmp_path / "a" / "b", follow=True), "job", [("h0", "")], force=False, option="--digest")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    for place, why in ((Path("/proc/nope"), "No such file"), (tmp_path / "file", "Not a directory")):
        with pytest.raises(TraceError, match=f"cannot write to {place}: {why}") as error:
            check_place(OutputPlace(place, follow=True), "job", [("h0", "")], force=True, option="--digest")
        assert error.value.hint == "choose another place with --digest"


@pytest.mark.slow
def test_a_digest_in_the_way_is_found_before_the_work(tmp_path: Path) -> None:
    trace = Job().fill().write(tmp_path / "t.netprof")
    boot_id = TraceReader(trace).meta.boot_id
    words = [sys.executable, "-m", "netprof", "digest", str(trace), "-o", str(tmp_path / "d")]
    subprocess.run(words, capture_output=True, check=True)
    (trace / "wire.arrows").unlink()
    again = subprocess.run(words, capture_output=True, text=True, check=False)
    (host,) = (tmp_path / "d" / "job=t").glob("host=*")
    said = f"netprof: {host} holds a digest already\n  choose another --out, or replace it with --force\n"
    assert (again.returncode, again.stderr) == (1, said)
    where = OutputPlace(tmp_path / "d", follow=True)
    with pytest.raises(TraceError, match="holds a digest already") as error:
        check_place(where, "t", [(host.name.removeprefix("host="), boot_id)], force=False, option="--digest")
    assert error.value.hint == "choose another --digest, or replace it with --force"


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's link")
@pytest.mark.parametrize("words", [["report", "--csv"], ["report", "--parquet"], ["digest", "-o"]], ids=" ".join)
@pytest.mark.parametrize("owner", [65534, 0])
def test_another_user_s_link_leads_nowhere(words: list[str], owner: int, tmp_path: Path) -> None:
    """In a folder that everybody may write to, root would write where the link's owner wants."""
    trace = Job().fill().write(tmp_path / "t.netprof")
    (tmp_path / "victim").mkdir()
    for place in (tmp_path / "link", tmp_path / "folder" / "job=t"):
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(tmp_path / "victim")
        os.lchown(place, owner, owner)
    for target in (tmp_path / "link", tmp_path / "folder") if words[0] == "digest" else (tmp_path / "link",):
        command = [sys.executable, "-m", "netprof", words[0], str(trace), words[1], str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if owner == 0 and target.name == "link":
            assert done.returncode == 0, done.stderr
        else:  # below what a person names no link is followed, whosever it is
            said = "is a symbolic link of another user" if target.name == "link" else "Not a directory"
            assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    assert (list((tmp_path / "victim").iterdir()) == []) == (owner != 0)


def test_the_report_of_what_is_saved_replaces_none_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "kept.md").write_text("notes")
    with pytest.raises(NetprofError, match=r"kept.md exists already"):
        save(tmp_path / "ring", tmp_path / "kept.netprof", report=True)
    assert (tmp_path / "kept.md").read_text() == "notes"
