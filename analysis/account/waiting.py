"""The account of waiting: what each rank waits for in every nanosecond in which it is exposed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from netprof.analysis.account.activity import Activity
from netprof.analysis.account.causes import (
    HOST,
    LATE_RANK,
    LINK_FULL,
    LOSS,
    OTHER_TRAFFIC,
    TRANSPORT,
    UNSEEN,
    WAIT_CAUSES,
    Cause,
)
from netprof.analysis.account.group_times import GroupTimes, Held
from netprof.analysis.account.pieces import NOTHING, Pieces, contains, cut_at, pieces_of
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.members import Members
from netprof.analysis.tables.columns import Columns, Int64, concatenate, distinct
from netprof.analysis.tables.intervals import NOTHING as NO_TIME
from netprof.analysis.tables.intervals import Intervals, interval, merge

NOBODY = -1
WITHOUT_COLLECTIVE = -2
"""The group of what no collective was seen to carry, where RDMA ports may."""
_LONGEST_CHAIN = 8
"""How many ranks may wait for each other in a row; who waits beyond that stays late."""
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

    @property
    def length_ns(self) -> Int64:
        """How long each stretch is."""
        return self.end_ns - self.begin_ns


def explain(
    waits: Mapping[int, Intervals],
    collectives: Collectives,
    members: Members,
    activities: Mapping[int, Activity],
    groups: Mapping[int, GroupTimes],
    unseen: np.ndarray[tuple[int], np.dtype[np.bool_]],
    hidden: Mapping[int, Intervals],
    carried: Mapping[int, Intervals] = MappingProxyType({}),
) -> Waiting:
    """Give every nanosecond of `waits` (by process) its cause; what is returned covers exactly them.

    `unseen` says of each collective whether its bytes passed no wire that was watched, and `hidden` when a process
    waits for something that is no collective that was seen; `carried` when its RDMA ports moved anything.
    """
    all_seen = {group: _all_seen(group, members, collectives) for group in np.unique(members.group).tolist()}
    parts = []
    for pid, times in sorted(waits.items()):
        own_hidden = times & hidden.get(pid, NO_TIME)
        by_port = own_hidden & carried.get(pid, NO_TIME)
        parts.append(
            _of_process(pid, times, collectives, members, activities, groups, all_seen, unseen, own_hidden, by_port)
        )
    return resolve_lateness(concatenate(Waiting, parts))


def within(waiting: Waiting, times: Mapping[int, Intervals]) -> Waiting:
    """Return what of the stretches lies in some times, by process."""
    parts = []
    for pid, inside in sorted(times.items()):
        own = waiting.where(waiting.pid == pid)
        begin, end, row = cut_at(own.begin_ns, own.end_ns, distinct(inside.begin_ns, inside.end_ns))
        parts.append(replace(own.where(row), begin_ns=begin, end_ns=end).where(contains(inside, begin)))
    return concatenate(Waiting, parts)


def resolve_lateness(waiting: Waiting) -> Waiting:
    """Give the time in which a late rank is itself exposed the cause for which that one waits.

    A rank that is still held up by a slow link in its last collective posts the next one late, but is not to blame.
    """
    for _ in range(_LONGEST_CHAIN):
        late = waiting.cause == _NUMBER[LATE_RANK]
        culprits = np.unique(waiting.culprit[late]).tolist()
        exposed = {pid: waiting.where(waiting.pid == pid) for pid in culprits}
        passed_on = [_passed_on(waiting.where(late & (waiting.culprit == pid)), exposed[pid]) for pid in culprits]
        if not any(changed for _, changed in passed_on):
            break
        kept = [waiting.where(~late), *(part for part, _ in passed_on)]
        waiting = concatenate(Waiting, kept)
        waiting = waiting.where(np.lexsort((waiting.begin_ns, waiting.pid)))
    return waiting


def _passed_on(late: Waiting, culprit: Waiting) -> tuple[Waiting, bool]:
    """Cut stretches that wait for one late process by that one's own waiting, and take over its causes there."""
    begin, end, row = cut_at(late.begin_ns, late.end_ns, distinct(culprit.begin_ns, culprit.end_ns))
    index = np.searchsorted(culprit.begin_ns, begin, "right") - 1
    known = np.maximum(index, 0)
    waits = (index >= 0) & (begin < culprit.end_ns[known]) if len(culprit) else np.zeros(len(begin), bool)
    waits = np.asarray(waits) & (culprit.culprit[known] != late.pid[row] if len(culprit) else False)
    cause, who, group = late.cause[row], late.culprit[row], late.group[row]
    if len(culprit):
        cause = np.where(waits, culprit.cause[known], cause)
        who = np.where(waits, culprit.culprit[known], who)
        group = np.where(waits, culprit.group[known], group)
    return Waiting(late.pid[row], begin, end, cause, who, group), bool(waits.any())


