"""Bounds of what is waited for where only launches and the wire are seen: of traces whose true answer is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.hidden_ends import ENDS
from support.synthetic import (
    DONE,
    ITERATION_NS,
    MS,
    PAYLOAD_PER_BIN,
    START_NS,
    WAIT,
    WIRE_FROM,
    WIRE_TO,
    Job,
    K,
    enqueued,
    launched_ahead,
    trace_of,
    with_late_rank,
)

from netprof.analysis import Analysis, analyze
from netprof.analysis.account.causes import LINK_FULL, UNEXPLAINED, UNSEEN, WAIT_CAUSES
from netprof.analysis.findings.bounds.bounds import BOUNDS, BoundsFinding
from netprof.analysis.findings.collectives.scaling import SCALING
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.iterations.per_iteration import rows_of
from netprof.analysis.findings.links.links import LINKS, spans_of_idleness
from netprof.analysis.findings.verdict.grounds import Case
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.pieces import PieceSize
from netprof.analysis.whatif.from_trace import from_trace
from netprof.errors import NetprofError
from netprof.model import Gpu, StartedProbe, Target
from netprof.schema import GpuMetric, tables
from netprof.trace import TraceReader, TraceWriter
from netprof.units import duration
from netprof.views.html.page import render
from netprof.views.html.tracks import tracks
from netprof.views.perfetto import events

LAUNCHED = 41 * MS  # the last bucket
OPTIMIZER = 170 * MS
PAYLOAD = PAYLOAD_PER_BIN * (WIRE_TO - WIRE_FROM) // MS
PACKED = 1 * MS + PAYLOAD // 4 + round(0.05 * (WIRE_TO - LAUNCHED))  # half of the bytes at 2 GB/s, and late


def hidden(iterations: int = 10) -> Job:
    """A job that computes on its hosts; nothing tells when anything is done, but that the optimizer goes on."""
    job = Job(iterations=iterations).fill().without(ENDS)
    for rank in range(job.ranks):
        for step in range(job.iterations + 1):
            job.mark(START_NS + step * ITERATION_NS + OPTIMIZER, 100 + rank, K.OPTIMIZER_STEP)
    return job


def bounds_of(job: Job, path: Path) -> tuple[BoundsFinding, Analysis]:
    found = analyze(TraceReader(job.write(path / "t.netprof")))
    bounds = found.of(BOUNDS)
    assert bounds is not None
    return bounds, found


def offsets(times_ns: np.ndarray, begin_ns: np.ndarray) -> set[int]:
    return set((times_ns - begin_ns).tolist())


def test_a_host_that_computes_waits_from_its_last_launch_to_the_last_byte_and_what_follows(tmp_path: Path) -> None:
    found, _ = bounds_of(hidden(), tmp_path)
    steps = found.steps
    assert np.unique(steps.pid, return_counts=True)[1].tolist() == [10, 10]
    assert offsets(steps.launch_ns, steps.begin_ns) == {LAUNCHED - PACKED}
    assert offsets(steps.gradient_ns, steps.begin_ns) == {WAIT}
    assert offsets(steps.received_ns, steps.begin_ns) == {WIRE_TO}
    unpacked = 2 * MS + PAYLOAD // 2 + round(0.15 * (WIRE_TO - LAUNCHED))  # half of the bytes at 1 GB/s, and late
    (done,) = offsets(steps.done_ns, steps.begin_ns)
    assert done == pytest.approx(WIRE_TO + unpacked, abs=2)


def test_a_host_that_goes_on_is_done(tmp_path: Path) -> None:
    job = hidden()
    early = WIRE_TO + 3 * MS
    job.marks = [
        (mark[0] - OPTIMIZER + early, *mark[1:]) if mark[3] == K.OPTIMIZER_STEP else mark for mark in job.marks
    ]
    found, _ = bounds_of(job, tmp_path)
    assert offsets(found.steps.done_ns, found.steps.begin_ns) == {early}


def test_nothing_but_launches_is_enough(tmp_path: Path) -> None:
    job = hidden()
    job.marks = [mark for mark in job.marks if mark[3] == K.BUCKET_LAUNCH]
    found, analysis = bounds_of(job, tmp_path)
    assert found.is_known
    steps = found.steps
    assert len(steps) >= 14
    since = (steps.launch_ns - START_NS) % ITERATION_NS
    assert set(since.tolist()) == {LAUNCHED - PACKED}
    assert set(((steps.received_ns - START_NS) % ITERATION_NS).tolist()) == {WIRE_TO}
    assert analysis.of(ITERATIONS).inferred is not None, "which the bounds do not stand in the way of"


def test_causes_and_verdict_are_those_of_the_account(tmp_path: Path) -> None:
    found, analysis = bounds_of(hidden(), tmp_path)
    low, high = found.shares
    assert low == pytest.approx((WIRE_TO - WAIT) / ITERATION_NS)
    assert high == pytest.approx(
        (WIRE_TO + 2 * MS + 4.96 * MS - LAUNCHED * 1.15 + 0.15 * WIRE_TO + PACKED) / ITERATION_NS, abs=1e-4
    )
    least, most = ({each.cause.name: each.ns for each in side.causes} for side in (found.least, found.most))
    assert set(least) <= set(most)
    assert all(least[name] <= most[name] for name in least)
    assert sum(most.values()) == found.most.exposed_ns
    assert found.sure_cause is not None
    assert found.sure_cause.cause.name == "link_full"
    verdict = analysis.of(VERDICT)
    assert verdict.case is LINK_FULL
    assert verdict.sentence.startswith("at most: the job waits 44 % to 59 % of the time")
    assert analysis.of(WAITING) is None


@pytest.mark.slow
def test_no_view_takes_launches_for_phases_or_for_gradients(tmp_path: Path) -> None:
    _, analysis = bounds_of(enqueued(), tmp_path)
    rows = rows_of(analysis.evidence, 100)
    assert np.isfinite(rows.duration_s).all()
    assert np.isnan([rows.forward_s, rows.backward_s, rows.exposed_communication_s, rows.rest_s]).all()
    assert {event.get("cat") for event in events(analysis)} >= {"iteration", "bucket"}
    assert not [event for event in events(analysis) if event.get("cat") == "phase"]
    idle = [spans_of_idleness(analysis.evidence, link) for link in analysis.of(LINKS)]
    assert [set(each) for each in idle] == [{UNEXPLAINED.name}] * 2
    drawn = tracks(analysis, {link.key: spans for link, spans in zip(analysis.of(LINKS), idle, strict=True)})
    assert [rank["launched"] for rank in drawn["ranks"]] == [True, True]
    page = render(analysis)
    assert "Where the phases of these iterations lie is unknown" in page
    assert 'class="phasebar"' not in page


def test_a_late_rank_is_told_by_its_launches(tmp_path: Path) -> None:
    job = with_late_rank(hidden(), 1, 5 * MS)
    found, _ = bounds_of(job, tmp_path)
    (late,) = [each for each in found.most.causes if each.cause.name == "late_rank"]
    assert late.rank == 1
    assert late.ns == pytest.approx(10 * 5 * MS, rel=0.05)


def test_a_gpu_computes_until_its_last_bucket_is_sent_at_the_latest(tmp_path: Path) -> None:
    found, analysis = bounds_of(enqueued(last_share=0.25), tmp_path)
    steps = found.steps
    begin = steps.launch_ns - 25 * MS - 1000
    assert set(((begin - START_NS) % ITERATION_NS).tolist()) == {0}
    first = WIRE_FROM + 0.75 * (WIRE_TO - WIRE_FROM)
    late = offsets(steps.gradient_ns, begin)
    assert all(first <= each <= first + 2 * MS for each in late), "to a bin, and what headers may add"
    assert offsets(steps.received_ns, begin) == {WIRE_TO}
    staged = round(0.25 * PAYLOAD / 2 + 0.02 * (WIRE_TO - 26 * MS - 1000))  # half of the bytes at 4 GB/s, and late
    assert offsets(steps.done_ns, begin) == {WIRE_TO + 2 * MS + staged}
    assert analysis.of(SCALING) is None
    assert analysis.of(ITERATIONS).only_launch
    document = analysis.document()
    assert document["waiting"] is None
    assert document["iterations"]["exposed_communication_share"] is None
    assert set(document["iterations"]["phases_s"].values()) == {None}
    bounds = document["waiting_bounds"]
    assert bounds["on_gpu"]
    assert bounds["exposed_share_of_all_time"]["at_least"] < bounds["exposed_share_of_all_time"]["at_most"]
    names = {cause.name for cause in WAIT_CAUSES}
    assert all(set(rank["causes_s"]) == names for rank in bounds["by_rank"])


def test_the_truth_of_a_gpu_is_inside_wherever_its_last_gradient_is(tmp_path: Path) -> None:
    """The last bucket's first byte is its latest, its launch its earliest: 60 of the 80 ms on the wire are before."""
    found, _ = bounds_of(enqueued(last_share=0.25), tmp_path)
    for gradient in (30 * MS, 60 * MS, 110 * MS):
        truth = WIRE_TO - gradient
        assert (found.steps.least_ns <= truth).all()
        assert (found.steps.most_ns >= truth).all()


