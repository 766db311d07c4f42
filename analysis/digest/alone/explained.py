"""What the ranks of one host wait for, by what all hosts know; and what the ranks of all hosts do, put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.account.bottlenecks import turns
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
from netprof.analysis.account.group_times import Times
from netprof.analysis.account.held_up import Kind, Windows
from netprof.analysis.account.lateness import resolve_lateness
from netprof.analysis.account.pieces import contains, cut_at
from netprof.analysis.account.waiting import (
    NOBODY,
    WITHOUT_COLLECTIVE,
    Known,
    Waiting,
    explain,
    when_all_seen,
    within,
)
from netprof.analysis.digest.alone.apart import by_group, in_span
from netprof.analysis.digest.alone.own import Own, check_size
from netprof.analysis.digest.alone.whole_wire import (
    Side,
    WholeWire,
    WirePart,
    ports_alone,
    whole_wire,
    wire_part,
    wires_together,
)
from netprof.analysis.digest.alone.world import World
from netprof.analysis.digest.spans import What
from netprof.analysis.events.iterations import IterationTimes
from netprof.analysis.events.members import Members, together
from netprof.analysis.events.typical import Durations, durations
from netprof.analysis.findings.bandwidth import Bandwidths, rank_bandwidths
from netprof.analysis.findings.bounds_finding import CountedSteps, counted, counted_together
from netprof.analysis.findings.waiting_finding import RankWaiting
from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Int32, Int64, concatenate, distinct
from netprof.analysis.tables.intervals import Intervals, merge, union

EVERYBODY = -1
"""So many are all."""
_ENDLESS = np.iinfo(np.int64).max
_FULL = {LINK_FULL: What.FULL, OTHER_TRAFFIC: What.OTHERS}
_NUMBER = {cause: number for number, cause in enumerate(WAIT_CAUSES)}


@dataclass(frozen=True, eq=False)
class Wires:
    """What explains the waiting of everybody: by communicator that all hosts know, and for what only RDMA ports carry.

    Number 0 is the whole job.
    """

    groups: Mapping[int, WholeWire]
    ports: WholeWire

    def of(self, group: int) -> WholeWire:
        """Return that of a communicator; of one that not all hosts know, that of the whole job."""
        return self.groups.get(group, self.groups[0])


@dataclass(frozen=True, eq=False)
class Excuses:
    """What those waited for that were late while others waited for them; and when anybody waited for loss to be made
    good."""

    waiting: Waiting
    lost: Intervals


@dataclass(frozen=True, eq=False)
class Behind(Columns):
    """Who or what was waited for in a window, for how long; ns.

    `thing` is a process (of kind RANK), a `Side` (LINK) or a flow (PATH), by its number; a link is waited for by the
    members of a communicator, `group`. Of the processes of some host `ns` is how long all waited, `most_ns` the one
    that did for longest, and `median_ns` the median of the `mates` that can, of so many on all hosts (`of_mates`;
    EVERYBODY: all ranks, or all that are mates of a rank); of a link the latter only while no other one was full, and
    `shared_ns` is how much of `ns` another one was.
    """

    kind: Int64
    thing: Int64
    group: Int64
    cause: Int64
    window: Int64
    ns: Int64
    most_ns: Int64
    median_ns: Int64
    mates: Int64
    of_mates: Int64
    shared_ns: Int64


@dataclass(frozen=True)
class OfRank:
    """How long the iterations of a process last, and how fast its all-reduces are once all have asked for them.

    Where it is only seen to launch the latter is not known.
    """

    durations: Durations | None
    bandwidths: Bandwidths | None


@dataclass(frozen=True, eq=False)
class Explained:
    """What the ranks of some hosts wait for: ns.

    `of_ranks` is by process. `causes_ns` is by cause and window, all ranks together; `least_ns` what the one waits
    that waits the least for a cause, and `late_ns` how long each of `pids` waits for a late rank, by window.
    `slow` is when any waits for the transport, `transport_ns` for how long all do in each window, by communicator that
    is a part of the job and under 0 in all others; `unplaced_ns` is how much of what is unseen is so since nobody knows
    when bytes passed. `mates` is with how many others each process is in communicators, EVERYBODY where with all.
    `of_parts` collectives are of a part of the job and have members on other hosts of which nobody knows which they
    are. Where it is only seen to launch, all that is what they wait at most, `surely` is what they do at least, and
    `counted` are the steps.
    """

    by_rank: tuple[RankWaiting, ...]
    of_ranks: Mapping[int, OfRank]
    causes_ns: Int64
    least_ns: Int64
    pids: Int64
    late_ns: Int64 | Int32
    behind: Behind
    slow: Intervals
    transport_ns: Mapping[int, Int64]
    mates: Mapping[int, int]
    unplaced_ns: int
    of_parts: int
    counted: CountedSteps
    surely: Explained | None = None


def wires_on(own: Own, world: World) -> dict[int, WirePart]:
    """Return what the wire of one host did, by communicator."""
    return {
        number: wire_part(own, world.groups[number].turn, own.members_of(number)) for number in {0, *own.groups}
    }  # fmt: skip


def all_wires(world: World, parts: Sequence[Mapping[int, WirePart]]) -> dict[int, WirePart]:
    """Return what the wires of several hosts did, by communicator."""
    numbers = dict.fromkeys(number for part in parts for number in part)
    return {
        number: wires_together(world.groups[number].turn, [part[number] for part in parts if number in part])
        for number in numbers
    }


def wires_of(world: World, parts: Mapping[int, WirePart]) -> Wires:
    """Return what explains the waiting of everybody, of what the wires of all hosts did."""
    groups = {number: whole_wire(world.groups[number].turn, part) for number, part in parts.items()}
    return Wires(groups, ports_alone(parts[0]))


def excuses_of(own: Own, world: World, wires: Wires) -> Excuses:
    """Return what the processes of one host waited for while others waited for them, and when they last had before."""
    waits = own.by_pid(What.WAITS)
    waiting = explain(waits, _known(own, world, wires))
    late = {}
    for pid in np.unique(waiting.pid).tolist():
        its = [each.last_pid == pid for each in world.groups.values()]
        first_ns, ready_ns = (
            np.concatenate([getattr(each, name)[own] for each, own in zip(world.groups.values(), its, strict=True)])
            for name in ("first_ns", "ready_ns")
        )
        before = np.searchsorted(waits[pid].end_ns, ready_ns, "right") - 1
        late[pid] = merge(first_ns, ready_ns) | waits[pid].where(np.unique(before[before >= 0]))
    lost = waiting.of(LOSS)
    return Excuses(within(waiting, late), merge(lost.begin_ns, lost.end_ns))


def excuses_together(parts: Sequence[Excuses]) -> Excuses:
    """Return those of several hosts."""
    return Excuses(concatenate(Waiting, [part.waiting for part in parts]), union([part.lost for part in parts]))


def all_excuses(found: Excuses) -> Excuses:
    """Return those of all hosts: who was late because another one was waits for that one's reasons."""
    waiting = found.waiting.where(np.lexsort((found.waiting.begin_ns, found.waiting.pid)))
    return Excuses(resolve_lateness(waiting, {}), found.lost)


