"""A ring: a trace of bounded size that opens at any moment, and what it holds can be kept."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.conclusions import traces

from netprof import model
from netprof.analysis import Analysis, analyze
from netprof.analysis.findings.flows.flows import FLOWS
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.errors import NetprofError, TraceError, UsageError
from netprof.model import Meta
from netprof.schema import SCHEMA_VERSION, MarkKind, recorded_columns, tables, time_column
from netprof.session.live_follow import FollowedTrace, recent_rows
from netprof.session.save import save
from netprof.trace import TraceReader
from netprof.trace import ring as ring_module
from netprof.trace.keep import Keep
from netprof.trace.meta import write_meta
from netprof.trace.ring import RingReader, RingWriter, reader_of
from netprof.trace.writer import TraceWriter

S = 10**9
NAME = "late-rank"


class Clock:
    """The time of a replayed recording."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        monkeypatch.setattr(ring_module, "monotonic_ns", lambda: self.now_ns)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def today(meta: Meta) -> Meta:
    """The description as a recorder writes it now: with all columns."""
    return replace(meta, schema_version=SCHEMA_VERSION)


def replay(writer: Any, clock: Clock, *, until: float = 1.0, slice_ns: int = S // 2) -> TraceReader:
    """Write a golden recording as its recorder did, half a second at a time; leave the writer open."""
    reader = TraceReader(traces(NAME)[0])
    whole: dict[str, Any] = {}
    for name in tables():
        table = reader.table(name).combine_chunks()
        if table.num_rows:
            whole[name] = dict(recent_rows(name, table.to_batches()[0]))
            known = recorded_columns(name, reader.meta.schema_version).names
            later = {key for key, column in whole[name].items() if key not in known and isinstance(column, np.ndarray)}
            whole[name] |= {key: np.zeros_like(whole[name][key]) for key in later}  # a recorder writes no nulls
    meta = today(reader.meta)
    assert meta.stopped_ns is not None
    low_ns, end_ns = meta.started_ns - 10 * S, meta.started_ns + round(until * (meta.stopped_ns - meta.started_ns))
    clock.now_ns = meta.started_ns
    while clock.now_ns < end_ns:
        clock.now_ns = min(clock.now_ns + slice_ns, end_ns)
        for name, rows in whole.items():
            age = time_column(name)
            length = len(next(iter(rows.values())))
            times = np.asarray(rows[age]).astype(np.int64) if age else np.full(length, low_ns + 1)
            now = np.flatnonzero((times > low_ns) & (times <= clock.now_ns))
            if len(now):
                writer.append(name, {key: np.asarray(values)[now] for key, values in rows.items()})
        low_ns = clock.now_ns
        writer.update_meta(meta_now(reader))
    return reader


def meta_now(reader: TraceReader) -> Meta:
    return replace(today(reader.meta), stopped_ns=None, stop_reason="")


def waited_ns(analysis: Analysis) -> int:
    found = analysis.of(WAITING)
    assert found is not None
    return found.exposed_ns


def parts(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.is_dir())


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Keep:
    """A ring of a second and a half: the recordings here are short."""
    return Keep(ns=3 * S // 2)


def test_a_ring_that_is_not_full_says_what_the_trace_says(tmp_path: Path, clock: Clock) -> None:
    writer = RingWriter(tmp_path / "r.netprof", today(TraceReader(traces(NAME)[0]).meta), Keep(ns=8 * 1000 * S))
    original = replay(writer, clock)
    writer.close(today(original.meta))
    whole, ring = analyze(original), analyze(reader_of(tmp_path / "r.netprof"))
    assert ring.of(ITERATIONS).durations == whole.of(ITERATIONS).durations
    assert waited_ns(ring) == waited_ns(whole)


def test_a_full_ring_holds_the_newest_part(tmp_path: Path, clock: Clock, short: Keep) -> None:
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    original = replay(writer, clock)
    writer.close(today(original.meta))
    reader = RingReader(path)
    stopped_ns = original.meta.stopped_ns
    assert stopped_ns is not None
    held_ns = stopped_ns - reader.meta.started_ns
    assert short.ns is not None
    assert short.ns - S <= held_ns <= short.ns * 5 // 4
    ring, whole = analyze(reader), analyze(original)
    begins = whole.of(ITERATIONS).times
    inside = begins.where(begins.begin_ns.astype(np.int64) >= reader.meta.started_ns)
    found = ring.of(ITERATIONS).times
    assert set(found.begin_ns.tolist()) <= set(inside.begin_ns.tolist())
    assert len(found) >= len(inside) - 4, "but for the steps that the beginning cuts"
    assert ring.of(FLOWS), "flows that began before are known"


def test_a_live_view_follows_it_from_part_to_part(tmp_path: Path, clock: Clock, short: Keep) -> None:
    path, seen = tmp_path / "r.netprof", list[int]()
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    followed, described = FollowedTrace(path), writer.update_meta

    def update_meta(meta: Meta) -> None:
        described(meta)
        seen.extend(times_of_marks(followed))

    writer.update_meta = update_meta  # type: ignore[method-assign]
    original = replay(writer, clock)
    came_late = times_of_marks(FollowedTrace(path))
    writer.close(today(original.meta))
    seen.extend(times_of_marks(followed))
    assert len(parts(path)) > 6, "it is full, and parts were removed"
    assert seen == original.table("marks").column("time_ns").to_pylist()
    assert set(RingReader(path).table("marks").column("time_ns").to_pylist()) <= set(came_late) < set(seen)


def test_a_live_view_that_comes_late_sees_no_gaps(tmp_path: Path, clock: Clock, short: Keep) -> None:
    """Of each part it would read the newest batches, and take what it left out for times in which nothing moved."""
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    replay(writer, clock)
    counts = []
    for most in (300, 400):
        found = [(name, batch.num_rows) for name, batch in FollowedTrace(path, most).fresh()]
        counts.append([sum(rows for name, rows in found if name == wanted) for wanted in ("wire", "marks")])
    (few, marks), (many, same) = counts
    last = next(each for each in parts(path)[::-1] if (path / each / "wire.arrows").exists())
    assert few == TraceReader(path / last).table("wire").num_rows > 0
    assert many >= RingReader(path).table("wire").num_rows > few, "all of it is of the last five minutes"
    assert marks == same >= RingReader(path).table("marks").num_rows


def times_of_marks(followed: FollowedTrace) -> list[int]:
    """Return when the marks were that came since one looked last."""
    marks = [rows.column("time_ns").to_numpy() for name, rows in followed.fresh() if name == "marks"]
    return [int(time) for each in marks for time in each]


@pytest.mark.parametrize("until", [0.2, 0.55, 0.83])
def test_it_opens_after_a_kill(tmp_path: Path, clock: Clock, short: Keep, until: float) -> None:
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    replay(writer, clock, until=until)
    os.close(os.dup(writer._directory.descriptor))  # and is never closed
    reader = RingReader(path)
    assert reader.meta.stopped_ns is None
    assert analyze(reader).of(ITERATIONS).times.begin_ns.size > 0


def test_it_opens_where_a_part_was_about_to_go(tmp_path: Path, clock: Clock, short: Keep, monkeypatch) -> None:
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(RingWriter, "_remove", killed)
    with pytest.raises(Killed):
        replay(writer, clock)
    reader = RingReader(path)
    assert RingReader(path)._parts[-1].path.name == parts(path)[-1]
    first_ns = min(int(np.min(batch.column("bin_start_ns").to_numpy())) for batch in reader.batches("wire"))
    assert first_ns >= reader.meta.started_ns
    analyze(reader)


@pytest.mark.parametrize("ns", [None, 3600 * S])
def test_a_size_bounds_the_disk(tmp_path: Path, clock: Clock, ns: int | None) -> None:
    path, most = tmp_path / "r.netprof", 60_000
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), Keep(ns, most))
    sizes = []
    append = writer.append

    def watched(name: str, columns: Any) -> None:
        append(name, columns)
        sizes.append(writer.size_bytes())

    writer.append = watched  # type: ignore[method-assign]
    replay(writer, clock, slice_ns=S // 5)
    assert max(sizes) < 1.3 * most, "of so little, the schemas of a dozen tables are a large part"
    assert len(parts(path)) > 3


def test_what_is_read_stays(tmp_path: Path, clock: Clock, short: Keep) -> None:
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    recorded = replay(writer, clock, until=0.6)
    held = RingReader(path)
    first = held._parts[0].path.name
    writer._keep = Keep(ns=S)
    writer.update_meta(meta_now(recorded))
    assert first in parts(path), "somebody reads it"
    del held
    writer.update_meta(meta_now(recorded))
    assert first not in parts(path)


def test_saving_makes_a_trace_of_it(tmp_path: Path, clock: Clock, short: Keep) -> None:
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    replay(writer, clock, until=0.9)
    save(path, tmp_path / "s.netprof")
    saved, ring = TraceReader(tmp_path / "s.netprof"), RingReader(path)
    assert saved.meta.started_ns == ring.meta.started_ns
    assert saved.table("wire").num_rows == ring.table("wire").num_rows
    assert not saved.truncated
    assert waited_ns(analyze(saved)) > 0
    with pytest.raises(TraceError, match="is not a ring"):
        save(tmp_path / "s.netprof", tmp_path / "again.netprof")
    with pytest.raises(TraceError, match="there is no directory"):
        save(tmp_path / "none.netprof", tmp_path / "again.netprof")
    with pytest.raises(TraceError, match="exists already"):
        save(path, tmp_path / "s.netprof")


@pytest.mark.parametrize("is_saved", [False, True])
def test_what_a_ring_has_let_go_of_is_not_missing(is_saved: bool, tmp_path: Path, clock: Clock, short: Keep) -> None:
    """TCP's totals, and what was counted beside them, are of a flow's whole life."""
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    original = replay(writer, clock)
    writer.close(today(original.meta))
    if is_saved:
        save(path, tmp_path / "s.netprof")
    found = analyze(reader_of(tmp_path / ("s.netprof" if is_saved else "r.netprof")))
    books = found.document()["reconciliation"]
    assert (books["unrecorded_bytes"], books["beyond_report"]) == (None, True)
    assert not any("did not come into the trace" in note for note in found.notes)


def test_a_ring_of_an_older_recorder_is_saved_as_it_is(tmp_path: Path, clock: Clock, short: Keep) -> None:
    """That may still be at work when netprof was upgraded: what it did not record stays unknown."""
    path, meta = tmp_path / "r.netprof", replace(meta_now(TraceReader(traces(NAME)[0])), schema_version=5)
    writer = RingWriter(path, meta, short)
    zeros = {field.name: ["eth0"] if str(field.type) == "string" else [0] for field in tables()["nic"]}
    writer.append("nic", zeros | {"time_ns": [meta.started_ns]})
    save(path, tmp_path / "s.netprof")
    saved = TraceReader(tmp_path / "s.netprof").table("nic")
    assert saved.column("tx_bytes").to_pylist() == [0]
    assert saved.column("qdisc_drops").to_pylist() == [None]


def test_of_a_ring_that_cannot_be_read_to_its_end_nothing_is_saved(
    tmp_path: Path, clock: Clock, short: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(reader: RingReader, name: str) -> Any:
        raise TraceError("cannot read it", "check the permissions of that file")

    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    replay(writer, clock, until=0.5)
    monkeypatch.setattr(RingReader, "batches", denied)
    with pytest.raises(TraceError, match="cannot read it"):
        save(path, tmp_path / "s.netprof")
    assert not (tmp_path / "s.netprof").exists()


def test_a_ring_is_not_saved_in_its_own_place(tmp_path: Path, clock: Clock, short: Keep) -> None:
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    recorded = replay(writer, clock, until=0.9)
    writer.close(today(recorded.meta))
    rows = RingReader(path).table("wire").num_rows
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(TraceError, match="it would be lost"):
        save(path, tmp_path / "link" / "r.netprof", force=True)
    assert RingReader(path).table("wire").num_rows == rows > 0


def ring_of_hours(path: Path, clock: Clock, keep: Keep) -> Meta:
    """Write a ring in which counters that never changed and what lasts are as old as the recording."""
    meta = meta_now(TraceReader(traces(NAME)[0]))
    writer = RingWriter(path, meta, keep)
    clock.now_ns = meta.started_ns
    lasts = {"pid": [1], "tid": [1], "kind": [int(MarkKind.NCCL_COMM_INIT)], "arg0": [0], "arg1": [0], "arg2": [0]}
    writer.append("marks", lasts | {"time_ns": [clock.now_ns]})
    writer.append("counters", {"series": [0], "time_ns": [clock.now_ns], "value": [7]})
    for hour in range(1, 4):
        clock.now_ns = meta.started_ns + hour * 3600 * S
        writer.append("counters", {"series": [1], "time_ns": [clock.now_ns - 1], "value": [hour]})
        writer.update_meta(meta)
    return meta


def test_what_is_saved_of_a_ring_of_hours_is_read_whole(tmp_path: Path, clock: Clock, short: Keep) -> None:
    """No reader takes what is so old for damage."""
    meta = ring_of_hours(tmp_path / "r.netprof", clock, short)
    saved = tmp_path / "s.netprof"
    save(tmp_path / "r.netprof", saved)
    reader = TraceReader(saved)
    assert reader.meta.started_ns > meta.started_ns + 3600 * S
    assert reader.table("marks").num_rows == 1
    assert 7 in reader.table("counters").column("value").to_pylist()
    assert reader.damage == ()


def test_a_live_view_of_a_ring_of_hours_sees_what_lasts(tmp_path: Path, clock: Clock, short: Keep) -> None:
    meta = ring_of_hours(tmp_path / "r.netprof", clock, short)
    followed = FollowedTrace(tmp_path / "r.netprof")
    assert followed.meta.started_ns > meta.started_ns + 3600 * S
    rows = [(name, batch) for name, batch in followed.fresh() if name in ("marks", "counters")]
    assert [batch.num_rows for name, batch in rows if name == "marks"] == [1]
    assert 7 in [value for name, batch in rows if name == "counters" for value in batch.column("value").to_pylist()]


def test_a_ring_of_hours_has_the_clock_as_it_is_set_now(
    tmp_path: Path, clock: Clock, short: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since the recording began, the machine may have slept."""
    now = model.Clock(7, 10**18)
    monkeypatch.setattr(model.Clock, "now", lambda: now)
    meta = ring_of_hours(tmp_path / "r.netprof", clock, short)
    assert RingReader(tmp_path / "r.netprof").meta.clock == now != meta.clock


def test_a_full_disk_costs_the_oldest_part(tmp_path: Path, clock: Clock, short: Keep, monkeypatch) -> None:
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    reader = replay(writer, clock, until=0.9)
    before = parts(path)
    append, calls = TraceWriter.append, []

    def full(self: TraceWriter, name: str, columns: Any) -> None:
        calls.append(name)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        append(self, name, columns)

    monkeypatch.setattr(TraceWriter, "append", full)
    rows = recent_rows("wire", next(iter(reader.batches("wire"))))
    writer.append("wire", rows)
    assert calls == ["wire", "wire"]
    assert len(parts(path)) < len(before)


def test_force_overwrites_a_ring_and_nothing_else(tmp_path: Path, clock: Clock, short: Keep) -> None:
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    original = replay(writer, clock, until=0.9)
    writer.close(today(original.meta))
    TraceWriter(path, original.meta, force=True).close(original.meta)
    assert parts(path) == []
    (path / "000001.part").mkdir()
    (path / "000001.part" / "mine").write_text("x")
    with pytest.raises(NetprofError, match="something other than a trace"):
        TraceWriter(path, original.meta, force=True)
    assert (path / "000001.part" / "mine").exists()


@pytest.mark.parametrize(
    ("text", "keep"),
    [("10m", Keep(ns=600 * S)), ("2GB", Keep(size_bytes=2 * 10**9)), ("16MiB", Keep(size_bytes=16 << 20))],
)
def test_what_to_keep(text: str, keep: Keep) -> None:
    assert Keep.parse(text) == keep


@pytest.mark.parametrize("text", ["1s", "1kB", "0", "ten", "-5m", "5 parsecs"])
def test_what_cannot_be_kept(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Keep.parse(text)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("where", ["ring", "writer"])
def test_a_ring_that_cannot_be_begun_leaves_nothing(where: str, tmp_path: Path, short: Keep, monkeypatch) -> None:
    def full(directory: Any, meta: Meta) -> None:
        raise OSError(28, "No space left on device")

    meta = today(TraceReader(traces(NAME)[0]).meta)
    open_before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    monkeypatch.setattr(f"netprof.trace.{where}.write_meta", full)
    for _ in range(3):
        with pytest.raises(TraceError, match="No space left"):
            RingWriter(tmp_path / "r.netprof", meta, short)
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == open_before  # noqa: PTH208


@pytest.mark.parametrize("where", ["ring", "writer"])
def test_a_full_disk_costs_the_oldest_part_whatever_is_written(
    where: str, tmp_path: Path, clock: Clock, short: Keep, monkeypatch
) -> None:
    """A description of the ring, or of the part that begins."""
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    reader = replay(writer, clock, until=0.9)
    before, calls = parts(path), []

    def full(directory: Any, meta: Meta) -> None:
        calls.append(meta)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        write_meta(directory, meta)

    monkeypatch.setattr(f"netprof.trace.{where}.write_meta", full)
    clock.now_ns += 100 * S
    writer.update_meta(meta_now(reader))
    assert len(calls) > 1
    assert before[0] not in parts(path)
    monkeypatch.undo()
    writer.close(today(reader.meta))
    assert RingReader(path).meta.stopped_ns is not None


def test_where_no_next_part_fits_on_the_disk_the_last_one_stays(
    tmp_path: Path, clock: Clock, short: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    reader = replay(writer, clock, until=0.9)
    last, open_before = parts(path)[-1], len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    def full(stream: Any, batch: Any) -> None:
        raise OSError(28, "No space left on device")

    clock.now_ns += 100 * S
    with monkeypatch.context() as now:
        now.setattr("netprof.trace.writer._Stream.append", full)
        with pytest.raises(OSError, match="No space left"):
            writer.update_meta(meta_now(reader))
    assert len(os.listdir("/proc/self/fd")) == open_before  # noqa: PTH208
    writer.append("counters", {"series": [1], "time_ns": [clock.now_ns], "value": [4711]})
    writer.close(today(reader.meta))
    assert [each for each in parts(path) if each.endswith(".part")] == [last]
    assert 4711 in RingReader(path).table("counters").column("value").to_pylist()
    assert RingReader(path).meta.stopped_ns is not None


def test_no_other_error_costs_a_part(tmp_path: Path, clock: Clock, short: Keep, monkeypatch) -> None:
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    reader = replay(writer, clock, until=0.9)
    before = parts(path)

    def broken(self: TraceWriter, name: str, columns: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(TraceWriter, "append", broken)
    with pytest.raises(OSError, match="Input/output"):
        writer.append("wire", recent_rows("wire", next(iter(reader.batches("wire")))))
    assert parts(path) == before


def test_a_part_that_cannot_be_removed_ends_no_recording(
    tmp_path: Path, clock: Clock, short: Keep, monkeypatch
) -> None:
    """Somebody reads it over NFS, say."""
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    reader = replay(writer, clock, until=0.9)

    def busy(directory: Any, name: str) -> None:
        if directory.kind(name) is not None:
            raise OSError(39, "Directory not empty")

    monkeypatch.setattr(ring_module, "remove_part", busy)
    clock.now_ns += 100 * S
    writer.update_meta(meta_now(reader))
    clock.now_ns += 100 * S
    writer.update_meta(meta_now(reader))
    assert RingReader(path).meta.started_ns > reader.meta.started_ns


def test_parts_that_go_while_they_are_read_are_told(tmp_path: Path, clock: Clock, short: Keep) -> None:
    path = tmp_path / "r.netprof"
    writer = RingWriter(path, today(TraceReader(traces(NAME)[0]).meta), short)
    recorded = replay(writer, clock, until=0.9)
    reader = RingReader(path)
    assert reader.damage == ()
    for _ in range(10):  # more than are left for who reads
        clock.now_ns += S
        writer.update_meta(meta_now(recorded))
    assert reader.damage
    assert "of the ring went while it was read" in reader.damage[-1]