def test_without_sizes_nothing_is_waited_for_surely(tmp_path: Path) -> None:
    job = enqueued()
    job.marks = [mark for mark in job.marks if mark[3] != K.NCCL_ALL_REDUCE]
    job.changes["targets"] = tuple(Target(100 + r, 5, "train", 7, r, 2, ("ddp", "nccl")) for r in range(2))
    found, analysis = bounds_of(job, tmp_path)
    assert found.least.exposed_ns == 0
    assert found.most.exposed_ns > 0
    assert analysis.of(VERDICT).case is UNSEEN
    assert analysis.of(VERDICT).headline.startswith("WAITS 0 % to ")


def test_a_gpu_that_is_seen_to_compute_does_not_wait(tmp_path: Path) -> None:
    job = enqueued()
    job.changes["gpus"] = tuple(Gpu(rank, pids=(100 + rank,)) for rank in range(2))
    path = job.write(tmp_path / "t.netprof")
    rows = [(rank, START_NS + step * ITERATION_NS + 70 * MS, 20 * MS, 95.0) for rank in range(2) for step in range(11)]
    gpu, time_ns, period_ns, value = (list(column) for column in zip(*rows, strict=True))
    metric = [int(GpuMetric.SM_ACTIVE_PERCENT)] * len(rows)
    rewritten = tmp_path / "with_gpu.netprof"
    writer = TraceWriter(rewritten, job.meta())
    reader = TraceReader(path)
    for table in tables():
        if table != "gpu":
            for batch in reader.batches(table):
                writer.append(table, {name: batch.column(name).to_pylist() for name in batch.schema.names})
    writer.append(
        "gpu",
        {"gpu": gpu, "pid": [0] * len(rows), "metric": metric, "time_ns": time_ns, "period_ns": period_ns}
        | {"value": value},
    )
    writer.close(job.meta())
    found = analyze(TraceReader(rewritten)).of(BOUNDS)
    assert found is not None
    begin = found.steps.gradient_ns - (found.steps.gradient_ns - START_NS) % ITERATION_NS
    assert offsets(found.steps.launch_ns, begin) == {50 * MS}, "it computed at some time of that sample"