def explained_of(own: Own, world: World, wires: Wires, excuses: Excuses) -> Explained:
    """Return what the ranks of one host wait for, in their whole iterations in the time that all hosts recorded."""
    known = _known(own, world, wires)
    waiting = explain(own.by_pid(What.WAITS), known)
    others = excuses.waiting.where(~np.isin(excuses.waiting.pid, waiting.pid))
    every = resolve_lateness(_in_order(concatenate(Waiting, [waiting, others])), own.by_pid(What.WAITS))
    iterations = own.accounted.inside(world.span_ns)
    pids = np.unique(iterations.pid)
    check_size(len(pids), len(world.windows))
    inside = {pid: iterations.whole(pid) for pid in pids.tolist()}
    told = _Told(own, world, wires, excuses, inside, _mates(own, world, known.members))
    waiting = within(every.where(np.isin(every.pid, pids)), inside)
    found = replace(
        _amounts(waiting, told),
        of_ranks=_of_ranks(own, inside, known, world),
        of_parts=int(_is_untold(known.members, world).sum()),
    )
    if not world.bounded:
        return found
    surely = own.by_pid(What.SURELY if own.job.bounded else What.WAITS)
    return replace(found, counted=_counted(own, world), surely=_amounts(within(waiting, surely), told))


def _is_untold(members: Members, world: World) -> Bool:
    """Return which collectives are of a part of the job, with members on other hosts that nobody knows.

    One of the whole job that no other host has, at an edge of the recording, is none.
    """
    untold = (members.group >= world.first_local) & (members.seen < members.ranks)
    if world.world_size is not None:
        untold &= members.ranks < world.world_size
    return np.asarray(untold)


