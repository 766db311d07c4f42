"""The account of waiting: what each rank waits for in every nanosecond in which it is exposed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from netprof.analysis.account.axis import Axis
from netprof.analysis.account.causes import HOST, LATE_RANK, TRANSPORT, UNSEEN, WAIT_CAUSES, Cause
from netprof.analysis.account.group_times import LEAST_SILENCE_NS, ExplainingTimes, explanations
from netprof.analysis.account.wait_pieces import NOTHING, WaitPieces, contains, cut_at, pieces_of
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.members import Members
from netprof.analysis.tables.columns import Bool, Columns, Int64, concatenate, distinct, empty
from netprof.analysis.tables.intervals import NOTHING as NO_TIME
from netprof.analysis.tables.intervals import Intervals, interval, merge

NOBODY = -1
_AT_ONCE = 64
"""Processes that are explained together: memory is what limits them."""
WITHOUT_COLLECTIVE = -2
"""The group of what no collective was seen to carry, where RDMA ports or other links may."""
_EVER = Intervals(np.array([np.iinfo(np.int64).min]), np.array([np.iinfo(np.int64).max]))
_NUMBER = {cause: number for number, cause in enumerate(WAIT_CAUSES)}


@dataclass(frozen=True, eq=False)
class Waiting(Columns):
    """Stretches of exposed time, disjoint within a process, by process and begin; ns.

    `cause` is an index in WAIT_CAUSES. `culprit` is the process that is late or whose host is busy, else NOBODY.
    `group` is the communicator that is waited for, as in `Members`, -1 where none is known.
    """

    pid: Int64
    begin_ns: Int64
    end_ns: Int64
    cause: Int64
    culprit: Int64
    group: Int64

    def of(self, cause: Cause) -> Waiting:
        """Return the stretches with one cause."""
        return self.where(self.cause == _NUMBER[cause])

    def in_order(self) -> Waiting:
        """Return the stretches by process and begin."""
        return self.sorted_by("pid", "begin_ns")

    @property
    def length_ns(self) -> Int64:
        """How long each stretch is."""
        return self.end_ns - self.begin_ns


_NONE = empty(Waiting)


@dataclass(frozen=True, eq=False)
class OnWire(Columns):
    """What the wire showed of collectives, row by row as they are.

    `another_way` says that hardly any byte was seen of one, by whoever performed it; `moved_ns` is when payload last
    moved to or from its process before it was done, long before where that was not seen.
    """

    another_way: Bool
    moved_ns: Int64


@dataclass(frozen=True, eq=False)
class Known:
    """What explains waiting.

    `groups` and `all_seen` are by communicator, the latter when all its members are recorded. By process, `hidden` is
    when it waits for something that is no collective that was seen, `carried` when its RDMA ports moved anything, and
    `unmarked` when it waits for bytes that no mark tells of; `between` when those move, and recorded processes alone
    exchange them.
    """

    collectives: Collectives
    members: Members
    on_wire: OnWire
    groups: Mapping[int, ExplainingTimes]
    all_seen: Mapping[int, Intervals]
    hidden: Mapping[int, Intervals] = field(default_factory=dict)
    carried: Mapping[int, Intervals] = field(default_factory=dict)
    unmarked: Mapping[int, Intervals] = field(default_factory=dict)
    between: Mapping[int, Intervals] = field(default_factory=dict)


def explain(waits: Mapping[int, Intervals], known: Known) -> Waiting:
    """Give every nanosecond of `waits` (by process) its cause; what is returned covers exactly them.

    Who is late is not asked yet for what it waits itself: `lateness.resolve_lateness`.
    """
    pids = sorted(waits)
    parts = [pids[first : first + _AT_ONCE] for first in range(0, len(pids), _AT_ONCE)]
    return concatenate(Waiting, [_of_part({pid: waits[pid] for pid in part}, known) for part in parts])


def _of_part(waits: Mapping[int, Intervals], known: Known) -> Waiting:
    axis = Axis.around(waits)
    stretches = _explained(axis, axis.laid(waits), known).sorted_by("begin_ns")
    begin_ns, end_ns = axis.time_of(stretches.begin_ns), axis.time_of(stretches.end_ns)
    return replace(stretches, pid=axis.pid_of(stretches.begin_ns), begin_ns=begin_ns, end_ns=end_ns)


def within(waiting: Waiting, times: Mapping[int, Intervals]) -> Waiting:
    """Return what of the stretches lies in some times, by process."""
    axis = Axis.around(times)
    stretches, inside = waiting.where(np.isin(waiting.pid, axis.pids)), axis.laid(times)
    begin, end = axis.at(stretches.pid, stretches.begin_ns), axis.at(stretches.pid, stretches.end_ns)
    begin, end, row = cut_at(begin, end, distinct(inside.begin_ns, inside.end_ns))
    parts = replace(stretches.where(row), begin_ns=axis.time_of(begin), end_ns=axis.time_of(end))
    kept = np.flatnonzero(contains(inside, begin))
    return parts.where(kept[np.argsort(begin[kept], kind="stable")])


def _explained(axis: Axis, waits: Intervals, known: Known) -> Waiting:
    """Explain what processes wait, all of them on one axis; so is what is returned."""
    unmarked = waits & axis.laid(known.unmarked)
    hidden = (waits & axis.laid(known.hidden)) - unmarked
    by_port = hidden & axis.laid(known.carried)
    rows = np.flatnonzero(np.isin(known.collectives.pid, axis.pids))
    mine, others, on_wire = known.collectives.where(rows), known.members.where(rows), known.on_wire.where(rows)
    pieces = pieces_of(axis, waits, mine)
    explained: list[Waiting] = []

    def instant(part: WaitPieces, time_ns: Int64) -> Int64:
        return axis.at(mine.pid[part.row], time_ns[part.row])

    def give(part: WaitPieces, cause: Cause, culprit: Int64 | int = NOBODY) -> None:
        explained.append(_waiting(part, cause, culprit, others.group[part.row]))

    outstanding = pieces.where(pieces.row != NOTHING)
    idle = pieces.where(pieces.row == NOTHING)
    if known.carried:
        explained.append(_by_links(axis, idle.times & by_port, known.groups[WITHOUT_COLLECTIVE], _EVER))
    not_posted, outstanding = outstanding.cut(instant(outstanding, mine.posted_ns))
    if len(unmarked):  # bytes that no mark tells of, whatever is posted later
        without_mark, not_posted = not_posted.split(unmarked)
        of_links, between = (idle.times & unmarked) | without_mark.times, axis.laid(known.between)
        for spans, all_seen in ((of_links & between, _EVER), (of_links - between, NO_TIME)):
            explained.append(_by_links(axis, spans, known.groups[WITHOUT_COLLECTIVE], all_seen))
    explained.append(_span((idle.times & hidden) - by_port, UNSEEN, NOBODY, -1))
    itself = (idle.times - hidden) - unmarked
    explained.append(_span(itself, HOST, axis.pid_of(itself.begin_ns), -1))
    give(not_posted, HOST, mine.pid[not_posted.row])
    late, outstanding = outstanding.cut(instant(outstanding, _late_until(mine, others)))
    give(late, LATE_RANK, others.last_pid[late.row])
    another_way = on_wire.another_way[outstanding.row]
    give(outstanding.where(another_way), UNSEEN)
    outstanding = outstanding.where(~another_way)
    moved_ns, may_come_ns = _all_moved_ns(mine, others, on_wire.moved_ns), _may_come_until(mine, others)
    for number in np.unique(others.group[outstanding.row]).tolist():
        part, times = outstanding.where(others.group[outstanding.row] == number), known.groups.get(number)
        if times is not None:
            unplaced, part = part.split(axis.for_each(np.unique(mine.pid[part.row]), times.unplaced))
            give(unplaced, UNSEEN)
        under_way, arrived = part.cut(instant(part, moved_ns))
        give(arrived, HOST, mine.pid[arrived.row])
        untold, under_way = under_way.cut(instant(under_way, may_come_ns))
        explained.append(_by_wire(axis, untold, number, times, NO_TIME))
        explained.append(_by_wire(axis, under_way, number, times, known.all_seen[number]))
    return concatenate(Waiting, explained)


def _late_until(mine: Collectives, others: Members) -> Int64:
    """Return until when each collective waits for the member that posts it last.

    A rank that is done before another has posted did not wait for that one: in a broadcast, say, nobody waits for a
    late receiver. Nor is it said of one that posts later by less than the hosts' clocks tell.
    """
    return np.where(others.ready_ns <= mine.end_ns, others.late_ns, mine.posted_ns)


def _may_come_until(mine: Collectives, others: Members) -> Int64:
    """Return until when another member may still be to come to each collective, as far as clocks tell.

    What is shorter than a silence is none, as little as that.
    """
    matters = (others.ready_ns <= mine.end_ns) & (others.untold_ns > LEAST_SILENCE_NS)
    return np.where(matters, others.ready_ns + others.untold_ns, mine.posted_ns)


def _all_moved_ns(mine: Collectives, others: Members, moved_ns: Int64) -> Int64:
    """Return from when on nothing moved to or from the process any more before each collective was done."""
    return np.where(moved_ns >= np.maximum(mine.posted_ns, others.ready_ns), moved_ns, mine.end_ns)


def when_all_seen(members: Members, collectives: Collectives) -> dict[int, Intervals]:
    """Return when all members of each communicator are recorded, as far as it is known how many there are."""
    return {group: _all_seen(group, members, collectives) for group in np.unique(members.group).tolist()}


def _all_seen(group: int, members: Members, collectives: Collectives) -> Intervals:
    """Return when all members of a communicator are recorded, as far as it is known how many there are.

    A host's recorder may end before the others', or its host may.
    """
    rows = np.flatnonzero(members.group == group)
    if members.ranks[rows].max() > len(np.unique(collectives.pid[rows])):
        return NO_TIME
    rows = rows[members.event[rows] >= 0]
    if len(rows) == 0:
        return _EVER
    rows = rows[np.lexsort((members.event[rows], collectives.pid[rows]))]
    begins = np.flatnonzero(np.diff(collectives.pid[rows], prepend=-1))
    ends = np.append(begins[1:], len(rows)) - 1
    first, last = members.event[rows[begins]].max(), members.event[rows[ends]].min()
    rows = rows[(members.event[rows] >= first) & (members.event[rows] <= last)]
    if len(rows) == 0:
        return NO_TIME
    return interval(int(collectives.posted_ns[rows].min()), int(collectives.end_ns[rows].max()))


def _by_wire(axis: Axis, part: WaitPieces, group: int, times: ExplainingTimes | None, all_seen: Intervals) -> Waiting:
    """Explain what is left by what the wire did; all that nothing explains is the transport's.

    While members are not recorded, or may not have come yet, it may as well be that they are late, or busy.
    """
    left, parts = merge(part.begin_ns, part.end_ns), []
    pids = np.unique(axis.pid_of(left.begin_ns))
    seen = axis.for_each(pids, all_seen)
    if times is not None and len(pids):
        for member, when in times.stopped.items():
            stopped = left & axis.for_each(pids, when)
            parts.append(_span(stopped, HOST, member, group))
            left = left - stopped
        for cause, when in explanations(times):
            explained = left & axis.for_each(pids, when)
            left = left - explained
            parts.append(_span(explained, cause, NOBODY, group))
        held = left & axis.for_each(pids, times.held.times) & seen
        left = left - held
        row = np.searchsorted(times.held.times.begin_ns, axis.time_of(held.begin_ns), "right") - 1
        parts.append(_span(held, HOST, times.held.holder[row], group))
    parts += [_span(left & seen, TRANSPORT, NOBODY, group)]
    return concatenate(Waiting, [*parts, _span(left - seen, UNSEEN, NOBODY, group)])


def _by_links(axis: Axis, times: Intervals, links: ExplainingTimes, all_seen: Intervals) -> Waiting:
    """Explain time in which links moved what no collective was seen to carry."""
    unplaced = times & axis.for_each(np.unique(axis.pid_of(times.begin_ns)), links.unplaced)
    left = times - unplaced
    seen = _by_wire(axis, WaitPieces(left.begin_ns, left.end_ns, left.begin_ns), WITHOUT_COLLECTIVE, links, all_seen)
    return concatenate(Waiting, [_span(unplaced, UNSEEN, NOBODY, WITHOUT_COLLECTIVE), seen])


def _waiting(part: WaitPieces, cause: Cause, culprit: Int64 | int, group: Int64) -> Waiting:
    count = len(part)
    return Waiting(
        np.zeros(count, np.int64),  # the axis tells
        part.begin_ns,
        part.end_ns,
        np.full(count, _NUMBER[cause]),
        np.broadcast_to(culprit, count).astype(np.int64),
        group,
    )


def _span(times: Intervals, cause: Cause, culprit: Int64 | int, group: int) -> Waiting:
    pieces = WaitPieces(times.begin_ns, times.end_ns, times.begin_ns)
    return _waiting(pieces, cause, culprit, np.full(len(times), group)) if len(times) else _NONE
