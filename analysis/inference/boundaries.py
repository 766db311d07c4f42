"""From the amount that an iteration moves to the instants at which iterations begin."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from netprof.analysis.inference.onsets import Onsets
from netprof.analysis.inference.recurrence import Recurrence
from netprof.analysis.tables.columns import Bool, Columns, Float64, Int64, grouped

MOST_PARTS = 16
"""Equal parts of which buckets may consist by coincidence."""

MOST_EQUAL_BUCKETS = 8
"""Equal bursts of which one iteration may consist. More bursts between longer pauses are taken for iterations."""
_LONGER = 1.5  # the silence between iterations is at least so many times the one between their equal buckets
_NO_SPREAD = 1e-6  # silences that differ by less than 0.1 % are the same
_REACH = 0.05  # a boundary is looked for within this share of an iteration's amount
_MOST_MISSED = 3  # boundaries in a row without a silence, after which the job is taken to do something else
_LEARN_FROM = 8192  # onsets that the phase is learnt from, at most


@dataclass(frozen=True, eq=False)
class Boundaries(Columns):
    """Where iterations begin: the row of the onset there, -1 where two iterations touch without a silence.

    `follows` tells whether an iteration ends here that began at the boundary before.
    """

    row: Int64
    moved: Float64
    follows: Bool


def find_boundaries(onsets: Onsets, recurrence: Recurrence) -> Boundaries:
    """Return the boundaries, at the phase with the longest silences: where a job computes and nothing is in flight.

    They lie at onsets of the recurrence's scale, or, where a jittering silence was too short for that, at any other
    that is as exactly an amount away.
    """
    clear = np.flatnonzero(onsets.silence_ns >= recurrence.silence_ns)
    clear = np.union1d(clear, [0])
    anchor = int(clear[_anchor(onsets.where(clear), recurrence)])
    last = len(onsets) - 1
    ahead = _OnsetWalk(onsets.moved, clear, recurrence).run(anchor)
    behind = _OnsetWalk(-onsets.moved[::-1], last - clear[::-1], recurrence).run(last - anchor)
    behind = [(last - row if row >= 0 else -1, -at, follows) for row, at, follows in reversed(behind)]
    # walking backwards, a step says that the iteration after the boundary is whole: shift it by one
    follows = [False, *(flag for _, _, flag in behind[:-1]), *(flag for _, _, flag in ahead[1:])]
    path = [*behind, *ahead[1:]]
    row, moved = np.array([row for row, _, _ in path], np.int64), np.array([at for _, at, _ in path], np.float64)
    return Boundaries(row, moved, np.array(follows, bool))


def silences_before(onsets: Onsets, boundaries: Boundaries) -> Int64:
    """Return the silence before each boundary, ns; 0 where there is none."""
    return np.where(boundaries.row >= 0, onsets.silence_ns[boundaries.row], 0)


def every(k: int, boundaries: Boundaries, silence_ns: Int64) -> Boundaries:
    """Return every k-th boundary, at the phase with the longest silences; anew after each interruption."""
    if k == 1:
        return boundaries
    first = np.flatnonzero(~boundaries.follows)
    rows, follows = [], []
    for begin, end in zip(first, [*first[1:], len(boundaries)], strict=True):
        phases = range(min(k, end - begin))
        phase = max(phases, key=lambda start: float(np.median(silence_ns[begin + start : end : k])))
        chosen = np.arange(begin + phase, end, k)
        rows.append(chosen)
        follows.append(chosen > chosen[0])
    row = np.concatenate(rows)
    return Boundaries(boundaries.row[row], boundaries.moved[row], np.concatenate(follows))


def bursts_per_iteration(silence_ns: Int64) -> tuple[int, float]:
    """Return how many equal bursts make an iteration, and how surely (0 to 1), from the silences before them.

    With k equal buckets every k-th silence is the long one. That is so if the logarithms of the silences correlate
    with those k later, clearly more than with any others, and the long ones are _LONGER times the others.
    """
    return _repeats_every(silence_ns, MOST_EQUAL_BUCKETS, lambda k: _longest_stands_out(silence_ns, k))


def parts_per_iteration(duration_ns: Int64) -> tuple[int, float]:
    """Return how many of the parts that move the same make an iteration, and how surely, from their durations.

    Buckets may add up to equal parts of an iteration by coincidence. What each part takes then differs, and recurs.
    """
    k, sure = _repeats_every(duration_ns, MOST_PARTS, lambda k: True)
    return k, sure if k > 1 else 1.0


def _repeats_every(times_ns: Int64, most: int, accept: Callable[[int], bool]) -> tuple[int, float]:
    """Return after how many of them times recur, 1 if they do not, and how surely."""
    count = len(times_ns)
    level = np.log(np.maximum(times_ns, 1).astype(np.float64))
    level = np.clip(level, *np.percentile(level, [1, 99])) if count else level
    level = level - level.mean() if count else level
    power = float((level * level).mean()) if count else 0.0
    if power < _NO_SPREAD or count < 4 * most:
        return 1, 1.0
    lags = range(1, 2 * most + 1)
    alike = {lag: float((level[:-lag] * level[lag:]).mean()) / power for lag in lags}
    noise = 2 / np.sqrt(count)
    best = max(alike[lag] for lag in range(2, most + 1))
    for k in range(2, most + 1):
        others = [value for lag, value in alike.items() if lag % k]
        contrast = alike[k] - max(0.0, float(np.mean(others)))
        if alike[k] >= best - noise and contrast > max(0.25, 2 * noise) and accept(k):
            return k, float(np.clip(contrast / 0.5, 0.0, 1.0))
    return 1, float(np.clip(1 - (best - noise), 0.0, 1.0))


def _longest_stands_out(silence_ns: Int64, k: int) -> bool:
    middle = sorted(float(np.median(silence_ns[phase::k])) for phase in range(k))
    return middle[-1] >= _LONGER * max(middle[-2], 1.0)


def _anchor(onsets: Onsets, recurrence: Recurrence) -> int:
    """Return an onset at the phase of the boundaries: on the chain of recurrences with the longest silences."""
    count = min(len(onsets), _LEARN_FROM)
    moved, silence = onsets.moved[:count], onsets.silence_ns[:count]
    following = np.searchsorted(moved, moved + recurrence.amount * (1 - recurrence.tolerance))
    index = np.minimum(following, count - 1)
    linked = (following < count) & (moved[index] - moved <= recurrence.amount * (1 + recurrence.tolerance))
    chain = np.arange(count).tolist()
    for row, (target, ok) in enumerate(zip(index.tolist(), linked.tolist(), strict=True)):
        if ok:
            chain[target] = chain[row]
    return int(max(grouped(np.array(chain)), key=lambda rows: len(rows) * float(np.median(silence[rows])))[0])


class _OnsetWalk:
    """Goes from onset to onset, an amount apart."""

    def __init__(self, moved: Float64, clear: Int64, recurrence: Recurrence) -> None:
        self.moved: list[float] = moved.tolist()
        self.rows: list[int] = clear.tolist()
        self.clear: list[float] = moved[clear].tolist()
        self.amount = recurrence.amount
        self.exactly = 2 * recurrence.tolerance * recurrence.amount

    def run(self, start: int) -> list[tuple[int, float, bool]]:
        """Return (row or -1, moved, whether an iteration lies before it) of each boundary from the onset `start`."""
        path = [(start, self.moved[start], False)]
        at, missed = self.moved[start], 0
        while at + self.amount <= self.moved[-1] + self.exactly:
            row = self.find(at + self.amount)
            missed = missed + 1 if row < 0 else 0
            at = self.moved[row] if row >= 0 else at + self.amount
            path.append((row, at, True))
            if missed > _MOST_MISSED:
                del path[-missed:]
                row = self.resume(path[-1][1])
                if row < 0:
                    break
                at, missed = self.moved[row], 0
                path.append((row, at, False))
        while path[-1][0] < 0:
            path.pop()
        return path

    def find(self, target: float) -> int:
        """Return the onset at `target`, -1 if there is none."""
        near = _nearest(self.clear, target)
        if abs(self.clear[near] - target) <= _REACH * self.amount:
            return self.rows[near]
        near = _nearest(self.moved, target)
        return near if abs(self.moved[near] - target) <= self.exactly else -1

    def resume(self, after: float) -> int:
        """Return the first clear onset after `after` from which two iterations in a row follow, -1 without any."""
        for index in range(bisect_left(self.clear, after) + 1, len(self.clear)):
            first = self.find(self.clear[index] + self.amount)
            if first >= 0 and self.find(self.moved[first] + self.amount) >= 0:
                return self.rows[index]
        return -1


def _nearest(moved: list[float], target: float) -> int:
    right = min(bisect_left(moved, target), len(moved) - 1)
    left = max(right - 1, 0)
    return left if target - moved[left] < moved[right] - target else right
