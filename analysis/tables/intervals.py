"""Sets of time as sorted, disjoint, half-open intervals in whole nanoseconds: exact union, difference, length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Int64


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

    def __or__(self, other: Intervals) -> Intervals:
        return union([self, other])

    def __and__(self, other: Intervals) -> Intervals:
        return _combine(self, other, lambda a, b: a & b)

    def __sub__(self, other: Intervals) -> Intervals:
        return _combine(self, other, lambda a, b: a & ~b)


NOTHING = Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
"""The empty set."""


def interval(begin_ns: int, end_ns: int) -> Intervals:
    """Return the one interval [begin_ns, end_ns); empty when it ends before it begins."""
    return merge(np.array([begin_ns], np.int64), np.array([end_ns], np.int64))


def merge(begin_ns: Int64, end_ns: Int64) -> Intervals:
    """Return the union of intervals that may overlap and come in any order; those of no length vanish."""
    real = end_ns > begin_ns
    begin, end = begin_ns[real], end_ns[real]
    if len(begin) == 0:
        return NOTHING
    order = np.argsort(begin, kind="stable")
    begin, reach = begin[order], np.maximum.accumulate(end[order])
    opens = np.concatenate(([True], begin[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Intervals(begin[opens], reach[closes])


def union(sets: Sequence[Intervals]) -> Intervals:
    """Return the union of several sets; the empty set for none."""
    if not sets:
        return NOTHING
    return merge(np.concatenate([s.begin_ns for s in sets]), np.concatenate([s.end_ns for s in sets]))


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


def _combine(a: Intervals, b: Intervals, keep: object) -> Intervals:
    """Cut both sets at every edge of either, and keep the pieces for which `keep(in a, in b)`."""
    edges = np.unique(np.concatenate((a.begin_ns, a.end_ns, b.begin_ns, b.end_ns)))
    if len(edges) < 2:
        return NOTHING
    chosen = keep(_covers(a, edges[:-1]), _covers(b, edges[:-1]))  # type: ignore[operator]
    return merge(edges[:-1][chosen], edges[1:][chosen])


def _covers(times: Intervals, at_ns: Int64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each instant whether it lies in the set."""
    if len(times) == 0:
        return np.zeros(len(at_ns), bool)
    index = np.searchsorted(times.begin_ns, at_ns, "right") - 1
    inside = at_ns < times.end_ns[np.maximum(index, 0)]
    return np.asarray((index >= 0) & inside)