def _mates(own: Own, world: World, members: Members) -> dict[int, frozenset[int]] | None:
    """Return who is in communicators with each process of a host; None where all are, or nothing is known."""
    if world.groups[0].seen.max(initial=0) > 1:
        return None
    found: dict[int, frozenset[int]] = {}
    for number in np.unique(members.group[members.group >= 0]).tolist():
        its = frozenset(np.unique(own.collectives.pid[members.group == number]).tolist())
        every = world.groups[number].pids if number in world.groups else its
        for pid in its:
            found[pid] = found.get(pid, frozenset()) | every
    return found


@dataclass(frozen=True, eq=False)
class _Told:
    """What is known where one host's waiting is summed up; `inside` are the iterations of its processes.

    `mates` is as `_mates` has it.
    """

    own: Own
    world: World
    wires: Wires
    excuses: Excuses
    inside: Mapping[int, Intervals]
    mates: Mapping[int, frozenset[int]] | None

    def number_of_mates(self, pid: int) -> int:
        """Return with how many others a process is in communicators."""
        return EVERYBODY if self.mates is None else len(self.mates.get(pid, frozenset()) - {pid})

    def in_group(self, group: int) -> Bool:
        """Return which processes take part in a communicator that all hosts know; of any other, all."""
        pids = np.array(list(self.inside), np.int64)
        if group > 0 and group in self.wires.groups:
            return np.isin(pids, self.own.members_of(group))
        return np.ones(len(pids), bool)

    def of_mates(self, group: int) -> int:
        """Return how many take part in it on all hosts."""
        return len(self.world.groups[group].pids) if group > 0 and group in self.wires.groups else EVERYBODY

    def are_mates(self, things: Int64) -> Bool:
        """Return which processes are in communicators with each of some; shape (things, processes)."""
        pids = np.array(list(self.inside), np.int64)
        others = things[:, None] != pids[None, :]
        if self.mates is None:
            return np.asarray(others)
        mates = [self.mates.get(pid, frozenset()) for pid in pids.tolist()]
        known = [[thing in its for its in mates] for thing in things.tolist()]
        return np.asarray(others & np.array(known, bool).reshape(others.shape))


def _amounts(waiting: Waiting, told: _Told) -> Explained:
    """Return how much is waited for what, of stretches in whole iterations."""
    pids, windows = np.array(list(told.inside), np.int64), told.world.windows
    window = Intervals(windows.begin_ns, windows.end_ns)
    parts = _cut_by_group(waiting, told.wires, window)
    parts = parts.where(_place(window, parts.begin_ns) != UNKNOWN)
    asked = _Asked(pids, parts, _place(window, parts.begin_ns), len(window))
    causes_ns, least_ns = (
        np.zeros((len(WAIT_CAUSES), len(window)), np.int64),
        np.zeros((len(WAIT_CAUSES), len(window)), np.int64),
    )
    late_ns: Int64 | Int32 = np.zeros((len(pids), len(window)), np.int32)
    for number, cause in enumerate(WAIT_CAUSES):
        waited = asked.by_process(cause)
        causes_ns[number], least_ns[number] = waited.sum(axis=0), waited.min(axis=0, initial=_ENDLESS)
        late_ns = _narrow(waited) if cause is LATE_RANK else late_ns
    slow = waiting.of(TRANSPORT)
    return Explained(
        by_rank=tuple(_rank(pid, waiting, told.own, inside) for pid, inside in told.inside.items()),
        of_ranks={},
        causes_ns=causes_ns,
        least_ns=least_ns,
        pids=pids,
        late_ns=late_ns,
        behind=_behind(told, asked),
        slow=merge(slow.begin_ns, slow.end_ns),
        transport_ns=_by_group(asked, told.wires),
        mates={pid: told.number_of_mates(pid) for pid in told.inside},
        of_parts=0,
        unplaced_ns=_unplaced_ns(waiting.of(UNSEEN), told.wires),
        counted=counted_together([]),
    )


