"""Traces of a made-up job without DDP: its ranks gather, compute and scatter, and wait for each collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from netprof.schema import CollectiveKind
from support.synthetic import MS, START_NS, Job, K

GATHER, SCATTER, REDUCE = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_REDUCE
MEGABYTE_MS = 8.0  # at 1 Gbit/s, where a rank sends as much as the buffer has: an all-reduce among two
LATENCY_MS = 0.5


@dataclass
class Sharded(Job):
    """Ranks that gather, compute, scatter, one collective at a time, and wait for each; no DDP.

    `plan`: computing before, kind, megabytes; `late_ms` is what each rank computes more at its iteration's end.
    """

    plan: Sequence[tuple[int, CollectiveKind, int]] = (
        (5, GATHER, 2),
        (10, GATHER, 4),
        (10, SCATTER, 4),
        (5, REDUCE, 1),
    )
    late_ms: Sequence[int] = (0, 0)
    jitter_ms: Sequence[int] = (0,)
    truth_ns: list[list[int]] = field(default_factory=list)  # begins of iterations, by rank

    def fill(self) -> Sharded:
        now = [START_NS] * self.ranks
        self.truth_ns = [[] for _ in now]
        for step in range(self.iterations + 1):
            now = self._step(step, now)
        return self

    def _step(self, step: int, now: list[int]) -> list[int]:
        for rank, at in enumerate(now):
            self.truth_ns[rank].append(at)
            self.mark(at, 100 + rank, K.BACKWARD)
        for number, (compute, kind, megabytes) in enumerate(self.plan):
            posted = [at + compute * MS for at in now]
            wire = megabytes * MEGABYTE_MS * (1.0 if kind == REDUCE else 0.5) * (1e9 / (self.rate_bps or 1e9))
            done = max(posted) + round((wire + LATENCY_MS) * MS)
            for rank, at in enumerate(posted):
                self._collective(rank, number, kind, megabytes, at, done)
                for bin_start in range(max(posted), done, MS):
                    share = min(MS, done - bin_start) / (done - max(posted))
                    self.wire += [
                        (rank + 1, way, bin_start, 0, round(wire / MEGABYTE_MS * 1e6 * share)) for way in (0, 1)
                    ]
            now = [done] * self.ranks
        jitter = self.jitter_ms[step % len(self.jitter_ms)]
        for rank, at in enumerate(now):
            self.mark(at + MS, 100 + rank, K.OPTIMIZER_STEP)
        return [at + (20 + late + jitter) * MS for at, late in zip(now, self.late_ms, strict=True)]

    def _collective(self, rank: int, number: int, kind: int, megabytes: int, at: int, done: int) -> None:
        pid, worker, work = 100 + rank, 300 + 10 * rank, 0x1000 + number
        self.mark(at, pid, K.COLLECTIVE_ENQUEUE, work)
        self.mark(at + 1, pid, K.WORK_WAIT, work)
        self.mark(at + 2, pid, K.COLLECTIVE_BEGIN, work, tid=worker)
        self.marks.append((at + 3, pid, worker, int(K.COLLECTIVE_SIZE), megabytes * 1_000_000, 1, int(kind)))
        self.mark(done, pid, K.COLLECTIVE_END, work, tid=worker)
