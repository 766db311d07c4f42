"""What happened to a communicator's bytes over time: which of its links were full, which flows recovered from loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Bool, Int64
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals, merge, union
from netprof.analysis.wire.served import Served, full_time, window_ns

OTHERS_MATTER = 0.05
"""Share of what a device moved that has to be others' to be believed."""


@dataclass(frozen=True, eq=False)
class LinkSide:
    """One direction of a device: what it served of the job's own bytes, and of others' as the device counted them."""

    link: LinkKey
    direction: int
    line_rate_bps: float
    own: Served
    others: Served

    def full(self, within: Intervals) -> tuple[Intervals, Intervals]:
        """Return when it is full of the job's own bytes, and when only with others' bytes besides."""
        width = window_ns(self.line_rate_bps)
        own = full_time([self.own], width, within)
        return own, full_time([self.own, self.others], width, within) - own


@dataclass(frozen=True, eq=False)
class Full:
    """When which side of a link is full; `others` of what is not the job's."""

    side: LinkSide
    own: Intervals
    others: Intervals


@dataclass(frozen=True, eq=False)
class Held:
    """When no byte of a communicator moves, for longer than an acknowledgement takes: a host holds everybody.

    Disjoint intervals, ascending; `holder` is the process that goes on first.
    """

    times: Intervals
    holder: Int64


NOBODY_HOLDS = Held(NOTHING, np.zeros(0, np.int64))
"""No such time."""


@dataclass(frozen=True, eq=False)
class GroupTimes:
    """What explains that the bytes of a communicator take their time, as sets of time; the first that applies does."""

    full: tuple[Full, ...]
    loss: Mapping[int, Intervals]  # by the flow's row
    held: Held

    @property
    def link_full(self) -> Intervals:
        """When a link is full of the job's bytes."""
        return union([full.own for full in self.full])

    @property
    def other_traffic(self) -> Intervals:
        """When a link is full, but not of the job's bytes."""
        return union([full.others for full in self.full])

    @property
    def recovering(self) -> Intervals:
        """When a flow recovers from loss."""
        return union(list(self.loss.values()))


def silences(sent: Mapping[int, tuple[Int64, Int64]], moved: Intervals, least_ns: int) -> Held:
    """Return when nothing moves for more than `least_ns`, and which process sends first after it.

    `sent` are the first and last packets of each process's sent bins, `moved` when any member sent or received.
    """
    if len(moved) < 2 or not sent:
        return NOBODY_HOLDS
    begin, end = moved.end_ns[:-1], moved.begin_ns[1:]
    long: Bool = end - begin > least_ns
    begin, end = begin[long], end[long]
    pids = sorted(sent)
    first = np.stack([_first_from(sent[pid][0], end) for pid in pids]) if len(end) else np.zeros((len(pids), 0))
    by_sending = first.min(axis=0) <= end if len(end) else np.zeros(0, bool)
    holder = np.array(pids, np.int64)[first.argmin(axis=0)] if len(end) else np.zeros(0, np.int64)
    return Held(Intervals(begin[by_sending], end[by_sending]), holder[by_sending])


def _first_from(times: Int64, at_ns: Int64) -> Int64:
    return np.append(times, np.iinfo(np.int64).max)[np.searchsorted(times, at_ns, "left")]


def recoveries(flow: Int64, before_ns: Int64, last_ns: Int64, rtt_ns: Int64) -> dict[int, Intervals]:
    """Return when each flow recovers: from the last packet before what it sends again, to that one's arrival."""
    found = {}
    for row in np.unique(flow).tolist():
        own = flow == row
        found[int(row)] = merge(before_ns[own], last_ns[own] + rtt_ns[own])
    return found


def others_served(time_ns: Int64, counted_bytes: Int64, own: Served, line_rate_bps: float) -> Served:
    """Return what a device served that is not the job's, from its counter: spread evenly between its samples.

    Counters that went backwards (the device was reset) say nothing of that time.
    """
    length = np.diff(time_ns)
    moved_ns = np.rint(np.diff(counted_bytes) * (8e9 / line_rate_bps)).astype(np.int64)
    job_ns = np.rint(np.diff(own.busy_until(time_ns))).astype(np.int64)
    busy = np.clip(moved_ns - job_ns, 0, np.maximum(length - job_ns, 0))
    kept = busy > OTHERS_MATTER * moved_ns  # a device may count headers in its own way
    return Served(time_ns[:-1][kept], time_ns[1:][kept], busy[kept])
