"""What is written, and what is done where it cannot be: no batch is left half, and no file of others' is removed."""

from __future__ import annotations

import errno
import gc
import os
import re
import stat
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.synthetic import Job

from netprof.errors import TraceError
from netprof.files import Directory
from netprof.model import Meta
from netprof.schema import tables
from netprof.trace import TraceReader, TraceWriter, at_work
from netprof.trace.writer import cannot_write


def meta() -> Meta:
    return replace(Job().meta(), stopped_ns=None, stop_reason="")


def counters(count: int = 1, first: int = 0) -> dict[str, Any]:
    times = Job().meta().started_ns + np.arange(first, first + count)
    return {"series": np.ones(count), "time_ns": times, "value": np.arange(first, first + count)}


def test_a_trace_is_not_overwritten_unless_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "t"
    first = TraceWriter(path, meta())
    first.append("counters", counters())
    first.close(meta())
    with pytest.raises(TraceError, match="exists already") as caught:
        TraceWriter(path, meta())
    assert "--force" in caught.value.hint
    second = TraceWriter(path, meta(), force=True)
    second.close(meta())
    assert sorted(each.name for each in path.iterdir()) == ["meta.json"]


def test_what_is_left_of_one_that_was_being_removed_can_be_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its description tells that the rest is a trace's: whenever netprof is killed, it is there as long as a table."""
    made = TraceWriter(tmp_path / "t", meta())
    for name in ("counters", "outside"):
        made.append(name, counters(5) if name == "counters" else {n: [1, 2] for n in tables()[name].names})
    made.close(meta())
    remove, names, left = Directory.remove, Directory.names, list[list[str]]()

    def watched(directory: Directory, name: str) -> None:
        remove(directory, name)
        left.append(sorted(each.name for each in (tmp_path / "t").iterdir()))

    monkeypatch.setattr(Directory, "remove", watched)
    monkeypatch.setattr(Directory, "names", lambda directory: sorted(names(directory), reverse=True))
    TraceWriter(tmp_path / "t", meta(), force=True)
    assert left[:3] == [left[0], ["meta.json"], []]


@pytest.mark.parametrize("what", ["file", "link", "folder with something else", "dangling link"])
def test_what_is_no_trace_is_left_alone(what: str, tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if what == "file":
        path.write_text("mine")
    elif what == "link":
        path.symlink_to(elsewhere)
    elif what == "dangling link":
        path.symlink_to(tmp_path / "absent")
    else:
        path.mkdir()
        (path / "mine").write_text("mine")
        (path / "meta.json").write_text("{}")
    with pytest.raises(TraceError, match="something other than a trace"):
        TraceWriter(path, meta(), force=True)
    assert list(elsewhere.iterdir()) == []
    assert not (tmp_path / "absent").exists()
    if what == "folder with something else":
        assert sorted(each.name for each in path.iterdir()) == ["meta.json", "mine"]


@pytest.mark.parametrize("content", ['{"about": "my data"}', "no JSON", "[" * 100_000])
@pytest.mark.parametrize("names", [("meta.json",), ("meta.json", "flows.arrows"), ("flows.arrows",)])
def test_files_that_are_called_as_a_trace_s_are_none(names: tuple[str, ...], content: str, tmp_path: Path) -> None:
    """A data set's folder, say: `meta.json` is a common name."""
    for name in names:
        (tmp_path / name).write_text(content)
    with pytest.raises(TraceError, match="something other than a trace"):
        TraceWriter(tmp_path, meta(), force=True)
    assert [(tmp_path / name).read_text() for name in names] == [content] * len(names)


def test_a_link_that_takes_the_place_of_a_trace_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "meta.json").write_text("mine")
    monkeypatch.setattr(os, "mkdir", lambda name, mode, dir_fd: os.symlink(elsewhere, name, dir_fd=dir_fd))
    with pytest.raises(TraceError, match=r"cannot write the trace to .*: Not a directory"):
        TraceWriter(tmp_path / "t", meta())
    assert [(each.name, each.read_text()) for each in elsewhere.iterdir()] == [("meta.json", "mine")]


