"""What explains that the bytes of a communicator take their time: full links, loss, hosts that hold everybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from netprof.analysis.account.bottlenecks import Bottleneck
from netprof.analysis.account.causes import LINK_FULL, LOSS, OTHER_TRAFFIC, Cause
from netprof.analysis.account.wait_pieces import contains
from netprof.analysis.events.members import UNTOLD_NS
from netprof.analysis.tables.columns import Bool, Int64, grouped
from netprof.analysis.tables.intervals import NOTHING, Intervals, merge, overlap, union


@dataclass(frozen=True, eq=False)
class Held:
    """When no byte of a communicator moves, for longer than an acknowledgement takes: a host holds everybody.

    Disjoint intervals, ascending; `holder` is the process that goes on first.
    """

    times: Intervals
    holder: Int64

    def where(self, rows: Bool) -> Held:
        """Return some of the intervals."""
        return Held(self.times.where(rows), self.holder[rows])


_CLOSE_NS = 100_000_000
LEAST_SILENCE_NS = 2_000_000
"""What is shorter is none, whatever the round trip."""
_ROUND_TRIPS = 2


NOBODY_HOLDS = Held(NOTHING, np.zeros(0, np.int64))
"""No such time."""


class ExplainingTimes(Protocol):
    """Sets of time for one communicator; of several that apply to a moment, the first one explains it."""

    @property
    def unplaced(self) -> Intervals:
        """When bytes of its members passed at unknown moments: the wire explains nothing there."""

    @property
    def stopped(self) -> Mapping[int, Intervals]:
        """When a member, by process, was stopped: that is what holds everybody."""

    @property
    def link_full(self) -> Intervals:
        """When the link that holds everybody up is full of the job's bytes."""

    @property
    def other_traffic(self) -> Intervals:
        """When the link that holds everybody up is full, but not of the job's bytes."""

    @property
    def alternating(self) -> Intervals:
        """When links are full in turn, none of them for long: what is lost then is not lost behind a full link."""

    @property
    def recovering(self) -> Intervals:
        """When a flow recovers from loss."""

    @property
    def held(self) -> Held:
        """When a host holds everybody."""


@dataclass(frozen=True, eq=False)
class GroupTimes:
    """`ExplainingTimes` of a communicator, by what explains them: links, and flows by their row."""

    bottlenecks: tuple[Bottleneck, ...]
    loss: Mapping[int, Intervals]
    held: Held
    unplaced: Intervals = NOTHING
    stopped: Mapping[int, Intervals] = field(default_factory=dict)
    alternating: Intervals = NOTHING

    @cached_property
    def link_full(self) -> Intervals:
        """When the link that holds everybody up is full of the job's bytes."""
        return union([each.own for each in self.bottlenecks])

    @cached_property
    def serving(self) -> Intervals:
        """When that link or another one of the communicator's really serves the job's bytes, in that time."""
        return self.link_full & union([each.side.own.busy for each in self.bottlenecks])

    @cached_property
    def other_traffic(self) -> Intervals:
        """When the link that holds everybody up is full, but not of the job's bytes."""
        return union([each.others for each in self.bottlenecks])

    @cached_property
    def recovering(self) -> Intervals:
        """When a flow recovers from loss."""
        return union(list(self.loss.values()))


def explanations(times: ExplainingTimes) -> tuple[tuple[Cause, Intervals], ...]:
    """Return when links and loss explain that bytes take their time; of several that apply, the first one does."""
    apart = times.alternating
    return (
        (LINK_FULL, times.link_full - apart),
        (OTHER_TRAFFIC, times.other_traffic - apart),
        (LOSS, times.recovering),
        (LINK_FULL, times.link_full),
        (OTHER_TRAFFIC, times.other_traffic),
    )


def least_silence_ns(rtt_ns: int, apart_ns: float) -> int:
    """Return for how long nothing has to move for a host to hold everybody.

    Given the longest round trip, and how far the clocks of the hosts may be apart.
    """
    return max(LEAST_SILENCE_NS, _ROUND_TRIPS * rtt_ns) + int(min(apart_ns, UNTOLD_NS))


