"""Who or what the processes of one host waited for, iteration by iteration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.causes import LOSS, WAIT_CAUSES, Cause
from netprof.analysis.account.held_up import CAUSES, Kind
from netprof.analysis.account.wait_pieces import contains
from netprof.analysis.account.waiting import NOBODY, Waiting
from netprof.analysis.digest.host_in_job import JobHost
from netprof.analysis.digest.spans import What
from netprof.analysis.digest.wires_of_job import Side, Wires
from netprof.analysis.digest.world import World
from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Int64, concatenate
from netprof.analysis.tables.intervals import Intervals, row_at, union

EVERYBODY = -1
"""So many are all."""
_DETAILED = 64
"""Ranks up to which it is told of each for how long it waited for what."""
_NUMBER = {cause: number for number, cause in enumerate(WAIT_CAUSES)}


@dataclass(frozen=True, eq=False)
class Behind(Columns):
    """Who or what the processes of a host waited for in a window, for how long; ns.

    `thing` is a process (of kind RANK), a `Side` (LINK) or a flow (PATH), by its number. `ns` is how long all waited,
    `most_ns` the one that did for longest, and `most_alone_ns` the one that did while no other link was full; for
    `shared_ns` of `ns` another one was.
    """

    kind: Int64
    thing: Int64
    cause: Int64
    window: Int64
    ns: Int64
    most_ns: Int64
    most_alone_ns: Int64
    shared_ns: Int64


@dataclass(frozen=True, eq=False)
class ByMates(Columns):
    """For how long those waited that can: mates of a process, and for a link the members of a communicator, `group`.

    `ns` is how long each of `mates` of a host did, of so many on all hosts (`of_mates`; EVERYBODY: all ranks, or all
    that are mates of a process); in a large job that is the median of theirs. Who did not wait is in no row.
    """

    kind: Int64
    thing: Int64
    group: Int64
    cause: Int64
    window: Int64
    ns: Int64
    mates: Int64
    of_mates: Int64


@dataclass(frozen=True, eq=False)
class HostKnowledge:
    """What is known where one host's waiting is summed up; `inside` are the iterations of its processes.

    `lost` is when anybody waited for loss to be made good, `mates` who is in communicators with each process of the
    host; None where all are, or nothing is known.
    """

    job_host: JobHost
    world: World
    wires: Wires
    lost: Intervals
    inside: Mapping[int, Intervals]
    mates: Mapping[int, frozenset[int]] | None

    @property
    def is_large(self) -> bool:
        """Whether there are too many ranks for each one's waiting to be told."""
        return self.world.world_size is None or self.world.world_size > _DETAILED

    def number_of_mates(self, pid: int) -> int:
        """Return with how many others a process is in communicators."""
        return EVERYBODY if self.mates is None else len(self.mates.get(pid, frozenset()) - {pid})

    def in_group(self, group: int) -> Bool:
        """Return which processes take part in a communicator that all hosts know; of any other, all."""
        pids = np.array(list(self.inside), np.int64)
        if group > 0 and group in self.wires.groups:
            return np.isin(pids, self.job_host.members_of(group))
        return np.ones(len(pids), bool)

    def of_mates(self, group: int) -> int:
        """Return how many take part in it on all hosts."""
        return len(self.world.groups[group].pids) if group > 0 and group in self.wires.groups else EVERYBODY

    def are_mates(self, things: Int64) -> Bool:
        """Return which processes are in communicators with each of some; shape (things, processes)."""
        pids = np.array(list(self.inside), np.int64)
        differ = things[:, None] != pids[None, :]
        if self.mates is None:
            return np.asarray(differ)
        known = [[thing in self.mates.get(pid, ()) for pid in self.inside] for thing in things.tolist()]
        return np.asarray(differ & np.array(known, bool).reshape(differ.shape))