def _of_process(
    pid: int,
    waits: Intervals,
    collectives: Collectives,
    members: Members,
    activities: Mapping[int, Activity],
    groups: Mapping[int, GroupTimes],
    all_seen: Mapping[int, Intervals],
    unseen: np.ndarray[tuple[int], np.dtype[np.bool_]],
    hidden: Intervals,
    by_port: Intervals,
) -> Waiting:
    own = np.flatnonzero(collectives.pid == pid)
    mine, others = collectives.where(own), members.where(own)
    pieces = pieces_of(waits, mine)
    found: list[Waiting] = []

    def give(part: Pieces, cause: Cause, culprit: Int64 | int = NOBODY) -> None:
        found.append(_waiting(pid, part, cause, culprit, _group_of(part, others)))

    outstanding = pieces.where(pieces.row != NOTHING)
    idle = pieces.where(pieces.row == NOTHING)
    found.append(_by_ports(pid, idle.times & by_port, groups.get(WITHOUT_COLLECTIVE)))
    found.append(_span(pid, (idle.times & hidden) - by_port, UNSEEN, NOBODY, -1))
    found.append(_span(pid, idle.times - hidden, HOST, pid, -1))
    not_posted, outstanding = outstanding.cut(mine.posted_ns[outstanding.row])
    give(not_posted, HOST, pid)
    late, outstanding = outstanding.cut(_late_until(mine, others)[outstanding.row])
    give(late, LATE_RANK, others.last_pid[late.row])
    another_way = unseen[own][outstanding.row]
    give(outstanding.where(another_way), UNSEEN)
    outstanding = outstanding.where(~another_way)
    moved_ns = _all_moved_ns(mine, others, activities.get(pid))
    for number in np.unique(others.group[outstanding.row]).tolist():
        part, times = outstanding.where(others.group[outstanding.row] == number), groups.get(number)
        if times is not None:
            unplaced, part = part.split(times.unplaced)
            give(unplaced, UNSEEN)
        under_way, arrived = part.cut(moved_ns[part.row])
        give(arrived, HOST, pid)
        found.append(_by_wire(pid, under_way, number, times, all_seen[number]))
    return _in_order(concatenate(Waiting, found))


def _late_until(mine: Collectives, others: Members) -> Int64:
    """Return until when each collective waits for the member that posts it last.

    A rank that is done before another has posted did not wait for that one: in a broadcast, say, nobody waits for a
    late receiver. Nor is it said of one that posts later by less than the hosts' clocks tell.
    """
    return np.where(others.ready_ns <= mine.end_ns, others.late_ns, mine.posted_ns)


def _all_moved_ns(mine: Collectives, others: Members, moved: Activity | None) -> Int64:
    """Return from when on nothing moved to or from the process any more before each collective was done."""
    if moved is None:
        return mine.end_ns
    last = moved.last_before(mine.end_ns)
    return np.where(last >= np.maximum(mine.posted_ns, others.ready_ns), last, mine.end_ns)