def _cut_by_group(waiting: Waiting, wires: Wires, window: Intervals) -> Waiting:
    """Cut stretches by windows, by the turns of what is waited for, and where more than one link is full."""
    found = []
    for number in np.unique(waiting.group).tolist():
        wire = wires.of(number)
        found.append(_cut(waiting.where(waiting.group == number), window, wire.turn, wire.links.several))
    return concatenate(Waiting, found)


def _by_group(asked: _Asked, wires: Wires) -> dict[int, Int64]:
    """Return for how long all wait for the transport in each window, as `Explained` has it."""
    rows = asked.of(TRANSPORT)
    group = asked.parts.group[rows]
    group = np.where(np.isin(group, list(wires.groups)), group, 0)
    found = {}
    for number in np.unique(group).tolist():
        own = rows[group == number]
        ns = np.bincount(asked.window[own], asked.parts.length_ns[own], minlength=asked.windows)
        found[number] = ns.astype(np.int64)
    return found


def _unplaced_ns(unseen: Waiting, wires: Wires) -> int:
    found = 0
    for number in np.unique(unseen.group).tolist():
        own = unseen.where(unseen.group == number)
        found += (merge(own.begin_ns, own.end_ns) & wires.of(number).unplaced).total_ns
    return found


def _counted(own: Own, world: World) -> CountedSteps:
    """Count the steps in the time that all hosts recorded; what marks tell is no step of a profile."""
    steps = own.steps
    inside = (steps.begin_ns >= world.span_ns[0]) & (steps.end_ns <= world.span_ns[1])
    steps = steps.where(inside)
    return counted(steps.pid, steps.least_ns, steps.most_ns, steps.exact)


def explained_together(parts: Sequence[Explained]) -> Explained:
    """Return what the ranks of several hosts wait for."""
    surely = [part.surely for part in parts if part.surely is not None]
    return Explained(
        by_rank=tuple(rank for part in parts for rank in part.by_rank),
        of_ranks={pid: found for part in parts for pid, found in part.of_ranks.items()},
        causes_ns=np.sum([part.causes_ns for part in parts], axis=0, dtype=np.int64),
        least_ns=np.minimum.reduce([part.least_ns for part in parts]),
        pids=np.concatenate([part.pids for part in parts]),
        late_ns=np.concatenate([part.late_ns for part in parts]),
        behind=concatenate(Behind, [part.behind for part in parts]),
        slow=union([part.slow for part in parts]),
        transport_ns=by_group([part.transport_ns for part in parts], _sum),
        mates={pid: count for part in parts for pid, count in part.mates.items()},
        of_parts=sum(part.of_parts for part in parts),
        unplaced_ns=sum(part.unplaced_ns for part in parts),
        counted=counted_together([part.counted for part in parts]),
        surely=explained_together(surely) if surely else None,
    )


def _sum(parts: Sequence[Int64]) -> Int64:
    return np.asarray(np.sum(parts, axis=0, dtype=np.int64))


def _known(own: Own, world: World, wires: Wires) -> Known:
    """Return what explains the waiting of one host's processes."""
    members = world.members_on(own)
    groups: dict[int, Times] = {**wires.groups, WITHOUT_COLLECTIVE: wires.ports}
    for number in np.unique(members.group[members.group >= world.first_local]).tolist():
        groups[number] = _of_part(own, members, number)
    return Known(
        collectives=own.collectives,
        members=members,
        on_wire=own.on_wire,
        groups=groups,
        all_seen=when_all_seen(members, own.collectives)
        | {number: each.all_seen for number, each in world.groups.items()},
        hidden=own.by_pid(What.HIDDEN),
        carried=own.by_pid(What.ON_PORTS),
    )


def _of_part(own: Own, members: Members, group: int) -> WholeWire:
    """Return what explains the waiting in a communicator that not all hosts know, as far as this one does."""
    turn = turns(own.collectives, members, group)
    pids = set(np.unique(own.collectives.pid[members.group == group]).tolist())
    return whole_wire(turn, wire_part(own, turn, pids))


def _narrow(values: Int64) -> Int64 | Int32:
    """Return values in 32 bits where they fit: there is one for each rank and iteration of the job."""
    return values.astype(np.int32) if values.max(initial=0) <= np.iinfo(np.int32).max else values


def _in_order(waiting: Waiting) -> Waiting:
    return waiting.where(np.lexsort((waiting.begin_ns, waiting.pid)))