def test_a_host_that_comes_back_from_its_gpu_is_done(tmp_path: Path) -> None:
    job = enqueued()
    for rank in range(2):
        for step in range(11):
            at = START_NS + step * ITERATION_NS
            job.mark(at + 35 * MS, 100 + rank, K.DEVICE_WAIT)
            job.mark(at + WIRE_TO + 200_000, 100 + rank, K.DEVICE_WAIT_OVER)
    found, _ = bounds_of(job, tmp_path)
    done = (found.steps.done_ns - START_NS) % ITERATION_NS
    assert set(done.tolist()) == {WIRE_TO + 200_000}


def test_a_host_far_ahead_of_its_gpu_is_bounded_by_its_bytes(tmp_path: Path) -> None:
    job = enqueued(last_share=0.25)
    ahead = ITERATION_NS - 60 * MS  # launches of the next step while the bytes of this one still pass
    job.marks = [(mark[0] - ahead, *mark[1:]) for mark in job.marks]
    found, _ = bounds_of(job, tmp_path)
    steps = found.steps
    assert len(steps) >= 14
    assert (steps.least_ns <= WIRE_TO - 60 * MS).all()
    assert (steps.most_ns >= WIRE_TO - WIRE_FROM).all()
    assert (steps.least_ns >= 15 * MS).all(), "the last quarter of the bytes is the last bucket's"