@dataclass(frozen=True, eq=False)
class _Cells:
    """What was waited for in which window, and by which process for how long; shape (cells, processes), ns.

    `alone_ns` is while nothing else was waited for at the same time.
    """

    kind: Kind
    cause: Cause
    thing: Int64
    window: Int64
    every_ns: Int64
    alone_ns: Int64

    def behind(self, can: Bool) -> Behind:
        """Return all of it; `can` says which processes can wait for it, shape (cells, processes)."""
        return Behind(
            kind=np.full(len(self.thing), int(self.kind)),
            thing=self.thing,
            cause=np.full(len(self.thing), _NUMBER[self.cause]),
            window=self.window,
            ns=self.every_ns.sum(axis=1),
            most_ns=np.where(can, self.every_ns, 0).max(axis=1, initial=0),
            most_alone_ns=np.where(can, self.alone_ns, 0).max(axis=1, initial=0),
            shared_ns=(self.every_ns - self.alone_ns).sum(axis=1),
        )

    def by_mates(self, can: Bool, group: int, of_mates: int, *, is_large: bool) -> ByMates:
        """Return how long those waited that can, each of them or in a large job the median one."""
        waited_ns = np.where(can, self.alone_ns, 0)
        row, process = np.nonzero(waited_ns)
        ns, mates = waited_ns[row, process], np.ones(len(row), np.int64)
        if is_large and len(row):
            row = np.flatnonzero(waited_ns.any(axis=1))
            waited_ns = waited_ns[row]
            ns = np.rint(np.nanmedian(np.where(waited_ns > 0, waited_ns, np.nan), axis=1)).astype(np.int64)
            mates = (waited_ns > 0).sum(axis=1)
        return ByMates(
            kind=np.full(len(row), int(self.kind)),
            thing=self.thing[row],
            group=np.full(len(row), group),
            cause=np.full(len(row), _NUMBER[self.cause]),
            window=self.window[row],
            ns=ns,
            mates=mates,
            of_mates=np.full(len(row), of_mates),
        )