@pytest.mark.parametrize("failing", ["files.Directory.create", "trace.writer.write_meta"])
def test_what_cannot_begin_leaves_nothing_in_the_way(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as now:
        now.setattr(f"netprof.{failing}", fails)
        with pytest.raises(TraceError, match="Too many open files"):
            TraceWriter(tmp_path / "t", meta())
    assert list(tmp_path.iterdir()) == []
    TraceWriter(tmp_path / "t", meta()).close(meta())


def test_what_is_being_recorded_is_left_alone(tmp_path: Path) -> None:
    first = TraceWriter(tmp_path / "t", meta())
    with pytest.raises(TraceError, match="is being recorded by another netprof"):
        TraceWriter(tmp_path / "t", meta(), force=True)
    reader = TraceReader(tmp_path / "t")
    assert (reader.still_recording, reader.truncated) == (True, False)
    first.close(meta())
    TraceWriter(tmp_path / "t", meta(), force=True).close(meta())


def test_a_reader_of_a_lock_does_not_keep_it(tmp_path: Path) -> None:
    one, other = Directory(tmp_path), Directory(tmp_path)
    assert not at_work.is_held(other)
    assert at_work.hold(one), "who has looked holds nothing"
    assert at_work.is_held(other)
    assert not at_work.hold(other)
    one.close()
    assert at_work.hold(other)


def test_where_there_are_no_locks_nothing_depends_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    assert at_work.hold(Directory(tmp_path))
    assert not at_work.is_held(Directory(tmp_path))


def test_a_trace_that_never_held_anything_goes_without_a_trace(tmp_path: Path) -> None:
    made = TraceWriter(tmp_path / "t", meta())
    made.append("counters", counters())
    made.discard()
    assert list(tmp_path.iterdir()) == []


def test_room_for_the_last_words_is_kept_until_then(tmp_path: Path) -> None:
    made = TraceWriter(tmp_path / "t", meta())
    assert (tmp_path / "t" / ".ballast").stat().st_size == 256 << 10
    made.close(meta())
    assert not (tmp_path / "t" / ".ballast").exists()


def test_sizes_are_those_on_the_disk(tmp_path: Path) -> None:
    made = TraceWriter(tmp_path / "t", meta())
    assert made.size_bytes() == 0
    made.append("counters", counters(0))
    assert not (tmp_path / "t" / "counters.arrows").exists()
    for name in ("counters", "outside"):
        made.append(name, counters(5) if name == "counters" else {n: [1, 2] for n in tables()[name].names})
        sizes = [each.stat().st_size for each in (tmp_path / "t").glob("*.arrows")]
        assert made.size_bytes() == sum(sizes) > 0
    made.close(meta())


def test_every_batch_reaches_the_disk_at_once_and_whole(tmp_path: Path) -> None:
    made = TraceWriter(tmp_path / "t", meta())
    for number in range(3):
        made.append("counters", counters(10, 10 * number))
        assert TraceReader(tmp_path / "t").table("counters").num_rows == 10 * (number + 1)
    made.close(replace(meta(), stopped_ns=meta().started_ns + 1))
    reader = TraceReader(tmp_path / "t")
    assert reader.table("counters").column("value").to_pylist() == list(range(30))
    assert not reader.truncated
    assert (tmp_path / "t" / "counters.arrows").read_bytes().endswith(b"\xff\xff\xff\xff" + bytes(4)), "Arrow's end"


def test_batches_of_every_size_are_of_one_file(tmp_path: Path) -> None:
    made, counts, first = TraceWriter(tmp_path / "t", meta()), (1, 5_000, 50_000, 1, 600), 0
    for count in counts:
        made.append("counters", counters(count, first))
        first += count
    made.close(replace(meta(), stopped_ns=meta().started_ns + first))
    reader = TraceReader(tmp_path / "t")
    assert reader.table("counters").column("value").to_pylist() == list(range(first))
    packed = (tmp_path / "t" / "counters.arrows").read_bytes()
    zstd, lz4 = b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"
    assert packed.count(zstd) >= 2 * 3, "5,000 and 600 rows of three columns"
    assert packed.count(lz4) >= 3, "50,000 rows"


def test_a_description_is_replaced_while_it_is_recorded(tmp_path: Path) -> None:
    made = TraceWriter(tmp_path / "t", meta())
    made.update_meta(replace(meta(), warnings=("said meanwhile",)))
    assert TraceReader(tmp_path / "t").meta.warnings == ("said meanwhile",)
    made.close(meta())
    assert TraceReader(tmp_path / "t").meta.warnings == ()


def test_a_description_that_would_not_be_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks and helpers that came and went for a day are in it: the recording ends, and can be read."""
    monkeypatch.setattr("netprof.trace.meta._MAX_BYTES", 30_000)
    monkeypatch.setattr("netprof.trace.meta._LAST_BYTES", 10_000)
    made, large = TraceWriter(tmp_path / "t", meta()), replace(meta(), warnings=("x" * 20_000,))
    made.append("counters", counters())
    with pytest.raises(TraceError, match="have come and gone"):
        made.update_meta(large)
    assert TraceReader(tmp_path / "t").meta == meta()
    made.close(replace(large, stopped_ns=meta().started_ns + 1))
    assert TraceReader(tmp_path / "t").table("counters").num_rows == 1
    again = TraceWriter(tmp_path / "u", meta())
    with pytest.raises(TraceError, match="have come and gone"):
        again.close(replace(large, warnings=("x" * 30_000,), stopped_ns=meta().started_ns + 1))


@pytest.mark.parametrize("written", [0, 100])
@pytest.mark.parametrize("before", [0, 4])
def test_of_a_batch_that_does_not_fit_on_the_disk_nothing_stays(
    written: int, before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a table's first batch neither: the next one is then the first, and the file begins with its columns."""
    made = TraceWriter(tmp_path / "t", meta())
    made.append("counters", counters(before))
    real, left = os.write, [written]

    def full(descriptor: int, data: Any) -> int:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] = 0
        return real(descriptor, data[:written])

    with monkeypatch.context() as now:
        now.setattr("os.write", full)
        with pytest.raises(OSError, match="No space left"):
            made.append("counters", counters(5))
    stream = made._streams["counters"]
    assert (tmp_path / "t" / "counters.arrows").stat().st_size == stream.size_bytes
    made.append("counters", counters(6))  # somebody has made room
    made.close(replace(meta(), stopped_ns=meta().started_ns + 1))
    reader = TraceReader(tmp_path / "t")
    assert reader.table("counters").num_rows == before + 6
    assert not reader.damage


