"""Messages between two: whose end was seen, and which is the same on both sides; and what is handed over unseen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.collectives import Collectives, FoundCollectives
from netprof.analysis.events.matching import partners
from netprof.analysis.events.members import UNTOLD_NS, Members, Traffic, lone_members
from netprof.analysis.events.order import ONE_CLOCK, ClockBounds
from netprof.analysis.events.sizes import bytes_of
from netprof.analysis.tables.columns import UNKNOWN, Int64, concatenate, followed, grouped
from netprof.analysis.tables.marks import Marks
from netprof.schema import CollectiveKind, MarkKind

_POSTED = (MarkKind.SEND_POSTED, MarkKind.RECEIVE_POSTED)
_RANKS_ABOVE = 32
_SURE = 0.8
"""Share of the messages that fit the likeliest receiver that fit another one that may be it, too."""


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
    traffic: Traffic,
    clocks: ClockBounds = ONE_CLOCK,
) -> Exchanges:
    """Return the collectives, whose members are known, and the messages that were waited for, by begin.

    `ranks` are those of the job, by pid, and `world_size` how many there are: the numbers in a group of all of them.
    `traffic` is what processes exchanged.
    """
    sides = _sides(marks)
    if not sides:
        return Exchanges(collectives, members)
    event, group = int(members.event.max(initial=-1)) + 1, int(members.group.max(initial=-1)) + 1
    events, members_of, groups = [collectives], [members], dict[frozenset[int], int]()
    left = [side for side in sides if side.receives]
    for side in [side for side in sides if not side.receives]:
        receiving, partner = _other_side(side, left, ranks, world_size, traffic)
        events.append(side.messages)
        if receiving is None:
            members_of.append(_alone(side.messages, group))
            group += 1
            continue
        left.remove(receiving)
        pair = frozenset((side.pid, receiving.pid))
        if pair not in groups:
            groups[pair], group = group, group + 1
        members_of += _both(side.messages, receiving.messages, partner, event, groups[pair], clocks)
        event += len(side.messages)
        events.append(receiving.messages)
    for side in left:
        events.append(side.messages)
        members_of.append(_alone(side.messages, group))
        group += 1
    every = concatenate(Collectives, events)
    order = np.argsort(every.begin_ns, kind="stable")
    return Exchanges(every.where(order), concatenate(Members, members_of).where(order))


def _sides(marks: Marks) -> list[_Side]:
    """Return the messages by process, peer and direction."""
    rows = marks.of(MarkKind.MESSAGE_PEER, *_POSTED)
    before, after = followed(rows.time_ns, rows.tid, rows.pid)
    pairs = np.isin(rows.kind[after], _POSTED) & (rows.kind[before] == MarkKind.MESSAGE_PEER)
    posted, peers = rows.where(after[pairs]), rows.where(before[pairs])
    wait_ns, end_ns = _waited(marks, posted)
    known = (end_ns != UNKNOWN) & (peers.arg0 != UNKNOWN)
    posted, peers, wait_ns, end_ns = posted.where(known), peers.where(known), wait_ns[known], end_ns[known]
    rank, size, peer = peers.arg2 & (1 << _RANKS_ABOVE) - 1, peers.arg2 >> _RANKS_ABOVE, peers.arg0
    sides = []
    for chosen in grouped(peer, rank, size, posted.kind, posted.pid):
        chosen = chosen[np.argsort(posted.time_ns[chosen], kind="stable")]
        pid, kind, ranks, mine, theirs = (int(ids[chosen[0]]) for ids in (posted.pid, posted.kind, size, rank, peer))
        receives = kind == MarkKind.RECEIVE_POSTED
        numbers = (theirs, mine) if receives else (mine, theirs)
        messages = _messages(posted.where(chosen), peers.time_ns[chosen], wait_ns[chosen], end_ns[chosen])
        sides.append(_Side(pid, receives, ranks, *numbers, messages))
    return sides


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
    side: _Side, others: Sequence[_Side], ranks: Mapping[int, int], world_size: int | None, traffic: Traffic
) -> tuple[_Side | None, Int64]:
    """Return who receives what a process sends, and which of its messages each one is (-1: none).

    Replicas of a pipeline send alike at the same times: of those that fit about as well, it is the one with which the
    process exchanged the most bytes.
    """
    fits: list[tuple[float, int, _Side, Int64]] = []
    for candidate in others:
        alike = (candidate.ranks, candidate.sender, candidate.receiver) == (side.ranks, side.sender, side.receiver)
        if not alike or candidate.pid == side.pid:
            continue
        if side.ranks == world_size and ranks.get(candidate.pid, side.receiver) != side.receiver:
            continue
        partner = partners(side.messages, candidate.messages)
        if same := int((partner >= 0).sum()):
            fits.append((traffic.get((side.pid, candidate.pid), 0.0), same, candidate, partner))
    enough = _SURE * max((same for _, same, _, _ in fits), default=0)
    likely = [fit for fit in fits if fit[1] >= enough]
    if not likely:
        return None, np.full(len(side.messages), -1)
    _, _, best, partner = max(likely, key=lambda fit: fit[:2])
    return best, partner


def _alone(messages: Collectives, group: int) -> Members:
    return lone_members(messages, np.full(len(messages), group), messages.begin_ns)


def _both(
    sent: Collectives, received: Collectives, partner: Int64, event: int, group: int, clocks: ClockBounds
) -> tuple[Members, Members]:
    """Return what both sides of some messages are to each other: who of the two was ready last."""
    sent_rows = np.flatnonzero(partner >= 0)
    received_rows = partner[sent_rows]
    sides = []
    for mine, rows, theirs, their_rows in (
        (sent, sent_rows, received, received_rows),
        (received, received_rows, sent, sent_rows),
    ):
        members = _alone(mine, group)
        mine_ns, theirs_ns = mine.begin_ns[rows], theirs.begin_ns[their_rows]
        ready = np.maximum(mine_ns, theirs_ns)
        last = np.where(mine_ns >= theirs_ns, mine.pid[rows], theirs.pid[their_rows])
        tells = clocks.tell(mine.pid[rows], mine_ns, last, ready)
        members.event[rows] = event + sent_rows
        members.ready_ns[rows] = ready
        members.last_pid[rows] = np.where(tells | (last == mine.pid[rows]), last, UNKNOWN)
        members.late_ns[rows] = np.where(tells, ready, mine_ns)
        members.seen[rows] = 2
        room_ns = clocks.room_ns(mine.pid[rows], theirs.pid[their_rows])
        members.untold_ns[rows] = np.clip(room_ns - np.abs(mine_ns - theirs_ns), 0, UNTOLD_NS).astype(np.int64)
        sides.append(members)
    return sides[0], sides[1]


_MESSAGES = {MarkKind.SEND_POSTED: CollectiveKind.SEND, MarkKind.RECEIVE_POSTED: CollectiveKind.RECEIVE}


def all_posted(marks: Marks, collectives: FoundCollectives) -> Collectives:
    """Return everything that was posted; `collectives` are those of these marks."""
    messages = [_handed_over(marks, *kinds) for kinds in _MESSAGES.items()]
    return concatenate(Collectives, [collectives.posted, *messages])


def _handed_over(marks: Marks, mark: MarkKind, message: CollectiveKind) -> Collectives:
    rows = marks.of(mark)
    kind = np.full(len(rows), int(message))
    return Collectives.of_no_group(rows, bytes=bytes_of(rows.arg0), kind=kind, backend=rows.arg1)
