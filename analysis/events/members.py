"""Who takes part in which collective: the k-th of a communicator is one event on all of its ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

import numpy as np

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.matching import partners
from netprof.analysis.events.order import ONE_CLOCK, ClockBounds
from netprof.analysis.events.roots import is_root, last_awaited, may_be_one
from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Int64, grouped
from netprof.schema import CollectiveKind

_AT_EDGES = 2  # collectives that only one of them was seen to finish, however few there are
_SURE = 0.8
"""Share of a rank's collectives that have to fit another's for the two to be of one communicator."""

UNTOLD_NS = 1 << 60
"""How far apart clocks are where that is unknown: longer than anything."""

Traffic = Mapping[tuple[int, int], float]
"""Bytes that went between two processes; (a, b) and (b, a) alike."""


@dataclass(frozen=True, eq=False)
class Members(Columns):
    """What the other ranks of a collective did, row by row as the `Collectives` that it was found from.

    `event` is the same number on all members of a collective, and `group` on all members of a communicator; -1 where
    nobody else was seen. `ready_ns` is when the last member posted it that this one waited for, as far as was seen, and
    `last_pid` that member: itself where it waited for none, UNKNOWN where the hosts' clocks do not tell which one was
    last. Until `late_ns` it surely waited for another one, and for `untold_ns` from `ready_ns` on another one may still
    have been to come, as far as the clocks tell.
    `seen` of its `ranks` were seen, this one included; `ranks` is UNKNOWN where nothing says it.
    """

    event: Int64
    group: Int64
    ready_ns: Int64
    last_pid: Int64
    late_ns: Int64
    untold_ns: Int64
    seen: Int64
    ranks: Int64


def lone_members(collectives: Collectives, group: Int64, at_ns: Int64) -> Members:
    """Return members of collectives without a second member; each was posted at some instant."""
    one = np.ones(len(collectives), np.int64)
    return Members(
        event=-one,
        group=group.copy(),
        ready_ns=at_ns.copy(),
        last_pid=collectives.pid.copy(),
        late_ns=at_ns.copy(),
        untold_ns=0 * one,
        seen=one,
        ranks=collectives.ranks.copy(),
    )


def together(collectives: Collectives, members: Members) -> Collectives:
    """Return collectives from when all members that were seen had posted them: what bandwidths are of."""
    ready_ns = members.ready_ns
    begin_ns = np.where(ready_ns < collectives.end_ns, np.maximum(ready_ns, collectives.begin_ns), collectives.begin_ns)
    return replace(collectives, begin_ns=begin_ns)


@dataclass(frozen=True, eq=False)
class GroupView:
    """A communicator as one process sees it: the rows of its collectives, by the time they were posted."""

    pid: int
    ranks: int
    number: int
    rows: Int64
    collectives: Collectives
    partner: Int64  # rows of the communicator's first member that are the same collectives, -1: not seen


def find_members(
    collectives: Collectives,
    ranks: Mapping[int, int],
    world_size: int | None,
    traffic: Traffic,
    clocks: ClockBounds = ONE_CLOCK,
) -> Members:
    """Find the communicators of all processes, and which collectives of their members are the same ones.

    Members are told by what their communicator says (its size, their number in it), by collectives that fit together,
    and where more than one could be meant, by whom they exchanged bytes with. `ranks` and `world_size` stand in for
    collectives of no known group: those are taken to be of the whole job. Who was last is only said where `clocks`
    tell.
    """
    event, group = np.full(len(collectives), -1), np.full(len(collectives), -1)
    views = views_of(collectives, ranks, world_size)
    events, groups = 0, communicators(views, traffic)
    for number, members in enumerate(groups):
        for view in members:
            group[view.rows] = number
        events = _number_events(members, event, events)
    messages = np.flatnonzero(~_of_all_members(collectives))
    for number, rows in enumerate(grouped(collectives.pid[messages]), len(groups)):
        group[messages[rows]] = number
    return _summarize(collectives, event, group, views, clocks)


def views_of(collectives: Collectives, ranks: Mapping[int, int], world_size: int | None) -> list[GroupView]:
    """Return every communicator as each process sees it; `ranks` and `world_size` are as `find_members` takes them.

    One that is freed may leave its address to another, of other ranks.
    """
    views, whole = [], np.flatnonzero(_of_all_members(collectives))
    shared = collectives.where(whole)
    for chosen in grouped(shared.number, shared.ranks, shared.group, shared.backend, shared.pid):
        rows = whole[chosen]
        rows = rows[np.argsort(collectives.posted_ns[rows], kind="stable")]
        first = collectives.where(rows[:1])
        pid, size, number = int(first.pid[0]), int(first.ranks[0]), int(first.number[0])
        if first.group[0] == UNKNOWN:
            size, number = UNKNOWN if world_size is None else world_size, ranks.get(pid, UNKNOWN)
        views.append(GroupView(pid, size, number, rows, collectives.where(rows), np.arange(len(rows))))
    return views


def _of_all_members(collectives: Collectives) -> Bool:
    """Tell which collectives all members of a communicator take part in: a message of MPI's is between two of them.

    What both sends and receives names no communicator, and is taken for what every rank does.
    """
    names_one = collectives.group != UNKNOWN
    sent, received = (collectives.kind == kind for kind in (CollectiveKind.SEND, CollectiveKind.RECEIVE))
    return np.asarray(~(received | (sent & names_one)))


def communicators(
    views: Sequence[GroupView], traffic: Traffic, *, guess: bool = True, patience: int | None = None
) -> list[list[GroupView]]:
    """Put the views of one communicator together, the ones with the most collectives first, and of them roots.

    Those that may be of it are tried by what they exchanged with its members so far: in a ring each member exchanges
    bytes with two others only. After `patience` in a row that do not fit no other is tried. Where nothing is known to
    be exchanged, and more fit than there is room for, the first ones are taken; or none, if it is not to `guess`.
    """
    left, near = dict.fromkeys(sorted(views, key=lambda view: -_tells(view.collectives))), _neighbours(traffic)
    groups, untold = [], set()
    while left:
        seed = next(iter(left))
        del left[seed]
        members, may_be = [seed], _MayBe(seed, left, near)
        _join(members, may_be, left, patience, guess=guess)
        kind = seed.ranks, int(seed.collectives.backend[0])
        if not guess and kind not in untold and not _join_sure(members, may_be, left, patience):
            untold.add(kind)  # what fits one of them may be another one's
        groups.append(members)
    return groups


def _tells(collectives: Collectives) -> int:
    """Return how many collectives there are, counting twice those whose root it is: all others waited for that one."""
    return len(collectives) + int(is_root(collectives).sum())


def _join(
    members: list[GroupView], may_be: _MayBe, left: dict[GroupView, None], patience: int | None, *, guess: bool
) -> None:
    """Let those join that exchanged the most with members so far, until it is whole; the first ones, where to guess."""
    unlike = 0
    pids, numbers = {members[0].pid}, {members[0].number} - {UNKNOWN}  # each is there once
    while len(members) != members[0].ranks and unlike != patience and may_be.exchanged:
        view = may_be.nearest()
        if may_be.exchanged[view] == 0 and not guess:
            break
        del may_be.exchanged[view]
        if view.pid in pids or view.number in numbers:
            continue
        unlike += 1
        partner = partners(view.collectives, members[0].collectives)
        if are_one(members[0].collectives, view.collectives, partner):
            members.append(replace(view, partner=partner))
            pids.add(view.pid)
            numbers |= {view.number} - {UNKNOWN}
            del left[view]
            may_be.joins(view)
            unlike = 0


def _join_sure(members: list[GroupView], may_be: _MayBe, left: dict[GroupView, None], patience: int | None) -> bool:
    """Let those join of which nothing is known to be exchanged, if no others might as well; say whether that is so."""
    fit: dict[GroupView, GroupView] = {}
    unlike, room, first = 0, members[0].ranks - len(members), members[0].collectives
    if room == 0:
        return True
    for view in may_be.exchanged:
        partner = partners(view.collectives, first)
        unlike += 1
        if are_one(first, view.collectives, partner):
            fit[view] = replace(view, partner=partner)
            unlike = 0
        if len(fit) > room or unlike == patience:
            return False
    every = [*members, *fit.values()]
    numbers = [view.number for view in every if view.number != UNKNOWN]
    if len(set(numbers)) < len(numbers) or len({view.pid for view in every}) < len(every):
        return False
    members += fit.values()
    for view in fit:
        del left[view]
    return True


class _MayBe:
    """Who may be of a communicator of which one member is known, by the bytes `exchanged` with its members."""

    def __init__(self, seed: GroupView, left: Iterable[GroupView], near: Mapping[int, Mapping[int, float]]) -> None:
        self._near = near
        with_seed = near.get(seed.pid, {})
        self.exchanged = {view: with_seed.get(view.pid, 0.0) for view in left if _are_alike(seed, view)}
        self._of_pid: defaultdict[int, list[GroupView]] = defaultdict(list)
        for view in self.exchanged:
            self._of_pid[view.pid].append(view)
        self._place = {view: place for place, view in enumerate(self.exchanged)}
        self._views = list(self.exchanged)
        self._order = [(-amount, place) for place, amount in enumerate(self.exchanged.values())]
        heapify(self._order)

    def nearest(self) -> GroupView:
        """Return the one that exchanged the most; of those that exchanged as much, the first one."""
        while True:
            amount, place = self._order[0]
            if self.exchanged.get(self._views[place]) == -amount:
                return self._views[place]
            heappop(self._order)  # it is gone, or has exchanged more since

    def joins(self, view: GroupView) -> None:
        """Count what others exchanged with a new member, too."""
        for pid, amount in self._near.get(view.pid, {}).items():
            for candidate in self._of_pid.get(pid, ()):
                if candidate in self.exchanged:
                    self.exchanged[candidate] += amount
                    heappush(self._order, (-self.exchanged[candidate], self._place[candidate]))


def _neighbours(traffic: Traffic) -> dict[int, dict[int, float]]:
    """Return by process with whom it exchanged bytes, and how many."""
    neighbours: dict[int, dict[int, float]] = {}
    for (one, other), amount in traffic.items():
        neighbours.setdefault(one, {})[other] = amount
    return neighbours


def _are_alike(one: GroupView, other: GroupView) -> bool:
    """Tell whether two processes' communicators may be one, by what these say of themselves."""
    alike = other.ranks == one.ranks and other.collectives.backend[0] == one.collectives.backend[0]
    return other.pid != one.pid and alike