def _all_seen(group: int, members: Members, collectives: Collectives) -> Intervals:
    """Return when all members of a communicator are recorded, as far as it is known how many there are.

    A host's recorder may end before the others', or its host may.
    """
    rows = np.flatnonzero(members.group == group)
    if members.ranks[rows].max(initial=0) > len(np.unique(collectives.pid[rows])):
        return NO_TIME
    rows = rows[members.event[rows] >= 0]
    if group < 0 or len(rows) == 0:
        return _EVER
    rows = rows[np.lexsort((members.event[rows], collectives.pid[rows]))]
    begins = np.flatnonzero(np.diff(collectives.pid[rows], prepend=-1))
    ends = np.append(begins[1:], len(rows)) - 1
    first, last = members.event[rows[begins]].max(), members.event[rows[ends]].min()
    rows = rows[(members.event[rows] >= first) & (members.event[rows] <= last)]
    if len(rows) == 0:
        return NO_TIME
    return interval(int(collectives.posted_ns[rows].min()), int(collectives.end_ns[rows].max()))


def _by_wire(pid: int, part: Pieces, group: int, times: GroupTimes | None, all_seen: Intervals) -> Waiting:
    """Explain what is left by what the wire did; all that nothing explains is the transport's.

    While members are not recorded it may as well be that they are late, or busy.
    """
    left, found = merge(part.begin_ns, part.end_ns), []
    if times is not None:
        for member, when in times.stopped.items():
            found.append(_span(pid, left & when, HOST, member, group))
            left = left - when
        for cause, when in (
            (LINK_FULL, times.link_full),
            (OTHER_TRAFFIC, times.other_traffic),
            (LOSS, times.recovering),
        ):
            explained = left & when
            left = left - explained
            found.append(_span(pid, explained, cause, NOBODY, group))
        held = left & times.held.times & all_seen
        left = left - held
        found.append(_span(pid, held, HOST, _holder(times.held, held), group))
    found += [_span(pid, left & all_seen, TRANSPORT, NOBODY, group)]
    return concatenate(Waiting, [*found, _span(pid, left - all_seen, UNSEEN, NOBODY, group)])


def _by_ports(pid: int, times: Intervals, ports: GroupTimes | None) -> Waiting:
    """Explain time in which RDMA ports moved what no collective was seen to carry."""
    if ports is None:
        return _span(pid, times, UNSEEN, NOBODY, -1)
    unplaced = times & ports.unplaced
    left = times - unplaced
    seen = _by_wire(pid, Pieces(left.begin_ns, left.end_ns, left.begin_ns), WITHOUT_COLLECTIVE, ports, _EVER)
    return concatenate(Waiting, [_span(pid, unplaced, UNSEEN, NOBODY, WITHOUT_COLLECTIVE), seen])


def _holder(held: Held, times: Intervals) -> Int64:
    index = np.searchsorted(held.times.begin_ns, times.begin_ns, "right") - 1
    return held.holder[index]


def _waiting(pid: int, part: Pieces, cause: Cause, culprit: Int64 | int, group: Int64) -> Waiting:
    count = len(part)
    return Waiting(
        np.full(count, pid),
        part.begin_ns,
        part.end_ns,
        np.full(count, _NUMBER[cause]),
        np.broadcast_to(culprit, count).astype(np.int64),
        group,
    )


def _span(pid: int, times: Intervals, cause: Cause, culprit: Int64 | int, group: int) -> Waiting:
    return _waiting(
        pid, Pieces(times.begin_ns, times.end_ns, times.begin_ns), cause, culprit, np.full(len(times), group)
    )


def _group_of(part: Pieces, others: Members) -> Int64:
    if len(others) == 0:
        return np.full(len(part), -1)
    return np.where(part.row == NOTHING, -1, others.group[np.maximum(part.row, 0)])


def _in_order(found: Waiting) -> Waiting:
    return found.where(np.argsort(found.begin_ns, kind="stable"))