@dataclass(frozen=True, eq=False)
class TurnStretches:
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
        rows = self.of(cause)
        cell = np.searchsorted(self.pids, self.parts.pid[rows]) * self.windows + self.window[rows]
        ns = np.bincount(cell, self.parts.length_ns[rows], minlength=len(self.pids) * self.windows)
        return ns.astype(np.int64).reshape(len(self.pids), self.windows)

    def cells(self, kind: Kind, cause: Cause, rows: Int64, thing: Int64, shared: Bool) -> _Cells:
        """Return by which process what was waited for, of some rows; `thing` and `shared` are by those."""
        stretches, count = self.parts.where(rows), len(self.pids)
        things, of_thing = np.unique(thing, return_inverse=True)
        cells, cell = np.unique(of_thing.reshape(-1) * self.windows + self.window[rows], return_inverse=True)
        place = cell.reshape(-1) * count + np.searchsorted(self.pids, stretches.pid)

        def by_process(which: Bool) -> Int64:
            ns = np.bincount(place[which], stretches.length_ns[which], minlength=len(cells) * count)
            return ns.astype(np.int64).reshape(len(cells), count)

        every, alone = by_process(np.ones(len(rows), bool)), by_process(~shared)
        return _Cells(kind, cause, things[cells // self.windows], cells % self.windows, every, alone)


def behind_of(knowledge: HostKnowledge, asked: TurnStretches) -> tuple[Behind, ByMates]:
    """Return what was waited for by one host's processes."""
    tables = [_of_flows(knowledge)]
    for cause in CAUSES[Kind.RANK]:
        rows = asked.of(cause)
        rows = rows[asked.parts.culprit[rows] != NOBODY]
        cells = asked.cells(Kind.RANK, cause, rows, asked.parts.culprit[rows], np.zeros(len(rows), bool))
        mates = knowledge.are_mates(cells.thing)
        tables.append((cells.behind(mates), cells.by_mates(mates, UNKNOWN, EVERYBODY, is_large=knowledge.is_large)))
    tables += [_of_links(knowledge, asked, cause) for cause in CAUSES[Kind.LINK]]
    return concatenate(Behind, [each for each, _ in tables]), concatenate(ByMates, [each for _, each in tables])


def _of_links(knowledge: HostKnowledge, asked: TurnStretches, cause: Cause) -> tuple[Behind, ByMates]:
    """Return which links were waited for, by all and by the members of each communicator."""
    rows, side, shared = _sides(knowledge, asked, cause)
    by_mates = []
    for group in np.unique(asked.parts.group[rows]).tolist():
        places = np.flatnonzero(asked.parts.group[rows] == group)
        cells = asked.cells(Kind.LINK, cause, rows[places], side[places], shared[places])
        members = np.tile(knowledge.in_group(group), (len(cells.thing), 1))
        by_mates.append(cells.by_mates(members, group, knowledge.of_mates(group), is_large=knowledge.is_large))
    every = asked.cells(Kind.LINK, cause, rows, side, shared)
    return every.behind(np.ones(every.every_ns.shape, bool)), concatenate(ByMates, by_mates)


def _sides(knowledge: HostKnowledge, asked: TurnStretches, cause: Cause) -> tuple[Int64, Int64, Bool]:
    """Return the rows that wait for a full link, for which one, and whether another one is full too."""
    rows = asked.of(cause)
    at_ns, groups = asked.parts.begin_ns[rows], asked.parts.group[rows]
    side, shared = np.full(len(rows), UNKNOWN), np.zeros(len(rows), bool)
    for group in np.unique(groups).tolist():
        places, wire = np.flatnonzero(groups == group), knowledge.wires.of(group)
        if group in knowledge.wires.groups:
            turn = row_at(wire.turn.begin_ns, wire.turn.end_ns, at_ns[places])
            side[places] = np.append(wire.links.best, UNKNOWN)[turn]
        else:
            side[places] = _own_side(knowledge.job_host, What.OTHERS if cause.of_others else What.FULL, at_ns[places])
        shared[places] = contains(wire.links.several, at_ns[places])
    known = side != UNKNOWN
    return rows[known], side[known], shared[known]


def _own_side(job_host: JobHost, what: What, at_ns: Int64) -> Int64:
    """Return which of a host's own links is full at some instants, the one that is so for longest; UNKNOWN where none.

    Of a communicator that not all hosts know no other host's links are known.
    """
    full = {key: times for key, times in job_host.spans.items() if key.what is what and isinstance(key.link, int)}
    side = np.full(len(at_ns), UNKNOWN)
    for key in sorted(full, key=lambda key: full[key].total_ns):
        number = Side(job_host.number, int(key.link), key.direction).number  # type: ignore[arg-type]
        side = np.where(contains(full[key], at_ns), number, side)
    return side


def _of_flows(knowledge: HostKnowledge) -> tuple[Behind, ByMates]:
    """Return for how long it was waited for each of the host's flows to recover."""
    first: dict[str, int] = {}
    again: dict[str, list[Intervals]] = {}
    for place, (key, times) in enumerate(knowledge.job_host.spans.items()):
        if key.what in (What.RECOVERS, What.RESENDS):
            number = knowledge.job_host.flow_number(place)
            first.setdefault(key.flow, number)
            silent = [wire.lost[number] for wire in knowledge.wires.groups.values() if number in wire.lost]
            again.setdefault(key.flow, []).extend([times] if key.what is What.RECOVERS else silent)
    behind, by_mates = [], []
    for flow, number in first.items():
        ns = knowledge.world.windows.of(union(again[flow]) & knowledge.lost)
        rows = np.flatnonzero(ns)
        waited_ns = ns[rows][:, None]
        cells = _Cells(Kind.PATH, LOSS, np.full(len(rows), number), rows, waited_ns, waited_ns)
        everybody = np.ones(waited_ns.shape, bool)
        behind.append(cells.behind(everybody))
        by_mates.append(cells.by_mates(everybody, UNKNOWN, 1, is_large=False))
    return concatenate(Behind, behind), concatenate(ByMates, by_mates)
