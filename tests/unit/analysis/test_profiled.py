"""Profiles of the job beside a recording: what they tell of each step, and whose they are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, WIRE_TO, Job, K, enqueued
from unit.analysis.test_bounds import hidden

from netprof.analysis import analyze
from netprof.analysis.findings.bounds.bounds import BOUNDS
from netprof.analysis.hosts.placed_profiles import WithProfiles
from netprof.errors import NetprofError, TraceError
from netprof.model import Clock
from netprof.schema import Profiled
from netprof.trace import TraceReader
from netprof.trace.kineto import profiled_rows, read_kineto
from netprof.trace.meta import open_trace, write_meta

CLOCK = Clock(START_NS, 1_700_000_000_000_000_000)
GRADIENT, DONE = 100 * MS, WIRE_TO  # of each profiled step


def event(category: str, name: str, begin_ns: int, end_ns: int, pid: int = 100) -> dict[str, Any]:
    """An event as Kineto writes it, at times after the beginning of the recording."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "ts": begin_ns / 1e3,
        "dur": (end_ns - begin_ns) / 1e3,
    }


def on_gpu(steps: range) -> list[dict[str, Any]]:
    """Kernels of some steps: computing until the last gradient, and NCCL from half of that to the last byte."""
    found = []
    for step in steps:
        at = step * ITERATION_NS
        found += [
            event("kernel", "sm90_xmma_gemm", at + 5 * MS, at + GRADIENT),
            event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 50 * MS, at + DONE),
            event("kernel", "multi_tensor_apply_kernel", at + DONE + MS, at + DONE + 5 * MS),
        ]
    return found


def write(path: Path, events: list[dict[str, Any]], rank: int | None = 0) -> Path:
    about = {} if rank is None else {"distributedInfo": {"rank": rank, "backend": "nccl"}}
    path.write_text(json.dumps({"baseTimeNanoseconds": CLOCK.realtime_ns, **about, "traceEvents": events}))
    return path


def test_kernels_become_rows_on_the_recordings_clock(tmp_path: Path) -> None:
    rows = profiled_rows(read_kineto(write(tmp_path / "p.json", on_gpu(range(2)))), 100, CLOCK)
    kinds = rows["kind"].tolist()
    assert kinds.count(Profiled.SEEN) == 1
    assert kinds.count(Profiled.COMPUTES) == 4
    assert kinds.count(Profiled.COMMUNICATES) == 2
    talks = rows["kind"] == Profiled.COMMUNICATES
    assert (rows["first_ns"][talks] - START_NS).tolist() == [50 * MS, ITERATION_NS + 50 * MS]
    assert (rows["last_ns"][talks] - START_NS).tolist() == [DONE, ITERATION_NS + DONE]


def test_without_a_gpu_operators_are_what_computes(tmp_path: Path) -> None:
    events = [
        event("user_annotation", "DistributedDataParallel.forward", 0, 50 * MS),
        event("cpu_op", "aten::mm", 10 * MS, 20 * MS),
        event("user_annotation", "gloo:all_reduce", 15 * MS, 40 * MS),
    ]
    rows = profiled_rows(read_kineto(write(tmp_path / "p.json", events)), 100, CLOCK)
    by_kind = {
        int(kind): (first, last)
        for kind, first, last in zip(*(rows[name] for name in ("kind", "first_ns", "last_ns")), strict=True)
    }
    assert by_kind[Profiled.COMPUTES] == (START_NS + 10 * MS, START_NS + 20 * MS)
    assert by_kind[Profiled.COMMUNICATES] == (START_NS + 15 * MS, START_NS + 40 * MS)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"traceEvents": 5}', '{"traceEvents": [{"ph": "X", "ts": "a", "dur": 1}]}', "[" * 100_000]
)
def test_what_is_no_profile_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(NetprofError):
        profiled_rows(read_kineto(tmp_path / "p.json"), 100, CLOCK)