def test_a_description_is_text_that_a_person_can_read(tmp_path: Path) -> None:
    TraceWriter(tmp_path / "t", replace(meta(), warnings=("länger",)))
    written = (tmp_path / "t" / "meta.json").read_text(encoding="utf-8")
    assert '"länger"' in written
    assert written.endswith("\n}\n")


def test_a_description_with_what_is_no_number_is_not_written(tmp_path: Path) -> None:
    made = TraceWriter(tmp_path / "t", meta())
    with pytest.raises(ValueError, match="not JSON compliant"):
        made.update_meta(replace(meta(), cost=replace(meta().cost, wall_s=float("nan"))))
    assert TraceReader(tmp_path / "t").meta == meta()


@pytest.mark.slow
def test_no_file_stays_open(tmp_path: Path) -> None:
    gc.collect()  # what other tests left open is closed before it is counted
    before = len(list(Path("/proc/self/fd").iterdir()))
    made = TraceWriter(tmp_path / "t", meta())
    made.append("counters", counters())
    made.close(meta())
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_full_disk_costs_the_end_markers_and_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = TraceWriter(tmp_path / "t", meta())
    made.append("counters", counters(4))
    stream = made._streams["counters"]
    real = os.write

    def full(descriptor: int, data: Any) -> int:
        if descriptor == stream._descriptor:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr("os.write", full)
    made.close(replace(meta(), stopped_ns=meta().started_ns + 1))
    monkeypatch.undo()
    reader = TraceReader(tmp_path / "t")
    assert reader.table("counters").num_rows == 4
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(stream._descriptor)


def test_where_nothing_can_be_made_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match=r"cannot write the trace to .*/file/t: Not a directory") as caught:
        TraceWriter(tmp_path / "file" / "t", meta())
    assert caught.value.hint == "choose another place with --out"


@pytest.mark.parametrize(
    ("number", "said", "hint"),
    [
        (errno.ENOSPC, r"No space left on device \(.* of .* are left on /.*\)", "make room there"),
        (errno.EDQUOT, r"Disk quota exceeded \(.* are left on /", "make room there"),
        (errno.EMFILE, "Too many open files$", "ulimit -n"),
        (errno.ENFILE, "Too many open files in system$", "ulimit -n"),
        (errno.EACCES, "Permission denied$", "choose another place"),
    ],
)
def test_what_stands_in_the_way_is_said_with_a_remedy(number: int, said: str, hint: str, tmp_path: Path) -> None:
    error = cannot_write(tmp_path / "absent" / "t", OSError(number, os.strerror(number)))
    assert re.search(f"cannot write the trace to {tmp_path}/absent/t: {said}", error.message)
    assert hint in error.hint


@pytest.mark.parametrize("place", ["/proc/self/fd", "/proc/absent/t"])
def test_the_disk_that_is_full_is_named_by_where_it_is_mounted(place: str) -> None:
    said = cannot_write(Path(place), OSError(errno.ENOSPC, "full")).message
    assert said.endswith("are left on /proc)")


def test_of_a_disk_that_is_full_it_is_said_how_much_is_left_for_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel counts in pieces, and keeps some of those that are free for root."""
    room = SimpleNamespace(f_bsize=1, f_frsize=1000, f_blocks=8_000_000, f_bfree=5000, f_bavail=3000)
    monkeypatch.setattr("os.statvfs", lambda place: room)
    said = cannot_write(tmp_path, OSError(errno.ENOSPC, "full")).message
    assert "(3.00 MB of 8.00 GB are left on /" in said


def test_files_of_a_trace_are_files_that_others_may_read(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        made = TraceWriter(tmp_path / "t", meta())
        made.append("counters", counters())
        made.close(meta())
    finally:
        os.umask(before)
    assert {stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "t").iterdir()} == {0o644}


@pytest.mark.parametrize("content", [b"", b"no table at all"])
def test_a_finished_trace_of_which_a_table_is_none_is_cut_off(content: bytes, tmp_path: Path) -> None:
    TraceWriter(tmp_path / "t", meta()).close(replace(meta(), stopped_ns=meta().started_ns + 1))
    (tmp_path / "t" / "counters.arrows").write_bytes(content)
    reader = TraceReader(tmp_path / "t")
    assert reader.table("counters").num_rows == 0
    assert reader.damage[0].startswith("counters.arrows is damaged: it is cut off")
    assert not reader.truncated, "the recorder had finished"