def silences(sent_ns: Mapping[int, Int64], moved: Intervals, least_ns: int) -> Held:
    """Return when nothing moves for more than `least_ns`, and which process sends first after it.

    `sent_ns` are the first packets of each process's sent bins, `moved` when any member sent or received. A silence
    that does not end by sending is no host's: the bytes were on their way.
    """
    if len(moved) < 2 or not sent_ns:
        return NOBODY_HOLDS
    begin, end = moved.end_ns[:-1], moved.begin_ns[1:]
    long = end - begin > least_ns
    begin, end = begin[long], end[long]
    pids = sorted(sent_ns)
    never = np.iinfo(np.int64).max
    first = np.stack([np.append(sent_ns[pid], never)[np.searchsorted(sent_ns[pid], end)] for pid in pids])
    holder = np.array(pids, np.int64)[first.argmin(axis=0)]
    return Held(Intervals(begin, end), holder).where(first.min(axis=0) <= end)


def without_unsent(
    held: Held, unsent: Mapping[int, Intervals], no_room: Mapping[int, Sequence[tuple[int, Intervals]]]
) -> Held:
    """Leave out silences in which the process that ends them had bytes to send: its TCP held them back.

    `unsent` is by process when that was so. Where they waited for room at a receiver (`no_room`, with that process), it
    is that one which stands still.
    """
    middle = (held.times.begin_ns + held.times.end_ns) // 2
    kept, holder = np.ones(len(middle), bool), held.holder.copy()
    for pid in np.unique(held.holder).tolist():
        is_holder = held.holder == pid
        kept &= ~(is_holder & contains(unsent.get(pid, NOTHING), middle))
        for receiver, times in no_room.get(pid, ()):
            holder[is_holder & contains(times, middle)] = receiver
    return Held(held.times, holder).where(kept)


def recoveries(flow: Int64, before_ns: Int64, last_ns: Int64, rtt_ns: Int64) -> dict[int, Intervals]:
    """Return when each flow recovers: from the last packet before what it sends again, to that one's arrival."""
    return {int(flow[rows[0]]): merge(before_ns[rows], last_ns[rows] + rtt_ns[rows]) for rows in grouped(flow)}


def _ends_in(silence: Intervals, times: Intervals) -> Bool:
    """Return which silences end within one of some times, and are half of it if that is long."""
    if len(times) == 0:
        return np.zeros(len(silence), bool)
    index = np.searchsorted(times.begin_ns, silence.end_ns, "left") - 1
    begin, end = times.begin_ns[np.maximum(index, 0)], times.end_ns[np.maximum(index, 0)]
    inside = (index >= 0) & (silence.end_ns <= end)
    share = silence.end_ns - np.maximum(silence.begin_ns, begin)
    return np.asarray(inside & ((end - begin <= _CLOSE_NS) | (2 * share >= end - begin)))


def lost_unseen(held: Held, resending: Mapping[int, Intervals]) -> tuple[Held, dict[int, Intervals]]:
    """Tell silences that end while TCP says that it sends something again from those of a busy host.

    What is dropped before it reaches the device is not seen when it is sent, so it looks new when it is sent again;
    `resending` is between which samples each flow's own count of that rose (`Resends`). Where those are far apart, the
    silence has to be most of the time between them.
    """
    kept, explained = np.ones(len(held.holder), bool), {}
    for flow, times in resending.items():
        inside = _ends_in(held.times, times)
        if (inside & kept).any():
            explained[flow] = held.where(inside & kept).times
            kept &= ~inside
    return held.where(kept), explained


def while_down(held: Held, down: Mapping[int, Intervals]) -> tuple[Held, dict[int, Intervals]]:
    """Tell silences in which a device on a flow's way is down from those of a busy host."""
    kept, explained = np.ones(len(held.holder), bool), {}
    for flow, times in down.items():
        inside = overlap(times, held.times.begin_ns, held.times.end_ns) > 0
        if inside.any():
            explained[flow] = held.where(inside).times
            kept &= ~inside
    return held.where(kept), explained
