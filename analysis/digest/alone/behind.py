"""Who is behind what the ranks of all hosts wait for, put together of what each host's ranks waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from netprof.analysis.account.account import MINOR_LINK
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
from netprof.analysis.account.held_up import CAUSES, HeldUp, Kind, Windows
from netprof.analysis.digest.alone.busy_ways import BusyWays, slow_ns
from netprof.analysis.digest.alone.explained import Explained
from netprof.analysis.digest.alone.waited_for import EVERYBODY, Behind
from netprof.analysis.digest.alone.whole_wire import Side
from netprof.analysis.digest.alone.world import World
from netprof.analysis.digest.digest import HostPart
from netprof.analysis.digest.spans import SpanSet, What
from netprof.analysis.digest.ways import other_end
from netprof.analysis.findings.link_summary import LinkSummary
from netprof.analysis.findings.stragglers_parts import Who
from netprof.analysis.findings.waiting_words import ALONE, HELD_UP, Blame, ranks_named
from netprof.analysis.hosts.numbers import MOST_PIDS
from netprof.analysis.tables.columns import Bool, Int64
from netprof.schema import TRANSMIT
from netprof.units import duration, percent, rate

_OF_RANK = (LATE_RANK, HOST)
_OF_LINK = (LINK_FULL, OTHER_TRAFFIC)


@dataclass(frozen=True, eq=False)
class Names:
    """How processes, links and flows of the job are called; `hosts` are by number."""

    hosts: Mapping[int, HostPart]

    @cached_property
    def ranks(self) -> dict[int, int]:
        """The rank of each process that has one."""
        return {pid: rank for host in self.hosts.values() for pid, rank in host.told_ranks.items()}

    def process(self, pid: int) -> Who:
        """Return how a process is called."""
        host, rank = self.hosts[pid // MOST_PIDS].host.name, self.ranks.get(pid)
        name = f"process {pid % MOST_PIDS}" if rank is None else f"rank {rank}"
        return Who(f"{name} on {host}", rank=rank, host=host)

    def link(self, side: Side) -> tuple[LinkSummary, str]:
        """Return what is known of a link, and how it is called."""
        host = self.hosts[side.host]
        found = host.links[side.link].summary
        return found, f"{found.device} of {ranks_named(found.ranks, found.pids)} on {host.host.name}"

    def has_siblings(self, side: Side) -> bool:
        """Tell whether it is known of any other link that carries the job's bytes when that is full."""
        return any(each != (side.host, side.link) for each in self._known_links)

    @cached_property
    def _known_links(self) -> list[tuple[int, int]]:
        links = {
            (number, place): each.summary
            for number, host in self.hosts.items()
            for place, each in enumerate(host.links)
        }
        most = max((link.moved_bytes for link in links.values()), default=0)
        used = {place: link for place, link in links.items() if link.moved_bytes >= max(1, MINOR_LINK * most)}
        return [place for place, link in used.items() if link.line_rate_bps is not None]

    @cached_property
    def way_of_flow(self) -> dict[tuple[int, str], int]:
        """The place of each flow's way in the list of its host's, by the host's number."""
        return {
            (number, flow): place
            for number, host in self.hosts.items()
            for place, way in enumerate(host.ways)
            for flow in way.flows
        }

    @cached_property
    def _sender(self) -> dict[str, int]:
        """The process that sends each flow."""
        return {
            flow: way.pid + number * MOST_PIDS
            for number, host in self.hosts.items()
            for way in host.ways
            for flow in way.flows
        }

    def way(self, number: int, place: int) -> Who:
        """Return how a way of a host is called."""
        way = self.hosts[number].ways[place]
        pid, to_pid = way.pid + number * MOST_PIDS, self._sender.get(other_end(way.flows[0]))
        ranks = tuple(self.ranks[each] for each in (pid, to_pid) if each in self.ranks)
        address = way.flows[0].partition(" → ")[2].rpartition(":")[0]
        to = address if to_pid is None else self.process(to_pid).label
        return Who(f"{self.process(pid).label} → {to}", ranks=ranks)

    def flow(self, thing: int) -> SpanSet:
        """Return the set of time that stands for a flow, by the flow's number."""
        return self.hosts[thing // MOST_PIDS].spans[thing % MOST_PIDS]


def blames_of(found: Explained, names: Names, lost_ns: int) -> dict[Cause, Blame]:
    """Return who is behind each cause but the transport, as `waiting_words.blame`.

    For `lost_ns` anybody waited for flows to recover from loss.
    """
    blames: dict[Cause, Blame] = {}
    for cause in (*_OF_RANK, *_OF_LINK, LOSS):
        own = found.behind.where(found.behind.cause == WAIT_CAUSES.index(cause))
        if len(own):
            things, index = np.unique(own.thing, return_inverse=True)
            ns = np.bincount(index.reshape(-1), own.ns)
            most = int(np.argmax(ns))
            whole_ns = lost_ns if cause is LOSS else ns.sum()
            part = float(ns[most] / max(whole_ns, 1))
            blames[cause] = _blame(cause, int(things[most]), min(part, 1.0), own, names)
    unseen_ns = int(found.causes_ns[WAIT_CAUSES.index(UNSEEN)].sum())
    blames[UNSEEN] = Blame(HELD_UP) if 2 * found.unplaced_ns > unseen_ns else Blame()
    return blames


def _blame(cause: Cause, thing: int, part: float, own: Behind, names: Names) -> Blame:
    if cause in _OF_RANK:
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
        alone=names.has_siblings(side) and bool(own.shared_ns.sum() < (1 - ALONE) * own.ns.sum()),
        detail=_others_share(side, names) if cause is OTHER_TRAFFIC else "",
    )


