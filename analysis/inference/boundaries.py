"""From the amount that an iteration moves to the instants at which iterations begin."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from netprof.analysis.columns import Bool, Columns, Float64, Int64
from netprof.analysis.inference.onsets import Onsets
from netprof.analysis.inference.recurrence import Recurrence

MOST_EQUAL_BUCKETS = 8
"""Equal bursts of which one iteration may consist. More bursts between longer pauses are taken for iterations."""
_LONGER = 1.5  # the silence between iterations is at least so many times the one between their equal buckets
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
    """Return the boundaries, at the phase with the longest silences: where a job computes and nothing is in flight."""
    moved = onsets.moved.tolist()
    anchor = _anchor(onsets, recurrence)
    ahead = _walk(moved, anchor, recurrence.amount)
    mirrored = [-value for value in reversed(moved)]
    behind = _walk(mirrored, len(moved) - 1 - anchor, recurrence.amount)
    last = len(moved) - 1
    before = [(last - row if row >= 0 else -1, -at) for row, at, _ in reversed(behind)]
    # walking backwards, a mark says that the iteration *after* the boundary is whole: shift it by one
    joined = [follows for _, _, follows in reversed(behind)][:-1]
    rows = [row for row, _ in before] + [row for row, _, _ in ahead[1:]]
    at = [value for _, value in before] + [value for _, value, _ in ahead[1:]]
    follows = [False, *joined, *(flag for _, _, flag in ahead[1:])]
    return Boundaries(np.array(rows, np.int64), np.array(at, np.float64), np.array(follows, bool))


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
    count = len(silence_ns)
    level = np.log(np.maximum(silence_ns, 1).astype(np.float64))
    level = np.clip(level, *np.percentile(level, [1, 99])) if count else level
    level = level - level.mean() if count else level
    power = float((level * level).mean()) if count else 0.0
    if power == 0 or count < 4 * MOST_EQUAL_BUCKETS:
        return 1, 1.0
    lags = range(1, 2 * MOST_EQUAL_BUCKETS + 1)
    alike = {lag: float((level[:-lag] * level[lag:]).mean()) / power for lag in lags}
    noise = 2 / np.sqrt(count)
    best = max(alike[lag] for lag in range(2, MOST_EQUAL_BUCKETS + 1))
    for k in range(2, MOST_EQUAL_BUCKETS + 1):
        others = [value for lag, value in alike.items() if lag % k]
        contrast = alike[k] - max(0.0, float(np.mean(others)))
        if alike[k] >= best - noise and contrast > max(0.25, 2 * noise) and _longest_stands_out(silence_ns, k):
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
    label = np.array(chain)
    order = np.argsort(label, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
    return int(max(groups, key=lambda rows: len(rows) * float(np.median(silence[rows])))[0])


def _walk(moved: list[float], start: int, amount: float) -> list[tuple[int, float, bool]]:
    """Go from onset to onset an amount apart; (row or -1, moved, whether an iteration lies before) of each boundary."""
    path = [(start, moved[start], False)]
    at, missed = moved[start], 0
    while at + amount <= moved[-1] + _REACH * amount:
        row = _nearest(moved, at + amount)
        if abs(moved[row] - at - amount) <= _REACH * amount:
            at, missed = moved[row], 0
            path.append((row, at, True))
            continue
        at, missed = at + amount, missed + 1
        path.append((-1, at, True))
        if missed > _MOST_MISSED:
            del path[-missed:]
            again = _resume(moved, path[-1][1], amount)
            if again is None:
                return path
            at, missed = moved[again], 0
            path.append((again, at, False))
    while path[-1][0] < 0:
        path.pop()
    return path


def _resume(moved: list[float], after: float, amount: float) -> int | None:
    """Return the first onset after `after` from which two iterations in a row follow."""
    for row in range(bisect_left(moved, after) + 1, len(moved)):
        at = moved[row]
        for step in (1, 2):
            near = _nearest(moved, at + amount)
            if abs(moved[near] - at - amount) > _REACH * amount / step:
                break
            at = moved[near]
        else:
            return row
    return None


def _nearest(moved: list[float], target: float) -> int:
    right = min(bisect_left(moved, target), len(moved) - 1)
    left = max(right - 1, 0)
    return left if target - moved[left] < moved[right] - target else right
