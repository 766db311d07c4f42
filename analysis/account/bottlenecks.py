"""Which link holds a communicator up: of those that are full, the one that is full for longest in each collective."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.members import Members
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals, merge, overlap, union
from netprof.analysis.tables.link_history import RateOverTime
from netprof.analysis.wire.lanes import Lanes
from netprof.analysis.wire.served import Served, full_time, served, window_ns
from netprof.schema import RECEIVE, TRANSMIT

_LONGEST_NS = 2.0**62
ONE_LINK = 0.7
"""Share of the time in which any link is full that one of them has to be, to be what is waited for."""
OTHERS_MATTER = 0.05
"""Share of what a device moved that has to be others' to be believed: it may count headers in its own way."""


_OTHERS_AT_ALL = 0.01
"""Share of all that a device moved that has to be others' for any of it to be."""
_AROUND = 4
"""So many samples before and after one have to leave others' bytes that it shows."""


@dataclass(frozen=True, eq=False)
class LinkSide:
    """One direction of a device: what it served of the job's own bytes, and of others' as the device counted them.

    The line rate is the one that held for the longest.
    """

    link: LinkKey
    direction: int
    line_rate_bps: float
    own: Served
    others: Served


@dataclass(frozen=True, eq=False)
class Bottleneck:
    """When one side of a link is what a communicator waits for, full of the job's bytes or of others'.

    `full` is when it is full at all, `own_full` of the job's bytes.
    """

    side: LinkSide
    own: Intervals
    others: Intervals
    full: Intervals
    own_full: Intervals = NOTHING


def link_sides(
    lanes: Lanes,
    rates: Mapping[tuple[LinkKey, int], RateOverTime],
    counters: Mapping[LinkKey, tuple[Int64, Int64, Int64]],
    recording: Intervals,
) -> list[LinkSide]:
    """Return the sides of links whose line rate is known while they were recorded.

    `counters` are times, bytes sent and received.
    """
    sides = []
    for link in lanes.links:
        for way in (TRANSMIT, RECEIVE):
            rate = rates.get((link, way))
            if rate is None or math.isnan(line_rate_bps := rate.longest(recording & rate.known)):
                continue
            own = served(lanes.of_link(link, way), way, rate)
            times, *moved = counters.get(link, (np.zeros(0, np.int64),) * 3)
            others = others_served(times, moved[way], own, rate)
            sides.append(LinkSide(link, way, line_rate_bps, own, others))
    return sides