def _others_share(side: Side, names: Names) -> str:
    for each in names.hosts[side.host].spans:
        is_it = (each.what, each.link, each.direction) == (What.OTHERS, side.link, side.direction)
        if is_it and each.own_ns + each.others_ns > 0:
            return percent(each.others_ns / (each.own_ns + each.others_ns))
    return "an unknown part"


def saves_ns(found: Explained) -> tuple[int, ...]:
    """Return what all iterations would be shorter without each cause, in the order of WAIT_CAUSES.

    That is what the rank waits that waits the least; a late rank itself does not wait, but would be faster.
    """
    late = WAIT_CAUSES.index(LATE_RANK)
    waited = found.late_ns.astype(np.int64)
    row_of = {pid: row for row, pid in enumerate(found.pids.tolist())}
    behind = found.behind.where(found.behind.cause == late)
    rows = np.array([row_of.get(pid, -1) for pid in behind.thing.tolist()], np.int64)
    known = rows >= 0
    np.maximum.at(waited, (rows[known], behind.window[known]), behind.most_ns[known])
    least = found.least_ns.copy()
    if len(waited):
        least[late] = waited.min(axis=0)
    least[least == np.iinfo(np.int64).max] = 0
    return tuple(least.sum(axis=1).tolist())


def worst_rank(found: Explained, window: int, cause: Cause, names: Names) -> int | None:
    """Return which rank is behind most of a cause in a window."""
    own = found.behind
    rows = (own.kind == Kind.RANK) & (own.cause == WAIT_CAUSES.index(cause)) & (own.window == window)
    own = own.where(rows)
    return names.ranks.get(int(own.thing[np.argmax(own.ns)])) if len(own) else None


def held_up(
    found: Explained, names: Names, ways: BusyWays, world: World
) -> tuple[list[HeldUp], dict[tuple[Kind, object], Who]]:
    """Return for how long most waited for each rank, link and way, by window, and how these are called."""
    keys = _keys(found.pids.tolist(), names)
    held = [_held(kind, found, list(of_kind), names, world.windows) for kind, of_kind in keys.items()]
    row_of = {key: row for row, key in enumerate(held[Kind.PATH].keys)}
    for key, slow in zip(ways.keys, _slow_ns(found, names, ways, world), strict=True):
        held[Kind.PATH].ns[row_of[key], CAUSES[Kind.PATH].index(TRANSPORT)] = slow
    return held, {(kind, key): who for kind, of_kind in keys.items() for key, who in of_kind.items()}


