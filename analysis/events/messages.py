"""Messages between two: whose end was seen, and which is the same on both sides; and what is handed over unseen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.collectives import Collectives, FoundCollectives
from netprof.analysis.events.matching import partners
from netprof.analysis.events.members import Members, lone_members
from netprof.analysis.events.order import ONE_CLOCK, ClockBounds
from netprof.analysis.events.sizes import bytes_of
from netprof.analysis.tables.columns import UNKNOWN, Int64, concatenate, followed, grouped
from netprof.analysis.tables.marks import Marks
from netprof.schema import CollectiveKind, MarkKind

_POSTED = (MarkKind.SEND_POSTED, MarkKind.RECEIVE_POSTED)
_RANKS_ABOVE = 32


@dataclass(frozen=True, eq=False)
class Exchanges:
    """What ranks wait for each other in: collectives, and messages as if each were a collective of two."""

    collectives: Collectives
    members: Members


@dataclass(frozen=True, eq=False)
class _Side:
    """The messages that a process sends to a peer, or receives from it, by the time they were posted.

    What orders the account is when a message was waited for, so that is their `posted_ns`; their begin is when they
    were really posted.
    """

    pid: int
    receives: bool
    ranks: int  # of the group
    sender: int
    receiver: int
    messages: Collectives


def with_messages(
    marks: Marks,
    collectives: Collectives,
    members: Members,
    ranks: Mapping[int, int],
    world_size: int | None,
    clocks: ClockBounds = ONE_CLOCK,
) -> Exchanges:
    """Return the collectives, whose members are known, and the messages that were waited for, by begin.

    `ranks` are those of the job, by pid, and `world_size` how many there are: the numbers in a group of all of them.
    """
    sides = _sides(marks)
    if not sides:
        return Exchanges(collectives, members)
    event, group = int(members.event.max(initial=-1)) + 1, int(members.group.max(initial=-1)) + 1
    parts, found, groups = [collectives], [members], dict[frozenset[int], int]()
    left = [side for side in sides if side.receives]
    for side in [side for side in sides if not side.receives]:
        other, partner = _other_side(side, left, ranks, world_size)
        parts.append(side.messages)
        if other is None:
            found.append(_alone(side.messages, group))
            group += 1
            continue
        left.remove(other)
        pair = frozenset((side.pid, other.pid))
        if pair not in groups:
            groups[pair], group = group, group + 1
        found += _both(side.messages, other.messages, partner, event, groups[pair], clocks)
        event += len(side.messages)
        parts.append(other.messages)
    for side in left:
        parts.append(side.messages)
        found.append(_alone(side.messages, group))
        group += 1
    every, who = concatenate(Collectives, parts), concatenate(Members, found)
    order = np.argsort(every.begin_ns, kind="stable")
    return Exchanges(every.where(order), who.where(order))


def _sides(marks: Marks) -> list[_Side]:
    """Return the messages by process, peer and direction."""
    rows = marks.of(MarkKind.MESSAGE_PEER, *_POSTED)
    before, after = followed(rows.time_ns, rows.tid, rows.pid)
    pairs = np.isin(rows.kind[after], _POSTED) & (rows.kind[before] == MarkKind.MESSAGE_PEER)
    posted, peers = rows.where(after[pairs]), rows.where(before[pairs])
    wait_ns, end_ns = _waited(marks, posted)
    known = (end_ns != UNKNOWN) & (peers.arg0 != UNKNOWN)
    posted, peers, wait_ns, end_ns = posted.where(known), peers.where(known), wait_ns[known], end_ns[known]
    own, size, peer = peers.arg2 & (1 << _RANKS_ABOVE) - 1, peers.arg2 >> _RANKS_ABOVE, peers.arg0
    found = []
    for chosen in grouped(peer, own, size, posted.kind, posted.pid):
        chosen = chosen[np.argsort(posted.time_ns[chosen], kind="stable")]
        pid, kind, ranks, mine, other = (int(each[chosen[0]]) for each in (posted.pid, posted.kind, size, own, peer))
        receives = kind == MarkKind.RECEIVE_POSTED
        numbers = (other, mine) if receives else (mine, other)
        messages = _messages(posted.where(chosen), peers.time_ns[chosen], wait_ns[chosen], end_ns[chosen])
        found.append(_Side(pid, receives, ranks, *numbers, messages))
    return found


def _waited(marks: Marks, posted: Marks) -> tuple[Int64, Int64]:
    """Return from when until when each posted message was waited for, UNKNOWN where it was not.

    A work is told by its address, which a later one may have again: a wait is for the last one that was posted there.
    """
    waits = marks.of(MarkKind.POSTED_WAIT, MarkKind.POSTED_WAIT_OVER)
    begin, over = followed(waits.time_ns, waits.tid, waits.pid)
    whole = (waits.kind[begin] == MarkKind.POSTED_WAIT) & (waits.kind[over] == MarkKind.POSTED_WAIT_OVER)
    over_ns, asked = waits.time_ns[over[whole]], waits.where(begin[whole])
    pid, work = np.concatenate((posted.pid, asked.pid)), np.concatenate((posted.arg2, asked.arg0))
    time_ns = np.concatenate((posted.time_ns, asked.time_ns))
    wait_ns, end_ns = np.full(len(posted), UNKNOWN), np.full(len(posted), UNKNOWN)
    before, after = followed(time_ns, work, pid)
    pairs = (before < len(posted)) & (after >= len(posted)) & (work[before] != 0)
    row = after[pairs] - len(posted)
    wait_ns[before[pairs]], end_ns[before[pairs]] = asked.time_ns[row], over_ns[row]
    return wait_ns, end_ns


def _messages(posted: Marks, begin_ns: Int64, wait_ns: Int64, end_ns: Int64) -> Collectives:
    """Return messages as collectives of one kind, so that both sides are alike.

    They begin where they are asked for: a send has often arrived before its sender has what it waits for it with.
    """
    return Collectives.of_no_group(
        posted,
        begin_ns=begin_ns,
        end_ns=end_ns,
        bytes=bytes_of(posted.arg0),
        kind=np.full(len(posted), int(CollectiveKind.SEND)),
        backend=posted.arg1,
        ranks=np.full(len(posted), 2),
        posted_ns=wait_ns,
        work=posted.arg2,
    )


def _other_side(
    side: _Side, others: Sequence[_Side], ranks: Mapping[int, int], world_size: int | None
) -> tuple[_Side | None, Int64]:
    """Return who receives what a process sends, and which of its messages each one is (-1: none)."""
    best: _Side | None = None
    partner = np.full(len(side.messages), -1)
    for other in others:
        alike = (other.ranks, other.sender, other.receiver) == (side.ranks, side.sender, side.receiver)
        if not alike or other.pid == side.pid:
            continue
        if side.ranks == world_size and ranks.get(other.pid, side.receiver) != side.receiver:
            continue
        found = partners(side.messages, other.messages)
        if (found >= 0).sum() > (partner >= 0).sum():
            best, partner = other, found
    return best, partner


def _alone(messages: Collectives, group: int) -> Members:
    return lone_members(messages, np.full(len(messages), group), messages.begin_ns)


def _both(
    sent: Collectives, received: Collectives, partner: Int64, event: int, group: int, clocks: ClockBounds
) -> tuple[Members, Members]:
    """Return what both sides of some messages are to each other: who of the two was ready last."""
    mine = np.flatnonzero(partner >= 0)
    theirs = partner[mine]
    found = []
    for own, rows, other, others in ((sent, mine, received, theirs), (received, theirs, sent, mine)):
        members = _alone(own, group)
        mine_ns, other_ns = own.begin_ns[rows], other.begin_ns[others]
        ready = np.maximum(mine_ns, other_ns)
        last = np.where(mine_ns >= other_ns, own.pid[rows], other.pid[others])
        tells = clocks.tell(own.pid[rows], mine_ns, last, ready)
        members.event[rows] = event + mine
        members.ready_ns[rows] = ready
        members.last_pid[rows] = np.where(tells | (last == own.pid[rows]), last, UNKNOWN)
        members.late_ns[rows] = np.where(tells, ready, mine_ns)
        members.seen[rows] = 2
        found.append(members)
    return found[0], found[1]


_MESSAGES = {MarkKind.SEND_POSTED: CollectiveKind.SEND, MarkKind.RECEIVE_POSTED: CollectiveKind.RECEIVE}


def all_posted(marks: Marks, found: FoundCollectives) -> Collectives:
    """Return everything that was posted; `found` are the collectives of these marks."""
    return concatenate(Collectives, [found.posted, *(_handed_over(marks, mark) for mark in _MESSAGES)])


def _handed_over(marks: Marks, mark: MarkKind) -> Collectives:
    rows = marks.of(mark)
    kind = np.full(len(rows), int(_MESSAGES[mark]))
    return Collectives.of_no_group(rows, bytes=bytes_of(rows.arg0), kind=kind, backend=rows.arg1)
