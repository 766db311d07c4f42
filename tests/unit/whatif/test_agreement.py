"""The replay returns what was recorded, and never contradicts the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.sharded import Sharded
from support.synthetic import ITERATION_NS, MS, Job, K

from netprof.analysis import Analysis, analyze
from netprof.analysis.findings.collectives.scaling import SCALING
from netprof.analysis.whatif.ask import Question, ask
from netprof.analysis.whatif.from_trace import from_trace
from netprof.analysis.whatif.points import one
from netprof.analysis.whatif.prices import Pricing, RankLinks
from netprof.analysis.whatif.replay import replay
from netprof.analysis.whatif.transports import FullLink
from netprof.trace import TraceReader


@dataclass
class SmallBuckets(Job):
    """Twenty buckets an iteration, two at a time, that end before, in and after the backward pass."""

    def step(self, rank: int, at: int) -> None:
        pid, autograd = 100 + rank, 200 + rank
        self.mark(at, pid, K.DDP_FORWARD)
        self.mark(at + 20 * MS, pid, K.DDP_BACKWARD)
        ends = [0, 0]
        for number in range(20):
            launch = at + (22 + number) * MS
            worker = number % 2
            begin = max(launch, ends[worker])
            ends[worker] = begin + (3 + number % 3) * MS
            self.mark(launch, pid, K.BUCKET_LAUNCH, 1000 + number, tid=autograd)
            self.mark(launch, pid, K.COLLECTIVE_ENQUEUE, 2000 + number, tid=autograd)
            self.mark(begin, pid, K.COLLECTIVE_BEGIN, 2000 + number, tid=300 + 10 * rank + worker)
            self.mark(begin + 1, pid, K.COLLECTIVE_SIZE, 50_000, 4, tid=300 + 10 * rank + worker)
            self.mark(ends[worker], pid, K.COLLECTIVE_END, 2000 + number, tid=300 + 10 * rank + worker)
            self.mark(max(ends[worker], at + 42 * MS) + 1000, pid, K.BUCKET_DONE, 1000 + number, tid=autograd)
        self.mark(at + 42 * MS, pid, K.DDP_WAIT, tid=autograd)
        for stats in (19 * MS, 41 * MS, max(ends) - at + MS, ITERATION_NS - 1000):
            self.mark(at + stats, pid, K.DDP_STATS, tid=autograd)


@dataclass
class LateRank(Job):
    """DDP, and rank 1 computes 40 ms longer before its backward pass; rank 0 waits for it."""

    def step(self, rank: int, at: int) -> None:
        super().step(rank, at)
        if rank == 0:
            return
        early = (K.DDP_BACKWARD, K.BUCKET_LAUNCH, K.DDP_WAIT)
        shifted = [m[0] + (40 * MS if m[1] == 101 and m[3] in early and m[0] >= at else 0) for m in self.marks]
        self.marks = [(time, *m[1:]) for time, m in zip(shifted, self.marks, strict=True)]


def uneven() -> Sharded:
    return Sharded(iterations=60, jitter_ms=(0, 8, 2, 6, 4, 3, 5, 1, 7, 2))


JOBS: dict[str, Callable[[], Job]] = {
    "ddp": Job,
    "small buckets": SmallBuckets,
    "late rank": LateRank,
    "sharded": Sharded,
    "sharded, a late rank": lambda: Sharded(late_ms=(0, 45)),
    "uneven": uneven,
    "three ranks": lambda: Sharded(ranks=3, world_size=3, late_ms=(0, 10, 25)),
}


def analysed(name: str, path: Path) -> Analysis:
    return analyze(TraceReader(JOBS[name]().fill().write(path / "t.netprof")))


@pytest.mark.parametrize("name", JOBS)
def test_each_rank_waits_as_long_as_it_was_recorded_to(tmp_path: Path, name: str) -> None:
    analysis = analysed(name, tmp_path)
    recording = from_trace(analysis).recorded
    assert recording is not None
    links = RankLinks.alike(len(recording.pids), 1e9)
    pricing = Pricing(FullLink(), links, len(recording.pids), True, {})
    here = one(len(recording.pids), 1e9)
    waiting = [
        replay(program, pricing.of(program, here, as_recorded=True), 1)[:, :, 0] for program in recording.programs
    ]
    replayed = np.concatenate(waiting, axis=1).mean(axis=1)
    assert replayed == pytest.approx(recording.exposed_s, rel=0.01)
    table = analysis.evidence.iterations
    for row, pid in enumerate(recording.pids):
        own = table.where(table.pid == pid)
        assert recording.exposed_s[row] == pytest.approx(float(np.mean(own.exposed_phase_ns)) * 1e-9, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_report_and_what_if_give_one_scaling_factor(tmp_path: Path, name: str) -> None:
    analysis = analysed(name, tmp_path)
    report = analysis.of(SCALING)
    found = from_trace(analysis, line_rate_bps=1e9)
    assert found.observed is not None
    answer = ask(found, Question((found.observed.workers,), (1e9,), (1.0,), "observed", "measured"))
    assert report is not None
    assert answer.sweep.scaling_factor[0] == pytest.approx(report.factor, rel=0.01)
    assert answer.measured_model_s == pytest.approx(found.observed.iteration_s, rel=0.01)