def _cut(waiting: Waiting, *sets: Intervals) -> Waiting:
    """Cut stretches by the edges of some sets of time."""
    edges = distinct(*(edge for each in sets for edge in (each.begin_ns, each.end_ns)))
    begin, end, row = cut_at(waiting.begin_ns, waiting.end_ns, edges)
    return replace(waiting.where(row), begin_ns=begin, end_ns=end)


def _place(times: Intervals, at_ns: Int64) -> Int64:
    """Return in which interval each instant lies, UNKNOWN for none; they are ascending and disjoint, and may touch."""
    if len(times) == 0:
        return np.full(len(at_ns), UNKNOWN)
    place = np.searchsorted(times.begin_ns, at_ns, "right") - 1
    return np.where((place >= 0) & (at_ns < times.end_ns[place]), place, UNKNOWN)


def _rank(pid: int, waiting: Waiting, own: Own, iterations: Intervals) -> RankWaiting:
    its = waiting.where(waiting.pid == pid)
    causes = np.bincount(its.cause, weights=its.length_ns, minlength=len(WAIT_CAUSES)).astype(np.int64)
    rank = own.host.told_ranks.get(pid)
    return RankWaiting(pid, rank, iterations.total_ns, int(causes.sum()), tuple(causes.tolist()))


def _of_ranks(own: Own, inside: Mapping[int, Intervals], known: Known, world: World) -> dict[int, OfRank]:
    times = in_span(own.times, world.span_ns)
    if own.job.bounded:  # how long a collective takes is not known
        pids = np.unique(times.pid).tolist()
        return {pid: OfRank(durations(times.where(times.pid == pid)), None) for pid in pids}
    return {pid: _of_rank(pid, times, iterations, known, world) for pid, iterations in inside.items()}


def _of_rank(pid: int, times: IterationTimes, iterations: Intervals, known: Known, world: World) -> OfRank:
    mine = known.collectives.pid == pid
    own = together(known.collectives.where(mine), known.members.where(mine))
    return OfRank(durations(times.where(times.pid == pid)), rank_bandwidths(own, iterations, world.world_size, None))


@dataclass(frozen=True, eq=False)
class _Things:
    """What is waited for, row by row, and whether anything else is at the same time; for the rest as `Behind`.

    `mates` says of some things which processes can wait for each; shape (things, processes).
    """

    kind: Kind
    group: int
    thing: Int64
    shared: Bool
    mates: Callable[[Int64], Bool]
    of_mates: int


