"""Processes laid one behind the other on one axis of time, so that one look tells of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.intervals import NOTHING, Intervals, merge

_APART_NS = 4
"""Between the time of one process and that of the next, so that what touches both edges is not one."""


@dataclass(frozen=True, eq=False)
class Axis:
    """The time in [begin_ns, end_ns] of each of some `pids`, ascending; what lies outside of it is at its edge."""

    pids: Int64
    begin_ns: int
    end_ns: int

    @classmethod
    def around(cls, times: Mapping[int, Intervals]) -> Axis:
        """Return the axis that holds some times, by process."""
        known = [spans for spans in times.values() if len(spans)]
        begin_ns = min((int(spans.begin_ns[0]) for spans in known), default=0)
        end_ns = max((int(spans.end_ns[-1]) for spans in known), default=0)
        return cls(np.array(sorted(times), np.int64), begin_ns, end_ns)

    @property
    def _length_ns(self) -> int:
        return self.end_ns - self.begin_ns + _APART_NS

    def at(self, pid: Int64, time_ns: Int64) -> Int64:
        """Return where instants of some processes are."""
        inside = np.clip(time_ns, self.begin_ns - 1, self.end_ns + 1) - self.begin_ns + 1
        return np.searchsorted(self.pids, pid) * self._length_ns + inside

    def pid_of(self, place: Int64) -> Int64:
        """Return of which process each place is."""
        return self.pids[place // self._length_ns]

    def time_of(self, place: Int64) -> Int64:
        """Return which time each place is."""
        return place % self._length_ns + self.begin_ns - 1

    def laid(self, times: Mapping[int, Intervals]) -> Intervals:
        """Return the times of processes, by pid; those of others are left out."""
        known = [(pid, times[pid]) for pid in self.pids.tolist() if len(times.get(pid, NOTHING))]
        if not known:
            return NOTHING
        pid = np.repeat([pid for pid, _ in known], [len(spans) for _, spans in known])
        begin, end = (np.concatenate([getattr(spans, name) for _, spans in known]) for name in ("begin_ns", "end_ns"))
        return merge(self.at(pid, begin), self.at(pid, end))

    def for_each(self, pids: Int64, times: Intervals) -> Intervals:
        """Return some time as the time of each of some processes, which are ascending."""
        times = times.where((times.end_ns >= self.begin_ns) & (times.begin_ns <= self.end_ns))
        pid = np.repeat(pids, len(times))
        begin, end = (np.tile(edges, len(pids)) for edges in (times.begin_ns, times.end_ns))
        return merge(self.at(pid, begin), self.at(pid, end))
