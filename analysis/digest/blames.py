"""Who is behind what the ranks of all hosts wait for, put together of what each host's ranks waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from netprof.analysis.account.account import MINOR_LINK
from netprof.analysis.account.causes import LATE_RANK, LOSS, TRANSPORT, UNSEEN, WAIT_CAUSES, Cause
from netprof.analysis.account.held_up import CAUSES, HeldUp, Kind, more_than_siblings
from netprof.analysis.digest.digest import HostPart
from netprof.analysis.digest.explained_waiting import Explained
from netprof.analysis.digest.slow_paths import AllWays, Between, BusyWays, ways_between
from netprof.analysis.digest.spans import SpanSet, What
from netprof.analysis.digest.waited_for import EVERYBODY, Behind, ByMates
from netprof.analysis.digest.wires_of_job import Side
from netprof.analysis.digest.world import World
from netprof.analysis.findings.blame import ALONE, HELD_UP, Blame, alike
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.findings.names import ranks_named
from netprof.analysis.findings.stragglers.stragglers_parts import Culprit
from netprof.analysis.hosts.numbers import MOST_PIDS
from netprof.analysis.tables.columns import Int64, opens
from netprof.analysis.tables.intervals import Windows
from netprof.schema import TRANSMIT
from netprof.units import duration, rate

C = TypeVar("C", Behind, ByMates)


@dataclass(frozen=True, eq=False)
class JobNames:
    """How processes, links and flows of the job are called; `hosts` are by number."""

    hosts: Mapping[int, HostPart]

    @cached_property
    def ranks(self) -> dict[int, int]:
        """The rank of each process that has one."""
        return {pid: rank for host in self.hosts.values() for pid, rank in host.told_ranks.items()}

    def process(self, pid: int) -> Culprit:
        """Return how a process is called."""
        host, rank = self.hosts[pid // MOST_PIDS].host.name, self.ranks.get(pid)
        name = f"process {pid % MOST_PIDS}" if rank is None else f"rank {rank}"
        return Culprit(f"{name} on {host}", rank=rank, host=host)

    def link(self, side: Side) -> tuple[LinkSummary, str]:
        """Return what is known of a link, and how it is called."""
        host = self.hosts[side.host]
        link = host.links[side.link]
        return link, f"{link.name} of {ranks_named(link.ranks, link.pids)} on {host.host.name}"

    def has_siblings(self, side: Side) -> bool:
        """Tell whether it is known of any other link that carries the job's bytes when that is full."""
        links = {(number, place): each for number, host in self.hosts.items() for place, each in enumerate(host.links)}
        least_bytes = max(1, MINOR_LINK * max((link.moved_bytes for link in links.values()), default=0))
        del links[side.host, side.link]
        return any(each.moved_bytes >= least_bytes and each.line_rate_bps is not None for each in links.values())

    @cached_property
    def ways(self) -> AllWays:
        """The ways between processes that carry enough to be compared."""
        return ways_between(self.hosts)

    def way(self, key: Between) -> Culprit:
        """Return how a way is called."""
        ranks = tuple(self.ranks[each] for each in (key.pid, key.to_pid) if each in self.ranks)
        return Culprit(f"{self.process(key.pid).label} → {key.to_addr or self.process(key.to_pid).label}", ranks=ranks)

    def flow(self, thing: int) -> SpanSet:
        """Return the set of time that stands for a flow, by the flow's number."""
        return self.hosts[thing // MOST_PIDS].spans[thing % MOST_PIDS]


def blames_of(explained: Explained, names: JobNames, lost_ns: int) -> dict[Cause, Blame]:
    """Return who is behind each cause but the transport, as `waiting_words.blame`.

    For `lost_ns` anybody waited for flows to recover from loss.
    """
    blames: dict[Cause, Blame] = {}
    for cause in (*CAUSES[Kind.RANK], *CAUSES[Kind.LINK], LOSS):
        behind = explained.behind.where(explained.behind.cause == WAIT_CAUSES.index(cause))
        if len(behind):
            things, index = np.unique(behind.thing, return_inverse=True)
            ns = np.bincount(index.reshape(-1), behind.ns)
            most = int(np.argmax(ns))
            whole_ns = lost_ns if cause is LOSS else ns.sum()
            part = float(ns[most] / max(whole_ns, 1))
            who = _blame(cause, int(things[most]), min(part, 1.0), behind, names)
            blames[cause] = replace(who, ranks=alike(things, ns, names.ranks)) if cause in CAUSES[Kind.RANK] else who
    unseen_ns = int(explained.causes_ns[WAIT_CAUSES.index(UNSEEN)].sum())
    blames[UNSEEN] = Blame(HELD_UP) if 2 * explained.unplaced_ns > unseen_ns else Blame()
    return blames


def _blame(cause: Cause, thing: int, part: float, behind: Behind, names: JobNames) -> Blame:
    if cause in CAUSES[Kind.RANK]:
        who = names.process(thing)
        return Blame(who.label, part, rank=who.rank)
    if cause is LOSS:
        flow = names.flow(thing).flow
        return Blame(flow, part, flow=flow)
    side = Side.of(thing)
    link, name = names.link(side)
    way = "sending" if side.direction == TRANSMIT else "receiving"
    seen = f", seen every {duration(link.period_ns / 1e9)}" if link.period_ns else ""
    speed = rate(link.line_rate_bps) if link.line_rate_bps is not None else "line rate unknown"
    return Blame(
        label=f"{name} ({speed}, {way}{seen})",
        part=part,
        ranks=link.ranks,
        link=link.device,
        alone=names.has_siblings(side) and bool(behind.shared_ns.sum() < (1 - ALONE) * behind.ns.sum()),
        others=_others_share(side, names) if cause.of_others else None,
        at_least=True,
    )


def _others_share(side: Side, names: JobNames) -> float | None:
    for each in names.hosts[side.host].spans:
        is_it = (each.what, each.link, each.direction) == (What.OTHERS, side.link, side.direction)
        if is_it and each.own_ns + each.others_ns > 0:
            return each.others_ns / (each.own_ns + each.others_ns)
    return None


def saves_ns(explained: Explained) -> tuple[int, ...]:
    """Return what all iterations would be shorter without each cause, in the order of WAIT_CAUSES.

    That is what the rank waits that waits the least; a late rank itself does not wait, but would be faster.
    """
    late = WAIT_CAUSES.index(LATE_RANK)
    waited = explained.late_ns.astype(np.int64)
    row_of = {pid: row for row, pid in enumerate(explained.pids.tolist())}
    behind = explained.behind.where(explained.behind.cause == late)
    rows = np.array([row_of.get(pid, -1) for pid in behind.thing.tolist()], np.int64)
    known = rows >= 0
    np.maximum.at(waited, (rows[known], behind.window[known]), behind.most_ns[known])
    least = explained.least_ns.copy()
    if len(waited):
        least[late] = waited.min(axis=0)
    least[least == np.iinfo(np.int64).max] = 0
    return tuple(least.sum(axis=1).tolist())


def worst_rank(explained: Explained, window: int, cause: Cause, names: JobNames) -> int | None:
    """Return which rank is behind most of a cause in a window."""
    behind = explained.behind
    rows = (behind.kind == Kind.RANK) & (behind.cause == WAIT_CAUSES.index(cause)) & (behind.window == window)
    behind = behind.where(rows)
    return names.ranks.get(int(behind.thing[np.argmax(behind.ns)])) if len(behind) else None


def held_up(
    explained: Explained, names: JobNames, ways: BusyWays, world: World
) -> tuple[list[HeldUp], dict[tuple[Kind, object], Culprit]]:
    """Return for how long most waited for each rank, link and way, by window, and how these are called."""
    keys = _keys(explained.pids.tolist(), names)
    held = [_held(kind, explained, list(of_kind), names, world.windows) for kind, of_kind in keys.items()]
    held[Kind.PATH].ns[:, CAUSES[Kind.PATH].index(TRANSPORT)] = _slow_ns(explained, names.ways, ways, world)
    return held, {(kind, key): who for kind, of_kind in keys.items() for key, who in of_kind.items()}


def _slow_ns(explained: Explained, ways: AllWays, busy: BusyWays, world: World) -> Int64:
    """Return for how long each way held up most of those that it is between, as `by_paths`, group by group."""
    slow, busy_ns = np.zeros((2, len(ways.keys), len(world.windows)), np.int64)
    for key, each in zip(busy.keys, busy.busy_ns, strict=True):
        if key in ways.of_connection:
            busy_ns[ways.of_connection[key]] += each
    if not busy.keys:
        return slow
    for group, waited_ns in explained.transport_ns.items():
        of_part = world.groups[group].pids
        rows = np.flatnonzero(ways.within(of_part)) if of_part else np.arange(len(ways.keys))
        most_wait_ns = waited_ns / max(len(of_part) or len(explained.pids), 1)
        held = np.minimum(more_than_siblings(busy_ns[rows].astype(np.float64)), most_wait_ns).astype(np.int64)
        slow[rows] = np.maximum(slow[rows], held)
    return slow


def _keys(pids: Sequence[int], names: JobNames) -> dict[Kind, dict[object, Culprit]]:
    """Return what may hold others up, and how it is called, by kind."""
    links: dict[object, Culprit] = {}
    for number, host in names.hosts.items():
        for place, each in enumerate(host.links):
            if each.ranks or each.pids:
                summary, name = names.link(Side(number, place, TRANSMIT))
                links[number, place] = Culprit(name, ranks=summary.ranks, link=summary.device, host=host.host.name)
    ways: dict[object, Culprit] = {key: names.way(key) for key in names.ways.keys}
    return {Kind.RANK: {pid: names.process(pid) for pid in pids}, Kind.LINK: links, Kind.PATH: ways}


def _held(kind: Kind, explained: Explained, keys: Sequence[object], names: JobNames, windows: Windows) -> HeldUp:
    """Return what most of the mates of each thing waited for it.

    A link is waited for by the members of each communicator for itself, by all together for no longer than by the
    process that waits for it the longest: they may wait at the same time.
    """
    ns, longest_ns = np.zeros((2, len(keys), len(CAUSES[kind]), len(windows)), np.int64)
    row_of, causes = {key: row for row, key in enumerate(keys)}, [WAIT_CAUSES.index(cause) for cause in CAUSES[kind]]

    def of_kind(table: C) -> tuple[C, Int64]:
        by_mates = table.where((table.kind == kind) & np.isin(table.cause, causes))
        rows = np.array([row_of.get(_key(kind, thing, names), -1) for thing in by_mates.thing.tolist()], np.int64)
        return by_mates.where(rows >= 0), rows[rows >= 0]

    by_mates, rows = of_kind(explained.by_mates)
    first, middle_ns = _medians(kind, by_mates, explained)
    place = np.searchsorted(causes, by_mates.cause[first])  # they are in the order of WAIT_CAUSES
    np.add.at(ns, (rows[first], place, by_mates.window[first]), middle_ns)
    if kind is Kind.LINK:
        behind, rows = of_kind(explained.behind)
        place = np.searchsorted(causes, behind.cause)
        np.maximum.at(longest_ns, (rows, place, behind.window), behind.most_alone_ns)
        ns = np.minimum(ns, longest_ns)
    return HeldUp(kind, tuple(keys), ns)


def _medians(kind: Kind, by_mates: ByMates, explained: Explained) -> tuple[Int64, Int64]:
    """Return how long the median one waited for each thing, cause by cause and window by window; the first row of each.

    Of two that are in the middle a rank is held to both, a link to the one that waits for longer: half wait so long.
    """
    cells = (by_mates.thing, by_mates.group, by_mates.cause, by_mates.window)
    order = np.lexsort((-by_mates.ns, *cells))
    sorted_by = by_mates.where(order)
    starts = opens(*(each[order] for each in cells))
    first, mates = np.flatnonzero(starts), np.cumsum(sorted_by.mates)
    before = np.repeat((mates - sorted_by.mates)[first], np.diff(np.append(first, len(order))))
    twice, every = (mates - before) * 2, _of_mates(kind, sorted_by, explained)
    half_ns, more_ns = (
        np.maximum.reduceat(np.where(rows, sorted_by.ns, 0), first) if len(first) else first
        for rows in (twice >= every, twice > every)
    )
    return order[first], (half_ns + more_ns) // 2 if kind is Kind.RANK else half_ns


def _of_mates(kind: Kind, by_mates: ByMates, explained: Explained) -> Int64:
    """Return how many there are on all hosts that may wait for each thing."""
    if kind is Kind.RANK:
        mates = np.array([explained.mates.get(pid, EVERYBODY) for pid in by_mates.thing.tolist()], np.int64)
        return np.where(mates == EVERYBODY, len(explained.pids) - 1, mates)
    return np.where(by_mates.of_mates == EVERYBODY, len(explained.pids), by_mates.of_mates)


def _key(kind: Kind, thing: int, names: JobNames) -> object:
    if kind is Kind.LINK:
        side = Side.of(thing)
        return side.host, side.link
    if kind is Kind.PATH:
        row = names.ways.of_flow.get((thing // MOST_PIDS, names.flow(thing).flow))
        return None if row is None else names.ways.keys[row]
    return thing
