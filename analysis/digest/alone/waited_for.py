"""Who or what the processes of one host waited for, iteration by iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.causes import HOST, LATE_RANK, LINK_FULL, LOSS, OTHER_TRAFFIC, WAIT_CAUSES, Cause
from netprof.analysis.account.held_up import Kind, Windows
from netprof.analysis.account.pieces import contains
from netprof.analysis.account.waiting import NOBODY, Waiting
from netprof.analysis.digest.alone.own import Own
from netprof.analysis.digest.alone.whole_wire import Side
from netprof.analysis.digest.alone.wires import Wires
from netprof.analysis.digest.alone.world import World
from netprof.analysis.digest.spans import What
from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Int64, concatenate
from netprof.analysis.tables.intervals import Intervals, union

EVERYBODY = -1
"""So many are all."""
_FULL = {LINK_FULL: What.FULL, OTHER_TRAFFIC: What.OTHERS}
_NUMBER = {cause: number for number, cause in enumerate(WAIT_CAUSES)}


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


@dataclass(frozen=True, eq=False)
class Told:
    """What is known where one host's waiting is summed up; `inside` are the iterations of its processes.

    `lost` is when anybody waited for loss to be made good, `mates` who is in communicators with each process of the
    host; None where all are, or nothing is known.
    """

    own: Own
    world: World
    wires: Wires
    lost: Intervals
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
class Asked:
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
        row = cells // self.windows
        thing, is_mate = different[row], things.mates(different)[row]
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


def place_of(times: Intervals, at_ns: Int64) -> Int64:
    """Return in which interval each instant lies, UNKNOWN for none; they are ascending and disjoint, and may touch."""
    if len(times) == 0:
        return np.full(len(at_ns), UNKNOWN)
    place = np.searchsorted(times.begin_ns, at_ns, "right") - 1
    return np.where((place >= 0) & (at_ns < times.end_ns[place]), place, UNKNOWN)


def _median(values: Int64, which: Bool) -> Int64:
    """Return the median of some values of each row, 0 of none."""
    found, some = np.zeros(len(values)), which.any(axis=1)
    found[some] = np.nanmedian(np.where(which, values, np.nan)[some], axis=1)
    return np.rint(found).astype(np.int64)


def behind_of(told: Told, asked: Asked) -> Behind:
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
    return concatenate(Behind, [*found, _of_flows(told.own, told.wires, told.lost, told.world.windows)])


def _of_links(told: Told, asked: Asked, cause: Cause, rows: Int64) -> Behind:
    """Return which links were waited for by the members of one communicator."""
    group, at_ns = int(asked.parts.group[rows[0]]), asked.parts.begin_ns[rows]
    wire = told.wires.of(group)
    if group in told.wires.groups:
        side = np.append(wire.links.best, UNKNOWN)[place_of(wire.turn, at_ns)]
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
