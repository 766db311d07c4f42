"""Horovod timelines: whole ones, cut ones, and files that are none."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from netprof.analysis.events.horovod import horovod_summaries, horovod_transfers
from netprof.analysis.tables.columns import UNKNOWN
from netprof.analysis.tables.marks import read_marks
from netprof.errors import TraceError
from netprof.probes.imported import horovod_timeline
from netprof.probes.imported.horovod_timeline import read_timeline
from netprof.session.timeline import import_timeline
from netprof.trace import TraceReader

START_US = 1_795_255_744_183_348


def event(phase: str, at_us: int, tensor: int, name: str = "", **more: Any) -> dict[str, Any]:
    return {"ph": phase, "ts": at_us, "pid": tensor} | ({"name": name} if name else {}) | more


def step(at: int) -> list[dict[str, Any]]:
    """Two tensors of 4096 and 40 bytes, negotiated from 0 and 10 to 100 µs, fused, transferred from 120 to 180."""
    negotiation = [event("B", at, 1, "NEGOTIATE_ALLREDUCE"), event("X", at, 1, "0", dur=0)]
    negotiation += [event("B", at + 10, 2, "NEGOTIATE_ALLREDUCE"), event("X", at + 90, 1, "1", dur=0)]
    negotiation += [event("E", at + 95, tensor) for tensor in (1, 2)]
    activities = [
        event(phase, at + time, tensor, name)
        for phase, time, name in (
            ("B", 100, "ALLREDUCE"),
            ("B", 102, "MEMCPY_IN_FUSION_BUFFER"),
            ("E", 118, ""),
            ("B", 120, "GLOO_ALLREDUCE"),
            ("E", 180, ""),
            ("B", 181, "MEMCPY_OUT_FUSION_BUFFER"),
            ("E", 195, ""),
        )
        for tensor in (1, 2)
    ]
    ends = [event("E", at + 200, 1, args={"dtype": "float32", "shape": "[32, 32]"})]
    ends += [event("E", at + 200, 2, args={"dtype": "float32", "shape": "[10]"})]
    return negotiation + activities + ends


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    """Write as Horovod does: an array that is closed after every event."""
    head = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": START_US}}
    path.write_text("[\n" + ",".join(json.dumps(each) for each in [head, *events]) + "]")
    return path


def test_a_job_of_one_rank_has_one(tmp_path: Path) -> None:
    events = [event for event in step(1000) if event.get("name") != "1"]
    assert read_timeline(write(tmp_path / "t.json", events)).ranks == 1


def test_stages_and_sizes(tmp_path: Path) -> None:
    found = read_timeline(write(tmp_path / "t.json", step(1000) + step(2000)))
    assert (found.ranks, found.truncated, found.start_realtime_ns) == (2, False, START_US * 1000)
    marks = read_marks(found.marks)
    (summary,) = horovod_summaries(marks)
    assert (summary.enqueued, summary.responses, summary.tensors_per_response) == (4, 2, 2.0)
    assert summary.outstanding_ns == 400_000
    assert summary.negotiating_ns == 200_000
    assert (summary.packing_ns, summary.transferring_ns, summary.unpacking_ns) == (40_000, 120_000, 40_000)
    assert horovod_transfers(marks).bytes.tolist() == [4136, 4136]


@pytest.mark.slow
def test_a_timeline_cut_at_any_byte_gives_what_came_before(tmp_path: Path) -> None:
    whole = write(tmp_path / "t.json", step(1000) + step(2000)).read_text()
    counts = []
    for end in range(len(whole) // 3, len(whole), 7):
        cut = tmp_path / "cut.json"
        cut.write_text(whole[:end])
        found = read_timeline(cut)
        assert found.truncated
        counts.append(len(found.marks["time_ns"]))
    assert counts == sorted(counts)
    assert counts[-1] == 7 + 2, "all of the first step, and what the second one enqueued"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "not json",
        '[{"ph": "B"}]',
        '[{"ph": "B", "ts": -1, "pid": 1, "name": "NEGOTIATE_X"}]',
        "[" * 9999,
    ],
)
def test_files_that_are_no_timeline(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(TraceError, match="not a Horovod timeline"):
        read_timeline(tmp_path / "t.json")
    with pytest.raises(TraceError, match="cannot read"):
        read_timeline(tmp_path / "missing.json")


def test_values_that_cannot_be_are_passed_over(tmp_path: Path) -> None:
    odd = [event("B", 5, 1, "ALLREDUCE", args=7), event("E", 6, 9), event("X", 7, 1, "9" * 400)]
    odd += [event("B", 7, 1, "GLOO_ALLREDUCE"), event("E", 8, 1)]
    odd += [event("E", 8, 1, args={"dtype": "float32", "shape": "[" + "9" * 12 + ", " * 3 + "9" * 12 + "]"})]
    odd += [{"ph": "E", "ts": "soon", "pid": 1}, {"ph": "B", "ts": 2**70, "pid": 1, "name": "ALLREDUCE"}]
    found = read_timeline(write(tmp_path / "t.json", odd + step(1000)))
    assert horovod_transfers(read_marks(found.marks)).bytes.tolist() == [UNKNOWN, 4136]


def test_an_imported_trace_opens_and_says_what_it_is(tmp_path: Path) -> None:
    import_timeline(write(tmp_path / "t.json", step(1000)), tmp_path / "t.netprof", force=False)
    reader = TraceReader(tmp_path / "t.netprof")
    assert "imported from a Horovod timeline" in reader.meta.warnings[0]
    assert reader.table("marks").num_rows == 7
    assert not [file.name for file in (tmp_path / "t.netprof").iterdir() if file.suffix not in (".json", ".arrows")]
    with pytest.raises(TraceError):
        import_timeline(tmp_path / "t.json", tmp_path / "t.netprof", force=False)


def test_an_imported_trace_is_of_rank_0_from_the_beginning_and_says_where_it_is_cut(tmp_path: Path) -> None:
    whole = import_timeline(write(tmp_path / "t.json", step(1000)), tmp_path / "whole", force=False)
    assert (whole.started_ns, whole.clock.monotonic_ns, whole.bin_ns) == (0, 0, 1_000_000)
    assert [(target.rank, target.start_ticks) for target in whole.targets] == [(0, 0)]
    assert not any("cut off" in warning for warning in whole.warnings)
    text = (tmp_path / "t.json").read_text()
    (tmp_path / "t.json").write_text(text[: len(text) // 2])
    cut = import_timeline(tmp_path / "t.json", tmp_path / "cut", force=False)
    assert any("cut off" in warning for warning in cut.warnings)
    assert cut == TraceReader(tmp_path / "cut").meta


@pytest.mark.parametrize(("asked", "stalled"), [((0, 1), "rank 2"), ((2,), "ranks 0, 1"), ((0, 1, 2), "")])
def test_a_negotiation_that_stays_open_names_who_has_not_asked(
    asked: tuple[int, ...], stalled: str, tmp_path: Path
) -> None:
    events = [{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "DistributedOptimizer/grad.1\x1b[1m"}}]
    for first_us, ranks in ((0, (0, 1, 2)), (1_000_000, asked)):
        events.append({"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": first_us, "pid": 1})
        events += [{"ph": "X", "name": str(rank), "ts": first_us + rank, "dur": 0, "pid": 1} for rank in ranks]
        if first_us == 0:
            events.append({"ph": "E", "ts": 900, "pid": 1})
    events.append({"ph": "i", "name": "CYCLE_START", "ts": 31_000_000, "pid": 0})
    (tmp_path / "t.json").write_text(json.dumps(events))
    found = read_timeline(tmp_path / "t.json").stalled
    assert found == (f"tensor grad.1?[1m waits for {stalled} for 30.0 s" if stalled else "")


def test_no_event_takes_more_memory_than_events_do(tmp_path: Path) -> None:
    """A text of 40 MB ends the import: what came before it is kept, and what comes after is said to be left out."""
    path = write(tmp_path / "t.json", [*step(1000), event("B", 3000, 1, "x" * (40 << 20)), *step(5000)])
    tracemalloc.start()
    timeline = read_timeline(path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 16 << 20
    assert timeline.left_out == ("what comes after an event of more than 1 MiB",)
    assert int(timeline.marks["time_ns"].max()) == 1_200_000
    meta = import_timeline(path, tmp_path / "t.netprof", force=False)
    assert "left out of the timeline: what comes after an event of more than 1 MiB" in meta.warnings


def test_events_that_are_read_in_parts_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t.json", [*step(1000), *step(2000)])
    whole = read_timeline(path)
    monkeypatch.setattr(horovod_timeline, "_AT_ONCE", 7)
    parts = read_timeline(path)
    assert {name: values.tolist() for name, values in parts.marks.items()} == {
        name: values.tolist() for name, values in whole.marks.items()
    }
    assert (parts.truncated, parts.left_out) == (whole.truncated, whole.left_out) == (False, ())


def test_marks_and_tensors_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horovod_timeline, "_MOST_TENSORS", 1)
    few = read_timeline(write(tmp_path / "few.json", step(1000)))
    assert few.left_out == ("10 events of tensors after the first 1",)
    monkeypatch.setattr(horovod_timeline, "_MOST_MARKS", 1)
    cut = read_timeline(write(tmp_path / "cut.json", step(1000)))
    assert len(cut.marks["time_ns"]) == 1
    assert cut.left_out == ("what comes after 1 marks",)