def _slow_ns(found: Explained, names: Names, ways: BusyWays, world: World) -> Int64:
    """Return for how long each way held up most of those that it is between, communicator by communicator."""
    pids = np.array([names.hosts[number].ways[place].pid + number * MOST_PIDS for number, place in ways.keys], np.int64)
    slow = np.zeros((len(ways.keys), len(world.windows)), np.int64)
    if not ways.keys:
        return slow
    for group, waited_ns in found.transport_ns.items():
        of_part = world.groups[group].pids
        own = np.flatnonzero(np.isin(pids, list(of_part))) if of_part else np.arange(len(pids))
        held = slow_ns(ways.busy_ns[own], waited_ns / max(len(of_part) or len(found.pids), 1))
        slow[own] = np.maximum(slow[own], held)
    return slow


def _keys(pids: Sequence[int], names: Names) -> dict[Kind, dict[object, Who]]:
    """Return what may hold others up, and how it is called, by kind."""
    links: dict[object, Who] = {}
    ways: dict[object, Who] = {}
    for number, host in names.hosts.items():
        for place, each in enumerate(host.links):
            if each.summary.ranks or each.summary.pids:
                summary, name = names.link(Side(number, place, TRANSMIT))
                links[number, place] = Who(name, ranks=summary.ranks, link=summary.device, host=host.host.name)
        ways |= {(number, place): names.way(number, place) for place, way in enumerate(host.ways) if way.main}
    return {Kind.RANK: {pid: names.process(pid) for pid in pids}, Kind.LINK: links, Kind.PATH: ways}


def _held(kind: Kind, found: Explained, keys: Sequence[object], names: Names, windows: Windows) -> HeldUp:
    """Return what most of the mates of each thing waited for it: the median of theirs, of each host by its mates.

    A link is waited for by the members of each communicator for itself, all together for no longer than a window lasts.
    """
    ns = np.zeros((len(keys), len(CAUSES[kind]), len(windows)), np.int64)
    row_of = {key: row for row, key in enumerate(keys)}
    causes = [WAIT_CAUSES.index(cause) for cause in CAUSES[kind]]
    own = found.behind.where((found.behind.kind == kind) & np.isin(found.behind.cause, causes))
    rows = np.array([row_of.get(_key(kind, thing, names), -1) for thing in own.thing.tolist()], np.int64)
    own, rows = own.where(rows >= 0), rows[rows >= 0]
    cells = (own.thing, own.group, own.cause, own.window)
    order = np.lexsort((-own.median_ns, *cells))
    own, rows = own.where(order), rows[order]
    opens = np.logical_or.reduce([np.diff(each[order], prepend=-2) != 0 for each in cells])
    first, mates = np.flatnonzero(opens), np.cumsum(own.mates)
    before = np.repeat((mates - own.mates)[first], np.diff(np.append(first, len(order))))
    twice, every = (mates - before) * 2, _of_mates(kind, own, found)
    half_ns, more_ns = (_largest(own.median_ns, rows, first) for rows in (twice >= every, twice > every))
    middle_ns = (half_ns + more_ns) // 2 if kind is Kind.RANK else half_ns
    place = np.searchsorted(causes, own.cause[first])  # they are in the order of WAIT_CAUSES
    np.add.at(ns, (rows[first], place, own.window[first]), middle_ns)
    return HeldUp(kind, tuple(keys), np.minimum(ns, windows.end_ns - windows.begin_ns))


def _largest(values: Int64, which: Bool, first: Int64) -> Int64:
    """Return the largest of some values of each run of rows, given where the runs begin; 0 of none."""
    return np.maximum.reduceat(np.where(which, values, 0), first) if len(first) else first


def _of_mates(kind: Kind, own: Behind, found: Explained) -> Int64:
    """Return how many there are on all hosts that may wait for each thing."""
    if kind is Kind.RANK:
        mates = np.array([found.mates.get(pid, EVERYBODY) for pid in own.thing.tolist()], np.int64)
        return np.where(mates == EVERYBODY, len(found.pids) - 1, mates)
    return np.where(own.of_mates == EVERYBODY, len(found.pids), own.of_mates)


def _key(kind: Kind, thing: int, names: Names) -> object:
    if kind is Kind.LINK:
        side = Side.of(thing)
        return side.host, side.link
    if kind is Kind.PATH:
        number = thing // MOST_PIDS
        return number, names.way_of_flow.get((number, names.flow(thing).flow), -1)
    return thing