def are_one(other: Collectives, one: Collectives, partner: Int64) -> bool:
    """Tell whether collectives have partners among others, row by row, in the time that both were seen."""
    low = max(int(one.begin_ns.min()), int(other.begin_ns.min()))
    high = min(int(one.end_ns.max()), int(other.end_ns.max()))
    both = (one.begin_ns >= low) & (one.end_ns <= high)
    fits = (partner >= 0) & may_be_one(one, other.where(np.maximum(partner, 0)))
    if not both.any():
        both[:] = True
    unlike = int((~fits[both]).sum())
    return bool(unlike < both.sum() and unlike <= max(_AT_EDGES, (1 - _SURE) * both.sum()))


def _number_events(members: Sequence[GroupView], event: Int64, events: int) -> int:
    """Give the collectives of a communicator's first member numbers, and its partners the same; returns the next."""
    first, *others = members
    if not others:
        return events
    event[first.rows] = np.arange(len(first.rows)) + events
    for view in others:
        seen = view.partner >= 0
        event[view.rows[seen]] = view.partner[seen] + events
    return events + len(first.rows)


def _summarize(
    collectives: Collectives, event: Int64, group: Int64, views: Sequence[GroupView], clocks: ClockBounds
) -> Members:
    ranks = np.full(len(event), UNKNOWN)
    for view in views:
        ranks[view.rows] = view.ranks
    seen, rows = np.ones(len(event), np.int64), np.flatnonzero(event >= 0)
    seen[rows] = np.bincount(event[rows])[event[rows]] if len(rows) else seen[rows]
    awaited = last_awaited(collectives, event)
    ready, last = collectives.posted_ns[awaited], collectives.pid[awaited]
    tells = clocks.tell(collectives.pid, collectives.posted_ns, last, ready)
    untold = np.clip(clocks.room_ns(collectives.pid, last) - (ready - collectives.posted_ns), 0, UNTOLD_NS)
    untold = _most_of(awaited, untold.astype(np.int64))
    untold[~_of_all_members(collectives)] = UNTOLD_NS  # nothing tells who the other one is
    unsure = np.unique(awaited[~tells & (collectives.pid != last)])
    known = np.where(np.isin(awaited, unsure), UNKNOWN, last)
    late = np.where(tells, ready, collectives.posted_ns)
    return Members(event, group, ready, known, late, untold, seen, ranks)


def _most_of(awaited: Int64, values: Int64) -> Int64:
    """Return the largest value of all rows that waited for the same one."""
    most = np.zeros(len(values), np.int64)
    np.maximum.at(most, awaited, values)
    return np.asarray(most[awaited])
