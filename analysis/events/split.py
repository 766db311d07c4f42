"""What each rank computes in an iteration, and what is left of it for the network to cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.iterations import IterationTimes
from netprof.analysis.events.typical import middle_half
from netprof.analysis.tables.columns import Int64


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
    """Return the split over the middle half, by duration, of the steps that all ranks have; None without any."""
    if len(iterations) == 0:
        return None
    own = {pid: iterations.where(iterations.pid == pid) for pid in np.unique(iterations.pid).tolist()}
    reference = max(own.values(), key=len)
    rows = {pid: _same_steps(each, reference) for pid, each in own.items()}
    common = np.logical_and.reduce([found >= 0 for found in rows.values()])
    if not common.any():  # ranks that were not recorded at the same time
        return _mean({pid: each.where(middle_half(each.duration_ns)) for pid, each in own.items()})
    steps = np.flatnonzero(common)
    steps = steps[middle_half(reference.duration_ns[steps])]
    return _mean({pid: own[pid].where(found[steps]) for pid, found in rows.items()})


def _same_steps(own: IterationTimes, reference: IterationTimes) -> Int64:
    """Return the row of `own` that is the same step as each of `reference`, -1 for none: ranks wait for each other.

    It begins less than half an iteration apart.
    """
    right = np.minimum(np.searchsorted(own.begin_ns, reference.begin_ns), len(own) - 1)
    left = np.maximum(right - 1, 0)
    apart = np.abs(own.begin_ns[np.stack((left, right))] - reference.begin_ns)
    nearest = np.where(apart[0] < apart[1], left, right)
    return np.where(apart.min(axis=0) * 2 < reference.duration_ns, nearest, -1)


def _mean(chosen: Mapping[int, IterationTimes]) -> Split | None:
    iteration_ns = float(np.mean([each.duration_ns.mean() for each in chosen.values()]))
    compute_s = {pid: float((each.duration_ns - each.exposed_phase_ns).mean()) / 1e9 for pid, each in chosen.items()}
    steps = max(len(each) for each in chosen.values())
    return Split(iteration_ns / 1e9, compute_s, steps) if iteration_ns > 0 else None