def others_served(time_ns: Int64, counted_bytes: Int64, own: Served, line_rate: RateOverTime) -> Served:
    """Return what a device served that is not the job's, from its counter: spread evenly between its samples.

    Counters that went backwards (the device was reset) say nothing of that time, nor does a time without a line rate.
    """
    length = np.diff(time_ns)
    needed_ns = np.diff(counted_bytes) * np.nan_to_num(8e9 / line_rate.at(time_ns[:-1] + length // 2))
    moved_ns = np.rint(np.clip(needed_ns, -_LONGEST_NS, _LONGEST_NS)).astype(np.int64)
    job_ns = np.rint(np.diff(own.busy_until(time_ns))).astype(np.int64)
    busy = np.minimum(moved_ns, length) - job_ns
    kept = (busy > OTHERS_MATTER * moved_ns) & (_lasting(busy, length) >= busy // 2)
    kept &= np.maximum(busy, -length).sum() > _OTHERS_AT_ALL * moved_ns.sum()
    return Served(time_ns[:-1][kept], time_ns[1:][kept], busy[kept])


def _lasting(busy_ns: Int64, length_ns: Int64) -> Int64:
    """Return what is left of others' bytes together with those of the samples around, which may lack them.

    What a shaper lets through at once is counted before it is served, and a sample may be taken late.
    """
    through = np.concatenate(([0], np.cumsum(np.maximum(busy_ns, -length_ns))))
    place = np.arange(len(busy_ns))
    until = through[np.minimum(place + _AROUND + 1, len(busy_ns))]
    return np.asarray(until - through[np.maximum(place - _AROUND, 0)])


def turns(collectives: Collectives, members: Members, group: int) -> Intervals:
    """Return from when to when a communicator as a whole waits for each of its collectives, in their order.

    A collective's turn is from when those before it are done on all members to when it is; touching intervals.
    """
    rows = np.flatnonzero((members.group == group) & (members.event >= 0))
    if len(rows) == 0:
        rows = np.flatnonzero(members.group == group)
        event = np.arange(len(rows))
    else:
        _, event = np.unique(members.event[rows], return_inverse=True)
    done = np.full(int(event.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(done, event, collectives.end_ns[rows])
    begin = np.full(len(done), np.iinfo(np.int64).max)
    np.minimum.at(begin, event, collectives.posted_ns[rows])
    return one_after_another(begin, done)


def one_after_another(begin: Int64, done: Int64) -> Intervals:
    """Return the turns of collectives, given when the first member posted each and the last one was done with it."""
    order = np.argsort(begin, kind="stable")
    done = np.maximum.accumulate(done[order])
    begin = np.maximum(begin[order], np.concatenate((begin[order][:1], done[:-1])))
    real = begin < done
    return Intervals(begin[real], done[real])


def bottlenecks(sides: Sequence[LinkSide], turn: Intervals, within: Intervals) -> tuple[Bottleneck, ...]:
    """Return when which of a communicator's links holds it up; sides that are never full are left out.

    In each turn that is the side that is full for longest, and where that one is not, any other that is full: a slow or
    shared leg is full nearly all the time, the others only while it lets them.
    """
    full_sides = [full_times(side, within) for side in sides]
    full_sides = [times for times in full_sides if len(times.full)]
    if not full_sides:
        return ()
    longest = np.stack([overlap(times.full, turn.begin_ns, turn.end_ns) for times in full_sides])
    winner = longest.argmax(axis=0) if len(turn) else np.zeros(0, np.int64)
    first = [
        _during(times, merge(turn.begin_ns[winner == n], turn.end_ns[winner == n]))
        for n, times in enumerate(full_sides)
    ]
    taken = NOTHING
    for times in first:
        taken = taken | times.own | times.others
    result = []
    for number in np.argsort(-longest.sum(axis=1), kind="stable").tolist():
        whole, won = full_sides[number], first[number]
        left = _during(whole, whole.full - taken)
        taken = taken | whole.full
        result.append(Bottleneck(whole.side, won.own | left.own, won.others | left.others, whole.full, whole.own_full))
    return tuple(result)


def taking_turns(longest_ns: Int64, full: Intervals, turn: Intervals) -> Intervals:
    """Return the turns of collectives in which links are full one after the other, rather than one of them.

    `longest_ns` is for how long the one is that is full for longest in each turn, `full` when any is.
    """
    any_ns = overlap(full, turn.begin_ns, turn.end_ns)
    rows = longest_ns < ONE_LINK * any_ns
    return merge(turn.begin_ns[rows], turn.end_ns[rows])


def alternation(full_sides: Sequence[Bottleneck], turn: Intervals) -> Intervals:
    """Return the turns of a communicator's collectives in which its links take turns at being full."""
    if not full_sides or not len(turn):
        return NOTHING
    longest = np.stack([overlap(each.full, turn.begin_ns, turn.end_ns) for each in full_sides])
    return taking_turns(longest.max(axis=0), union([each.full for each in full_sides]), turn)


def full_times(side: LinkSide, within: Intervals) -> Bottleneck:
    """Return when one side of a link is full; `within` is as `full_time` takes it."""
    width = window_ns(side.line_rate_bps)
    own = full_time([side.own], width, within)
    full = full_time([side.own, side.others], width, within) if len(side.others.begin_ns) else own
    return Bottleneck(side, own, full - own, full | own, own)


def _during(whole: Bottleneck, times: Intervals) -> Bottleneck:
    return Bottleneck(whole.side, whole.own & times, whole.others & times, whole.full, whole.own_full)