@pytest.mark.slow
def test_bounds_become_numbers_where_a_profile_saw_the_step(tmp_path: Path) -> None:
    trace = enqueued().write(tmp_path / "t.netprof")
    profile = write(tmp_path / "p.json", on_gpu(range(3, 7)))
    found = analyze(WithProfiles(TraceReader(trace), [profile])).of(BOUNDS)
    assert found is not None
    exact = found.steps.where(found.steps.exact == 1)
    assert set(exact.pid.tolist()) == {100}
    assert len(exact) == 3, "from launch to launch: the last one's end was not profiled"
    assert set(exact.least_ns.tolist()) == set(exact.most_ns.tolist()) == {DONE - GRADIENT}
    others = found.steps.where(found.steps.exact == 0)
    assert (others.most_ns > others.least_ns).all()
    document = analyze(WithProfiles(TraceReader(trace), [profile])).document()["waiting_bounds"]
    assert document["exact_steps"] == 3
    assert document["exact_iteration_exposed_s"] == pytest.approx((DONE - GRADIENT) / 1e9)


def test_a_profile_of_no_recorded_step_is_told_of(tmp_path: Path) -> None:
    trace = enqueued().write(tmp_path / "t.netprof")
    begun = on_gpu(range(3, 7))
    beside = [{**each, "ts": each["ts"] + 1e9} for each in begun]
    for events, told in ((begun, False), (beside, True)):
        notes = analyze(WithProfiles(TraceReader(trace), [write(tmp_path / "p.json", events)])).notes
        assert any("profiles of 1 process make nothing exact" in note for note in notes) is told


def test_a_host_that_computes_is_profiled_alike(tmp_path: Path) -> None:
    trace = hidden().write(tmp_path / "t.netprof")
    events = []
    for step in range(2, 5):
        at = step * ITERATION_NS
        events += [
            event("cpu_op", "aten::mm", at, at + 42 * MS),
            event("cpu_op", "gloo:all_reduce", at + 30 * MS, at + 140 * MS),
            event("cpu_op", "aten::add_", at + 141 * MS, at + ITERATION_NS),
        ]
    profile = write(tmp_path / "p.json", events)
    found = analyze(WithProfiles(TraceReader(trace), [profile])).of(BOUNDS)
    assert found is not None
    exact = found.steps.where(found.steps.exact == 1)
    assert set(exact.least_ns.tolist()) == {98 * MS}


def test_a_profile_of_another_job_is_refused(tmp_path: Path) -> None:
    trace = TraceReader(enqueued().write(tmp_path / "t.netprof"))
    with pytest.raises(TraceError, match="recorded job"):
        WithProfiles(trace, [write(tmp_path / "p.json", [event("kernel", "k", 0, MS, pid=7)], rank=None)])


@pytest.mark.parametrize(
    ("inner_pid", "pid", "rank", "is_its"),
    [
        (7, 7, 0, True),
        (7, 7, None, True),
        (7, 100, 0, False),  # the host's number of it, which it does not know
        (7, 8, 0, False),  # the same rank of another job, or of another run
        (7, 7, 5, False),
        (0, 8, 0, True),  # what it calls itself is not known
        (0, 100, None, True),
        (0, 8, None, False),
    ],
)
def test_whose_a_profile_is(inner_pid: int, pid: int, rank: int | None, is_its: bool, tmp_path: Path) -> None:
    path = enqueued().write(tmp_path / "t.netprof")
    meta = TraceReader(path).meta
    first, *others = meta.targets
    write_meta(open_trace(path), replace(meta, targets=(replace(first, inner_pid=inner_pid), *others)))
    profile = write(tmp_path / "p.json", [event("kernel", "k", 0, MS, pid)], rank)
    if is_its:
        table = WithProfiles(TraceReader(path), [profile]).table("profiled")
        assert set(table.column("pid").to_pylist()) == {100}
    else:
        with pytest.raises(TraceError, match="is of no process of the recorded job"):
            WithProfiles(TraceReader(path), [profile])


def test_a_recording_without_profiles_has_an_empty_table(tmp_path: Path) -> None:
    job = Job().fill()
    job.mark(START_NS, 100, K.BACKWARD)
    assert TraceReader(job.write(tmp_path / "t.netprof")).table("profiled").num_rows == 0
