"""What happened first on which host, as far as their clocks tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from netprof.analysis.tables.columns import Bool, Float64, Int64
from netprof.model import Host


@dataclass(frozen=True, eq=False)
class ClockBounds:
    """How well the times of processes are known, by the number of their host; a process of none is on the first."""

    bound_ns: Float64
    host_of: Mapping[int, int] = field(default_factory=dict)

    def tell(self, pid: Int64, at_ns: Int64, later_pid: Int64, later_ns: Int64) -> Bool:
        """Return whether something happened to `later_pid` at `later_ns` later than to `pid` at `at_ns`, for sure.

        On one host there is one clock; elsewhere both bounds have to be less than what lies between.
        """
        room_ns = self.room_ns(pid, later_pid)
        return np.asarray((room_ns < 0) | (later_ns - at_ns > room_ns))

    def room_ns(self, pid: Int64, other_pid: Int64) -> Float64:
        """Return how far the clocks of two processes may be apart; less than 0 where they have one."""
        if not self.host_of:
            return np.full(len(pid), -1.0)
        one, other = self._hosts(pid), self._hosts(other_pid)
        return np.where(one == other, -1.0, self.bound_ns[one] + self.bound_ns[other])

    @property
    def apart_ns(self) -> float:
        """How far any two clocks may be apart of which anything is known."""
        return 2 * float(self.bound_ns[np.isfinite(self.bound_ns)].max(initial=0.0)) if self.host_of else 0.0

    def _hosts(self, pid: Int64) -> Int64:
        every, row = np.unique(pid, return_inverse=True)
        return np.array([self.host_of.get(each, 0) for each in every.tolist()], np.int64)[row.reshape(-1)]


ONE_CLOCK = ClockBounds(np.zeros(1))


def clock_bounds(hosts: Sequence[Host]) -> ClockBounds:
    """Return how well the hosts' times are known; a clock whose offset is unknown tells nothing."""
    if len(hosts) < 2:
        return ONE_CLOCK
    bounds = [np.inf if host.clock.bound_ns is None else host.clock.bound_ns for host in hosts]
    return ClockBounds(np.array(bounds), {pid: number for number, host in enumerate(hosts) for pid in host.pids})
