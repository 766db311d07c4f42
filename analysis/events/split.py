"""What each rank computes in an iteration, what is left for the network to cost, and which ranks keep step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from netprof.analysis.events.iterations import IterationTimes
from netprof.analysis.events.typical import middle_half
from netprof.analysis.tables.columns import Int32, Int64, grouped, nearest

Rows = Int32 | Int64
"""Numbers of rows, in the narrower type that holds them: a day has millions."""

_ONE_PACE = 1.05
"""Ranks whose steps last longer than others' by more than this do not wait for them."""


@dataclass(frozen=True)
class Split:
    """A typical iteration of ranks that keep step, and how much of it each process computes, by pid; seconds.

    Compute is all but exposed communication. Means over the same steps of all ranks, `steps` in number; `iteration_s`
    is that of the ranks' own `duration_s`.
    """

    duration_s: Mapping[int, float]
    compute_s: Mapping[int, float]
    steps: int

    @property
    def iteration_s(self) -> float:
        """How long an iteration lasts in the mean of the ranks."""
        return sum(self.duration_s.values()) / len(self.duration_s)

    @property
    def scaling_factor(self) -> float:
        """The largest compute over the iteration: what a network that costs nothing would leave."""
        return max(compute_s / self.duration_s[pid] for pid, compute_s in self.compute_s.items())

    @property
    def straggler_share(self) -> float:
        """How much more than the mean the rank with the largest compute computes, over the iteration."""
        values = tuple(self.compute_s.values())
        return (max(values) - sum(values) / len(values)) / self.iteration_s


def splits_of(iterations: IterationTimes) -> tuple[Split, ...]:
    """Return the split of each set of ranks that keep step, the longest iteration first; of most jobs there is one.

    Each is over the middle half, by duration in the mean of its ranks, of the steps that all of them have. Steps last
    from when all ranks are level to when they are again, where any follows another one.
    """
    if len(iterations) == 0:
        return ()
    rows_by_pid = _rows_by_process(iterations.pid)
    teams = _keeping_step(iterations, rows_by_pid)
    splits = (_split_of(iterations, {pid: rows_by_pid[pid] for pid in team}) for team in teams)
    return tuple(sorted((split for split in splits if split is not None), key=lambda split: -split.iteration_s))


def _keeping_step(iterations: IterationTimes, rows_by_pid: Mapping[int, Rows]) -> list[list[int]]:
    """Return the processes whose steps last equally long, together: who waits for another one cannot be faster than it.

    Ranks that were not recorded at the same time are taken to keep step with the others.
    """
    reference = max(rows_by_pid.values(), key=len)
    paces = sorted((_pace(iterations, rows, reference), pid) for pid, rows in rows_by_pid.items())
    teams = [[paces[0][1]]]
    for (before, _), (pace, pid) in pairwise(paces):
        if pace > before * _ONE_PACE:
            teams.append([])
        teams[-1].append(pid)
    return teams


def _pace(iterations: IterationTimes, rows: Rows, reference: Rows) -> float:
    """Return how long a process's steps last, over those of another one at the same time."""
    same = _same_steps(iterations, rows, reference)
    both = np.flatnonzero(same >= 0)
    mine, theirs = iterations.level_ns[same[both]], iterations.level_ns[reference[both]]
    known = (mine > 0) & (theirs > 0)
    mine_ns, their_ns = (int(steps[known].sum(dtype=np.int64)) for steps in (mine, theirs))
    apart = 2 * abs(mine_ns - their_ns) * int(known.sum()) > their_ns  # half a step: those that keep step never are
    return mine_ns / their_ns if apart else 1.0


def _split_of(iterations: IterationTimes, rows_by_pid: Mapping[int, Rows]) -> Split | None:
    reference = max(rows_by_pid.values(), key=len)
    same = {pid: _same_steps(iterations, rows, reference) for pid, rows in rows_by_pid.items()}
    common = np.logical_and.reduce([rows >= 0 for rows in same.values()])
    known = np.logical_and.reduce([iterations.level_ns[rows] > 0 for rows in same.values()])
    if not common.any():  # ranks that were not recorded at the same time
        rows_of = {pid: rows[middle_half(iterations.duration_ns[rows])] for pid, rows in rows_by_pid.items()}
        return _mean(iterations.duration_ns, iterations.exposed_phase_ns, rows_of)
    if not (common & known).any():
        return _over(iterations.duration_ns, iterations.exposed_phase_ns, np.flatnonzero(common), same)
    return _over(iterations.level_ns, iterations.level_exposed_ns, np.flatnonzero(common & known), same)


def _rows_by_process(pid: Int64) -> dict[int, Rows]:
    """Return the rows of each process, ascending; in one pass, since a large job has thousands."""
    narrow = np.int32 if len(pid) <= np.iinfo(np.int32).max else np.int64
    return {int(pid[rows[0]]): rows.astype(narrow) for rows in grouped(pid)}


def _same_steps(iterations: IterationTimes, rows: Rows, reference: Rows) -> Rows:
    """Return which of `rows` is the same step as each row in `reference`, -1 for none: ranks wait for each other.

    They are level less than half an iteration apart.
    """
    mine, wanted = (
        iterations.begin_ns[steps].astype(np.int64) + iterations.level_after_ns[steps] for steps in (rows, reference)
    )
    index = nearest(mine, wanted)
    close = np.abs(mine[index] - wanted) * 2 < iterations.duration_ns[reference]
    return np.where(close, rows[index], -1)


def _over(duration_ns: Int64, exposed_ns: Int64, steps: Int64, same: Mapping[int, Rows]) -> Split | None:
    total_ns = np.zeros(len(steps), np.int64)
    for rows in same.values():
        total_ns += duration_ns[rows[steps]]
    steps = steps[middle_half(total_ns)]
    return _mean(duration_ns, exposed_ns, {pid: rows[steps] for pid, rows in same.items()})


def _mean(duration_ns: Int64, exposed_ns: Int64, chosen: Mapping[int, Rows]) -> Split | None:
    duration_s = {pid: float(duration_ns[rows].mean()) / 1e9 for pid, rows in chosen.items()}
    compute_s = {pid: duration_s[pid] - float(exposed_ns[rows].mean()) / 1e9 for pid, rows in chosen.items()}
    steps = max(len(rows) for rows in chosen.values())
    return Split(duration_s, compute_s, steps) if min(duration_s.values()) > 0 else None