def test_what_passes_no_wire_has_no_bounds_and_why_is_said(tmp_path: Path) -> None:
    job = enqueued()
    job.wire = []
    found, analysis = bounds_of(job, tmp_path)
    assert not found.is_known
    assert any("not even by bounds: its bytes pass no wire" in note for note in analysis.notes)
    assert analysis.document()["waiting_bounds"] is None
    assert analysis.of(VERDICT).case is UNSEEN


def test_a_barrier_over_gloo_does_not_make_gpus_seen(tmp_path: Path) -> None:
    job = enqueued()
    for step in range(0, 10, 3):
        at = START_NS + step * ITERATION_NS + 150 * MS
        job.mark(at, 100, K.COLLECTIVE_BEGIN, tid=300)
        job.mark(at + MS, 100, K.COLLECTIVE_END, tid=300)
    found, _ = bounds_of(job, tmp_path)
    assert {each.pid for each in found.most.by_rank} == {100, 101}


def test_what_is_seen_to_end_has_no_bounds(tmp_path: Path) -> None:
    found = analyze(TraceReader(trace_of()))
    assert found.of(BOUNDS) is None
    assert found.of(WAITING) is not None


@pytest.mark.slow
def test_bounds_are_the_same_in_pieces(tmp_path: Path) -> None:
    path = hidden(iterations=30).write(tmp_path / "t.netprof")
    whole = analyze(TraceReader(path)).of(BOUNDS)
    size = PieceSize(rows=1_500, at_once=1_500, shortest_ns=1)
    pieces = analyze(TraceReader(path), size=size).of(BOUNDS)
    assert whole is not None
    assert pieces is not None
    assert pieces.least.exposed_ns == pytest.approx(whole.least.exposed_ns, rel=0.05)
    assert pieces.most.exposed_ns == pytest.approx(whole.most.exposed_ns, rel=0.05)
    assert pieces.shares == pytest.approx(whole.shares, rel=1e-3)


@pytest.mark.slow
def test_whatif_refuses_and_says_why(tmp_path: Path) -> None:
    for job in (hidden(), enqueued()):
        path = job.write(tmp_path / f"{len(job.marks)}.netprof")
        with pytest.raises(NetprofError, match="the report bounds what is waited"):
            from_trace(analyze(TraceReader(path)))


def test_a_step_that_was_not_seen_whole_is_left_out(tmp_path: Path) -> None:
    job = hidden()
    torn = START_NS + 4 * ITERATION_NS
    job.wire = [row for row in job.wire if not torn + 60 * MS <= row[2] < torn + 180 * MS]
    found, _ = bounds_of(job, tmp_path)
    assert np.unique(found.steps.pid, return_counts=True)[1].tolist() == [9, 9]
    assert DONE > WIRE_TO
    assert replace(found, reasons={}).is_known


@pytest.mark.slow
def test_a_host_that_never_waits_for_its_gpu_may_be_steps_ahead(tmp_path: Path) -> None:
    job = enqueued(last_share=0.25)
    job.changes["probes_started"] = (StartedProbe("marks:cudart"),)
    found, _ = bounds_of(job, tmp_path)
    assert (found.steps.most_ns > 150 * MS).all(), "nothing is known since the step before"
    assert (found.steps.least_ns >= 15 * MS).all()
    for rank in range(2):
        for step in range(11):
            at = START_NS + step * ITERATION_NS
            job.mark(at + 30 * MS, 100 + rank, K.DEVICE_WAIT)
            job.mark(at + 150 * MS, 100 + rank, K.DEVICE_WAIT_OVER)
    waiting = analyze(TraceReader(job.write(tmp_path / "waiting.netprof"))).of(BOUNDS)
    assert waiting is not None
    assert (waiting.steps.most_ns < 120 * MS).all()


