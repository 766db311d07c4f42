"""Sets of time as sorted, disjoint, half-open intervals in whole nanoseconds: exact union, difference, length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Int64

_ALWAYS, _NEVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Intervals:
    """A set of instants: the half-open intervals [begin_ns, end_ns), ascending and disjoint."""

    begin_ns: Int64
    end_ns: Int64

    def __len__(self) -> int:
        return len(self.begin_ns)

    @property
    def total_ns(self) -> int:
        """The length of the set."""
        return int((self.end_ns - self.begin_ns).sum())

    def where(self, chosen: Bool) -> Intervals:
        """Return the chosen ones of its intervals."""
        return Intervals(self.begin_ns[chosen], self.end_ns[chosen])

    def __or__(self, other: Intervals) -> Intervals:
        return union([self, other])

    def __and__(self, other: Intervals) -> Intervals:
        return _common(self, other)

    def __sub__(self, other: Intervals) -> Intervals:
        return _common(self, _complement(other)) if len(self) and len(other) else self


NOTHING = Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
"""The empty set."""


def interval(begin_ns: int, end_ns: int) -> Intervals:
    """Return the one interval [begin_ns, end_ns); empty when it ends before it begins."""
    return merge(np.array([begin_ns], np.int64), np.array([end_ns], np.int64))


def merge(begin_ns: Int64, end_ns: Int64) -> Intervals:
    """Return the union of intervals that may overlap and come in any order; those of no length vanish."""
    real = end_ns > begin_ns
    begin, end = (begin_ns, end_ns) if real.all() else (begin_ns[real], end_ns[real])
    if len(begin) == 0:
        return NOTHING
    if (begin[1:] < begin[:-1]).any():
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], end[order]
    reach = np.maximum.accumulate(end)
    opens = np.concatenate(([True], begin[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Intervals(begin[opens], reach[closes])


def union(sets: Sequence[Intervals]) -> Intervals:
    """Return the union of several sets; the empty set for none."""
    some = [each for each in sets if len(each)]
    if len(some) < 2:
        return some[0] if some else NOTHING
    return merge(np.concatenate([s.begin_ns for s in some]), np.concatenate([s.end_ns for s in some]))


def joined(times: Intervals, gap_ns: int) -> Intervals:
    """Return intervals with those joined that lie no further apart than that."""
    if len(times) == 0:
        return NOTHING
    apart = times.begin_ns[1:] - times.end_ns[:-1] > gap_ns
    return Intervals(times.begin_ns[np.append(True, apart)], times.end_ns[np.append(apart, True)])


def at_least(sets: Iterable[Intervals], count: int) -> Intervals:
    """Return the time that is in at least `count` of some sets."""
    given = list(sets)
    at_ns = np.concatenate([np.zeros(0, np.int64), *(edge for each in given for edge in (each.begin_ns, each.end_ns))])
    step = np.concatenate([np.zeros(0, np.int64), *(np.repeat([1, -1], len(each)) for each in given)])
    order = np.lexsort((step, at_ns))  # ends first, so that what only touches is not counted twice
    at_ns, inside = at_ns[order], np.cumsum(step[order]) >= count
    return merge(at_ns[:-1][inside[:-1]], at_ns[1:][inside[:-1]])


def covered_until(times: Intervals, at_ns: Int64) -> Int64:
    """Return for each instant how many nanoseconds of `times` lie before it; shape as `at_ns`."""
    if len(times) == 0:
        return np.zeros(np.shape(at_ns), np.int64)
    length = times.end_ns - times.begin_ns
    before = np.concatenate(([0], np.cumsum(length)))
    index = np.searchsorted(times.begin_ns, at_ns, "right")
    current = np.maximum(index - 1, 0)
    beyond = np.maximum(times.end_ns[current] - at_ns, 0)
    return np.asarray(before[index] - np.where(index > 0, beyond, 0), np.int64)


def overlap(times: Intervals, begin_ns: Int64, end_ns: Int64) -> Int64:
    """Return for each window [begin_ns, end_ns) how much of `times` lies in it, ns."""
    return covered_until(times, end_ns) - covered_until(times, begin_ns)


def row_at(begin_ns: Int64, end_ns: Int64, at_ns: Int64) -> Int64:
    """Return which of some intervals, ascending and disjoint, each instant lies in; UNKNOWN for none."""
    if len(begin_ns) == 0:
        return np.full(len(at_ns), UNKNOWN)
    row = np.searchsorted(begin_ns, at_ns, "right") - 1
    return np.where((row >= 0) & (at_ns < end_ns[np.maximum(row, 0)]), row, UNKNOWN)


@dataclass(frozen=True, eq=False)
class Windows(Columns):
    """Windows of time, ascending and disjoint: mostly the iterations of the process that has the most; ns."""

    begin_ns: Int64
    end_ns: Int64

    @property
    def duration_ns(self) -> Int64:
        """How long each is."""
        return self.end_ns - self.begin_ns

    def of(self, times: Intervals) -> Int64:
        """Return how much of some time lies in each."""
        return overlap(times, self.begin_ns, self.end_ns)


def _common(a: Intervals, b: Intervals) -> Intervals:
    """Return the intersection: of each interval of the smaller set with all of the other one that reach into it."""
    few, many = (a, b) if len(a) < len(b) else (b, a)
    if len(few) == 0:
        return NOTHING
    first = np.searchsorted(many.end_ns, few.begin_ns, "right")
    count = np.searchsorted(many.begin_ns, few.end_ns, "left") - first
    row = np.arange(count.sum()) + np.repeat(first - (np.cumsum(count) - count), count)
    begin = np.maximum(many.begin_ns[row], np.repeat(few.begin_ns, count))
    return merge(begin, np.minimum(many.end_ns[row], np.repeat(few.end_ns, count)))


def _complement(times: Intervals) -> Intervals:
    """Return all other time."""
    return Intervals(np.append(_ALWAYS, times.end_ns), np.append(times.begin_ns, _NEVER))