@dataclass(frozen=True, eq=False)
class _Asked:
    """Stretches of some processes, each within one window and one turn."""

    pids: Int64
    parts: Waiting
    window: Int64
    windows: int

    def of(self, cause: Cause) -> Int64:
        """Return the rows with one cause."""
        return np.flatnonzero(self.parts.cause == _NUMBER[cause])

    def by_process(self, cause: Cause) -> Int64:
        """Return for how long each process waits for a cause in each window; shape (processes, windows), ns."""
        own = self.of(cause)
        cell = np.searchsorted(self.pids, self.parts.pid[own]) * self.windows + self.window[own]
        ns = np.bincount(cell, self.parts.length_ns[own], minlength=len(self.pids) * self.windows)
        return ns.astype(np.int64).reshape(len(self.pids), self.windows)

    def summed(self, cause: Cause, rows: Int64, things: _Things) -> Behind:
        """Return for how long what was waited for, of some rows."""
        own, count, shared = self.parts.where(rows), len(self.pids), things.shared
        different, of_thing = np.unique(things.thing, return_inverse=True)
        cells, cell = np.unique(of_thing.reshape(-1) * self.windows + self.window[rows], return_inverse=True)
        place = cell.reshape(-1) * count + np.searchsorted(self.pids, own.pid)

        def by_process(which: Bool) -> Int64:
            ns = np.bincount(place[which], own.length_ns[which], minlength=len(cells) * count)
            return ns.astype(np.int64).reshape(len(cells), count)

        every, alone = by_process(np.ones(len(rows), bool)), by_process(~shared)
        thing = different[cells // self.windows]
        is_mate = things.mates(thing)
        return Behind(
            kind=np.full(len(cells), int(things.kind)),
            thing=thing,
            group=np.full(len(cells), things.group),
            cause=np.full(len(cells), _NUMBER[cause]),
            window=cells % self.windows,
            ns=every.sum(axis=1),
            most_ns=np.where(is_mate, every, 0).max(axis=1, initial=0),
            median_ns=_median(alone, is_mate),
            mates=is_mate.sum(axis=1),
            of_mates=np.full(len(cells), things.of_mates),
            shared_ns=(every - alone).sum(axis=1),
        )


def _median(values: Int64, which: Bool) -> Int64:
    """Return the median of some values of each row, 0 of none."""
    found, some = np.zeros(len(values)), which.any(axis=1)
    found[some] = np.nanmedian(np.where(which, values, np.nan)[some], axis=1)
    return np.rint(found).astype(np.int64)


def _behind(told: _Told, asked: _Asked) -> Behind:
    """Return what was waited for by one host's processes."""
    found = []
    for cause in (LATE_RANK, HOST):
        rows = asked.of(cause)
        rows = rows[asked.parts.culprit[rows] != NOBODY]
        culprit, nothing = asked.parts.culprit[rows], np.zeros(len(rows), bool)
        things = _Things(Kind.RANK, UNKNOWN, culprit, nothing, told.are_mates, EVERYBODY)
        found.append(asked.summed(cause, rows, things))
    for cause in (LINK_FULL, OTHER_TRAFFIC):
        rows = asked.of(cause)
        for group in np.unique(asked.parts.group[rows]).tolist():
            found.append(_of_links(told, asked, cause, rows[asked.parts.group[rows] == group]))
    return concatenate(Behind, [*found, _of_flows(told.own, told.wires, told.excuses.lost, told.world.windows)])


def _of_links(told: _Told, asked: _Asked, cause: Cause, rows: Int64) -> Behind:
    """Return which links were waited for by the members of one communicator."""
    group, at_ns = int(asked.parts.group[rows[0]]), asked.parts.begin_ns[rows]
    wire = told.wires.of(group)
    if group in told.wires.groups:
        side = np.append(wire.links.best, UNKNOWN)[_place(wire.turn, at_ns)]
    else:
        side = _own_side(told.own, _FULL[cause], at_ns)
    rows, at_ns, side = rows[side != UNKNOWN], at_ns[side != UNKNOWN], side[side != UNKNOWN]
    shared, members = contains(wire.links.several, at_ns), told.in_group(group)

    def mates(things: Int64) -> Bool:
        return np.tile(members, (len(things), 1))

    return asked.summed(cause, rows, _Things(Kind.LINK, group, side, shared, mates, told.of_mates(group)))


def _own_side(own: Own, what: What, at_ns: Int64) -> Int64:
    """Return which of a host's own links is full at some instants, the one that is so for longest; UNKNOWN where none.

    Of a communicator that not all hosts know no other host's links are known.
    """
    full = {key: times for key, times in own.spans.items() if key.what is what and isinstance(key.link, int)}
    side = np.full(len(at_ns), UNKNOWN)
    for key in sorted(full, key=lambda key: full[key].total_ns):
        number = Side(own.number, int(key.link), key.direction).number  # type: ignore[arg-type]
        side = np.where(contains(full[key], at_ns), number, side)
    return side


def _of_flows(own: Own, wires: Wires, lost: Intervals, windows: Windows) -> Behind:
    """Return for how long it was waited for each of the host's flows to recover."""
    places = dict[str, int](), dict[str, list[Intervals]]()
    for place, (key, times) in enumerate(own.spans.items()):
        if key.what in (What.RECOVERS, What.RESENDS):
            places[0].setdefault(key.flow, place)
            number = own.flow_number(place)
            silent = [wire.lost[number] for wire in wires.groups.values() if number in wire.lost]
            places[1].setdefault(key.flow, []).extend([times] if key.what is What.RECOVERS else silent)
    parts = []
    for flow, place in places[0].items():
        ns = windows.of(union(places[1][flow]) & lost)
        rows = np.flatnonzero(ns)
        parts.append(_of_flow(own.flow_number(place), rows, ns[rows]))
    return concatenate(Behind, parts)


def _of_flow(thing: int, window: Int64, ns: Int64) -> Behind:
    same = np.ones(len(window), np.int64)
    return Behind(
        kind=int(Kind.PATH) * same,
        thing=thing * same,
        group=UNKNOWN * same,
        cause=_NUMBER[LOSS] * same,
        window=window,
        ns=ns,
        most_ns=ns,
        median_ns=ns,
        mates=same,
        of_mates=same,
        shared_ns=0 * same,
    )