@pytest.mark.slow
def test_the_pace_of_gpus_whose_host_launches_many_steps_at_once_is_the_mean(tmp_path: Path) -> None:
    job = launched_ahead(enqueued())
    analysis = analyze(TraceReader(job.write(tmp_path / "t.netprof")))
    found = analysis.of(ITERATIONS)
    assert found.runs_ahead
    assert found.durations is not None
    assert found.durations.median_s < 0.1 * ITERATION_NS / 1e9
    (note,) = [note for note in analysis.notes if "ahead of its GPUs" in note]
    assert duration(found.durations.mean_s) in note
    assert duration(found.durations.mean_s) in render(analysis)
    assert not analyze(TraceReader(enqueued().write(tmp_path / "kept.netprof"))).of(ITERATIONS).runs_ahead


def test_a_collective_of_gloo_in_each_step_ends_none_of_nccls(tmp_path: Path) -> None:
    """A loss that is averaged over gloo: the gradients' all-reduces are as unseen as before."""
    job = enqueued()
    for rank in range(2):
        for step in range(11):
            at, tid = START_NS + step * ITERATION_NS + 190 * MS, 300 + rank
            job.mark(at, 100 + rank, K.COLLECTIVE_BEGIN, tid=tid)
            job.mark(at + 1, 100 + rank, K.COLLECTIVE_SIZE, 1, 4, tid=tid)
            job.mark(at + MS, 100 + rank, K.COLLECTIVE_END, tid=tid)
    analysis = analyze(TraceReader(job.write(tmp_path / "t.netprof")))
    assert analysis.evidence.only_launch == {100, 101}
    assert analysis.of(WAITING) is None
    bounds = analysis.of(BOUNDS)
    assert bounds is not None
    assert bounds.is_known


def test_what_some_ranks_wait_is_unknown_and_not_nothing(tmp_path: Path) -> None:
    """Ranks 0 and 1 communicate by gloo, 2 and 3 by NCCL."""
    job = Job(ranks=4, world_size=4).fill()
    job.marks = [mark for mark in job.marks if mark[1] in (100, 101)]
    job.marks += [(mark[0], mark[1] + 2, mark[2] + 2, *mark[3:]) for mark in enqueued().marks]
    analysis = analyze(TraceReader(job.write(tmp_path / "t.netprof")))
    assert analysis.evidence.only_launch == {102, 103}
    waiting, verdict = analysis.of(WAITING), analysis.of(VERDICT)
    assert waiting is not None
    assert [rank.rank for rank in waiting.by_rank] == [0, 1]
    assert waiting.exposed_share == pytest.approx((DONE - WAIT) / ITERATION_NS, abs=0.01)
    assert verdict.step is not None
    assert verdict.step.seconds == pytest.approx(ITERATION_NS / 1e9, rel=0.01)


def test_a_job_that_hangs_in_its_gpus_stalls(tmp_path: Path) -> None:
    job = enqueued(iterations=30)
    cut = START_NS + 20 * ITERATION_NS + 60 * MS
    job.marks = [mark for mark in job.marks if mark[0] <= cut]
    job.wire = [row for row in job.wire if row[2] <= cut]
    job.changes["stopped_ns"] = cut + 120_000 * MS
    for rank in range(2):
        job.mark(cut - MS, 100 + rank, K.DEVICE_WAIT)
    analysis = analyze(TraceReader(job.write(tmp_path / "t.netprof")))
    assert {pid: each.in_wait for pid, each in analysis.evidence.unfinished.items()} == {100: True, 101: True}
    assert analysis.of(VERDICT).case is Case.STALLED
