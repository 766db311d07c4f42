"""Jobs whose ranks ended and were started again within one recording, as under torchrun --max-restarts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.synthetic import FORWARD, ITERATION_NS, MS, START_NS, WAIT, Job, K

from netprof.analysis import analyze
from netprof.analysis.account.causes import LOSS, UNSEEN
from netprof.analysis.events.exits import Exit, went_on
from netprof.analysis.findings.stalls.exits import EXITS, Ended, ExitsFinding, Stop
from netprof.analysis.findings.stalls.hang import HANG
from netprof.analysis.findings.stalls.stall import STALL
from netprof.analysis.findings.stragglers.doing import Spent
from netprof.analysis.findings.stragglers.stragglers import STRAGGLERS
from netprof.analysis.findings.stragglers.thread_time import COMPUTING, THREAD_TIME
from netprof.analysis.findings.verdict.grounds import Case
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.findings.waiting.open_waits import open_waits
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.form import Pairs
from netprof.analysis.section import Analysis
from netprof.model import Target
from netprof.schema import BlockedIn
from netprof.trace import TraceReader

HALF = 10
"""Whole steps of each run."""
SECOND = START_NS + (HALF + 2) * ITERATION_NS
"""When the second run begins."""
STATUS = 1 << 32


def restarted(signal: int, steps: int = HALF) -> Job:
    """Ranks 0 and 1 train as processes 100 and 101, are killed, and train on as 102 and 103."""
    job = Job(iterations=2 * HALF + 4, ranks=4, world_size=2)
    for rank in range(4):
        for step in range(HALF + 1 if rank < 2 else steps + 1):
            job.step(rank, START_NS + (step + rank // 2 * (HALF + 2)) * ITERATION_NS)
    end = START_NS + (HALF + 1) * ITERATION_NS
    job.mark(end - 5 * MS, 100, K.PROCESS_EXIT, STATUS | signal)
    job.mark(end - 4 * MS, 101, K.PROCESS_EXIT, STATUS | 15)
    job.changes["targets"] = tuple(
        Target(100 + place, 5, "python train.py", 7, place % 2, 2, ("ddp", "gloo")) for place in range(4)
    )
    job.flow_changes = job.flows() | {
        "rank": [0, 1, 0, 1],
        "remote_addr": ["10.0.0.2", "10.0.0.1", "10.0.0.4", "10.0.0.3"],
        "remote_port": [40_001, 40_000, 40_003, 40_002],
    }
    return job


def hung(job: Job, step: int, *, rank_1: bool = False) -> Job:
    """Let the second run stand still in a step: both ranks wait, or rank 0 waits for rank 1."""
    cut = SECOND + step * ITERATION_NS + WAIT + MS
    job.marks = [m for m in job.marks if m[1] < 102 or m[0] <= (cut - 5 * MS if rank_1 and m[1] == 103 else cut)]
    job.wire = [w for w in job.wire if w[0] < 3 or w[2] <= cut]
    job.changes["stopped_ns"] = cut + 30_000 * MS
    return job


def analysis_of(job: Job, folder: Path) -> Analysis:
    return analyze(TraceReader(job.write(folder / "t.netprof")))


def test_a_rank_that_was_killed_before_a_restart_is_no_stall(tmp_path: Path) -> None:
    found = analysis_of(restarted(signal=9), tmp_path).of(VERDICT)
    assert found.case is not Case.STALLED
    assert "killed" not in found.text


def test_a_rank_that_was_killed_and_not_started_again_is_a_stall(tmp_path: Path) -> None:
    job = restarted(signal=9)
    job.marks = [m for m in job.marks if m[1] < 102]
    found = analysis_of(job, tmp_path).of(VERDICT)
    assert found.case is Case.STALLED
    assert "SIGKILL" in found.headline


@pytest.mark.parametrize(
    ("steps_after", "is_new", "goes_on"), [(0, False, False), (4, False, False), (5, False, True), (1, True, True)]
)
def test_a_host_launches_a_few_steps_ahead_of_a_rank_that_is_gone(
    steps_after: int, is_new: bool, goes_on: bool
) -> None:
    step_ns = np.concatenate(([] if is_new else np.arange(10), 100 + np.arange(steps_after))).astype(np.int64)
    assert went_on(50, np.full(len(step_ns), 7), step_ns) is goes_on


def test_a_restart_that_hangs_in_its_first_step_has_lost_no_packet(tmp_path: Path) -> None:
    evidence = analysis_of(hung(restarted(signal=15, steps=0), 0), tmp_path).evidence
    found = open_waits(evidence)
    assert found is not None
    assert set(found.waited_ns) == {102, 103}
    assert found.cause is UNSEEN
    assert found.cause is not LOSS


def test_a_later_stall_is_not_blamed_on_those_that_ended_before(tmp_path: Path) -> None:
    stall = analysis_of(hung(restarted(signal=15), 6, rank_1=True), tmp_path).of(STALL)
    assert stall is not None
    assert (stall.waiting, stall.absent, stall.gone, stall.exits) == ((102,), (103,), (), ())


def test_savings_are_of_both_runs(tmp_path: Path) -> None:
    one = Job(iterations=HALF).fill()
    once = analyze(TraceReader(one.write(tmp_path / "one.netprof"))).of(WAITING)
    twice = analysis_of(restarted(signal=15), tmp_path).of(WAITING)
    assert once is not None
    assert twice is not None
    assert len(twice.made_of.by_iteration_ns) == 2 * HALF
    saves = {each.cause: each.saves_s for each in twice.causes}
    assert {each.cause: pytest.approx(2 * each.saves_s) for each in once.causes} == saves


def test_a_process_that_ended_rests_for_no_longer_than_it_trained(tmp_path: Path) -> None:
    """What others do more of than the median is not compared with the dead."""
    stragglers = analysis_of(restarted(signal=15), tmp_path).of(STRAGGLERS)
    assert stragglers is not None
    rest_ns = stragglers.made_of.times.of(100)[Spent.REST]
    assert np.isfinite(rest_ns[:HALF]).all()
    assert np.isnan(rest_ns[HALF:]).all()


def test_a_process_computes_neither_before_it_begins_nor_after_it_ends(tmp_path: Path) -> None:
    """All of them sleep from begin to end."""
    job = restarted(signal=15)
    ends = (START_NS + (HALF + 1) * ITERATION_NS, SECOND + (HALF + 1) * ITERATION_NS)
    job.changes["stopped_ns"] = ends[1]
    lengths = [ends[0] - START_NS - FORWARD, ends[1] - SECOND]
    runs = [(place, run) for run in range(2) for place in range(2)]
    job.extra["blocked"] = {
        "time_ns": [ends[run] for _, run in runs],
        "pid": [100 + place + 2 * run for place, run in runs],
        "tid": [100 + place + 2 * run for place, run in runs],
        "kind": [int(BlockedIn.SLEEP)] * 4,
        "period_ns": [lengths[run] for _, run in runs],
    }
    found = analysis_of(job, tmp_path).of(THREAD_TIME)
    assert found is not None
    for rank in found.ranks:
        assert sum(rank.parts_ns.values()) == rank.span_ns
        assert rank.parts_ns[COMPUTING] < 0.02 * rank.span_ns


def test_a_rank_that_is_dead_does_not_compute(tmp_path: Path) -> None:
    job = Job(iterations=1)
    for rank in range(2):
        job.step(rank, START_NS)
    cut = START_NS + 150 * MS
    job.marks = [mark for mark in job.marks if mark[0] <= cut]
    job.mark(cut + 100 * MS, 101, K.PROCESS_EXIT, STATUS | 1 << 8)
    stop = START_NS + 20_000 * MS
    job.changes["stopped_ns"] = stop
    job.extra["blocked"] = {
        "time_ns": [stop, cut],
        "pid": [100, 101],
        "tid": [100, 101],
        "kind": [int(BlockedIn.SOCKET)] * 2,
        "period_ns": [stop - cut, 50 * MS],
    }
    hang = analysis_of(job, tmp_path).of(HANG)
    assert hang is not None
    assert "rank 1 exited with code 1; rank 0 waits" in hang.sentence
    assert "log of rank 1" in hang.advice


def test_what_ended_after_midnight_is_told_after_what_was_stopped_before() -> None:
    ended = Ended(Exit(100, 2 * 10**9, 9, None), 0, "00:00:01", "rank 0")
    stop = Stop(101, 1, 10**9, 10**9, "23:59:59", "rank 1")
    (part,) = EXITS.parts(ExitsFinding((ended,), (stop,)))
    (pairs,) = part.bodies
    assert isinstance(pairs, Pairs)
    assert [at for at, _ in pairs.rows] == ["23:59:59", "00:00:01"]
