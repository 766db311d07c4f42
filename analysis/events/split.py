"""What each rank computes in an iteration, and what is left of it for the network to cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.iterations import IterationTimes
from netprof.analysis.events.typical import middle_half
from netprof.analysis.tables.columns import Int32, Int64

Rows = Int32 | Int64
"""Numbers of rows, in the narrower type that holds them: a day has millions."""


@dataclass(frozen=True)
class Split:
    """A typical iteration, and how much of it each process computes, by pid: all but exposed communication; seconds.

    Means over the same steps of all ranks, `steps` in number.
    """

    iteration_s: float
    compute_s: Mapping[int, float]
    steps: int

    @property
    def scaling_factor(self) -> float:
        """The largest compute over the iteration: what a network that costs nothing would leave."""
        return max(self.compute_s.values()) / self.iteration_s

    @property
    def straggler_share(self) -> float:
        """How much more than the mean the rank with the largest compute computes, over the iteration."""
        values = tuple(self.compute_s.values())
        return (max(values) - sum(values) / len(values)) / self.iteration_s


def split_of(iterations: IterationTimes) -> Split | None:
    """Return the split over the middle half, by duration in the mean of the ranks, of the steps that all ranks have.

    None without any.

    Steps last from when all ranks are level to when they are again, where any follows another one.
    """
    if len(iterations) == 0:
        return None
    own = _rows_by_process(iterations.pid)
    reference = max(own.values(), key=len)
    same = {pid: _same_steps(iterations, rows, reference) for pid, rows in own.items()}
    common = np.logical_and.reduce([found >= 0 for found in same.values()])
    known = np.logical_and.reduce([iterations.level_ns[found] > 0 for found in same.values()])
    if not common.any():  # ranks that were not recorded at the same time
        rows_of = {pid: rows[middle_half(iterations.duration_ns[rows])] for pid, rows in own.items()}
        return _mean(iterations.duration_ns, iterations.exposed_phase_ns, rows_of)
    if not (common & known).any():
        return _over(iterations.duration_ns, iterations.exposed_phase_ns, np.flatnonzero(common), same)
    return _over(iterations.level_ns, iterations.level_exposed_ns, np.flatnonzero(common & known), same)


def _rows_by_process(pid: Int64) -> dict[int, Rows]:
    """Return the rows of each process, ascending; in one pass, since a large job has thousands."""
    order = _narrow(np.argsort(pid, kind="stable"))
    ascending = pid[order]
    first = np.append(0, np.flatnonzero(ascending[1:] != ascending[:-1]) + 1)
    return dict(zip(ascending[first].tolist(), np.split(order, first[1:]), strict=True))


def _narrow(rows: Int64) -> Rows:
    return rows.astype(np.int32) if len(rows) <= np.iinfo(np.int32).max else rows


def _same_steps(iterations: IterationTimes, own: Rows, reference: Rows) -> Rows:
    """Return the row in `own` that is the same step as each row in `reference`, -1 for none: ranks wait for each other.

    They are level less than half an iteration apart.
    """
    mine, wanted = (
        iterations.begin_ns[rows].astype(np.int64) + iterations.level_after_ns[rows] for rows in (own, reference)
    )
    right = np.minimum(np.searchsorted(mine, wanted), len(own) - 1)
    left = np.maximum(right - 1, 0)
    before, after = np.abs(mine[left] - wanted), np.abs(mine[right] - wanted)
    nearest = np.where(before < after, left, right)
    close = np.minimum(before, after) * 2 < iterations.duration_ns[reference]
    return np.where(close, own[nearest], -1)


def _over(duration_ns: Int64, exposed_ns: Int64, steps: Int64, same: Mapping[int, Rows]) -> Split | None:
    total_ns = np.zeros(len(steps), np.int64)
    for found in same.values():
        total_ns += duration_ns[found[steps]]
    steps = steps[middle_half(total_ns)]
    return _mean(duration_ns, exposed_ns, {pid: found[steps] for pid, found in same.items()})


def _mean(duration_ns: Int64, exposed_ns: Int64, chosen: Mapping[int, Rows]) -> Split | None:
    duration = {pid: float(duration_ns[rows].mean()) for pid, rows in chosen.items()}
    exposed = {pid: float(exposed_ns[rows].mean()) for pid, rows in chosen.items()}
    iteration_ns = sum(duration.values()) / len(duration)
    compute_s = {pid: (duration[pid] - exposed[pid]) / 1e9 for pid in chosen}
    steps = max(len(rows) for rows in chosen.values())
    return Split(iteration_ns / 1e9, compute_s, steps) if iteration_ns > 0 else None
