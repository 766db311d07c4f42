"""What the wires of all hosts did while the whole job waited: put together of what each host saw, in any order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from netprof.analysis.account.bottlenecks import taking_turns
from netprof.analysis.account.group_times import NOBODY_HOLDS, Held, least_silence_ns, lost_unseen, without_unsent
from netprof.analysis.declared import merged
from netprof.analysis.digest.host_in_job import JobHost
from netprof.analysis.digest.spans import SpanKey, What
from netprof.analysis.digest.world import World
from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Int64, concatenate
from netprof.analysis.tables.intervals import NOTHING, Intervals, at_least, interval, merge, overlap, union

EVER = interval(-(1 << 62), 1 << 62)
_WAYS = 2


@dataclass(frozen=True, eq=False)
class Runs(Columns):
    """When payload moves, by begin, disjoint: `pid` is who begins, and `sends` whether by sending."""

    begin_ns: Int64
    end_ns: Int64
    pid: Int64
    sends: Int64


class Side(NamedTuple):
    """One direction of a link: the host's number, the link's place in its digest."""

    host: int
    link: int
    direction: int

    @property
    def number(self) -> int:
        """One number for all of it."""
        return (self.host << 32) + self.link * _WAYS + self.direction

    @classmethod
    def of(cls, number: int) -> Side:
        """Return the side that has a number."""
        place = number & ((1 << 32) - 1)
        return cls(number >> 32, place // _WAYS, place % _WAYS)


@dataclass(frozen=True, eq=False)
class FullSides:
    """What links did. In each turn of the job's collectives `best` is the side that is full for longest, `best_ns`.

    `best_own` and `best_others` are when that side is full in its turns, of the job's bytes or of others'; `any_own`
    and `any_others` when any is, and `several` when more than one link is.
    """

    best: Int64
    best_ns: Int64
    best_own: Intervals
    best_others: Intervals
    any_own: Intervals
    any_others: Intervals
    several: Intervals


@dataclass(frozen=True, eq=False)
class WirePart:
    """What some hosts' wires did: `links` of all devices, `ports` of RDMA ports alone.

    `resending` is by the number of the flow, `stopped` by process.
    """

    links: FullSides
    ports: FullSides
    moved: Runs
    rtt_ns: int
    recovering: Intervals
    resending: Mapping[int, Intervals]
    unplaced: Intervals
    stopped: Mapping[int, Intervals]
    unsent: Mapping[int, Intervals]


@dataclass(frozen=True, eq=False)
class WholeWire:
    """What explains the waiting of everybody: `group_times.Times`, with the turns of the collectives.

    `lost` are silences that TCP says were lost, by the number of the flow.
    """

    turn: Intervals
    links: FullSides
    link_full: Intervals
    other_traffic: Intervals
    recovering: Intervals
    held: Held
    unplaced: Intervals
    stopped: Mapping[int, Intervals]
    lost: Mapping[int, Intervals]

    @cached_property
    def alternating(self) -> Intervals:
        """When links are full in turn, none of them for long."""
        return taking_turns(self.links.best_ns, self.links.any_own | self.links.any_others, self.turn)


def wire_part(job_host: JobHost, turn: Intervals, pids: Collection[int]) -> WirePart:
    """Return what one host saw of some processes: the members of a communicator.

    `turn` are the turns of its collectives; ports have one that is all time.
    """
    spans = {key: times for key, times in job_host.spans.items() if key.pid < 0 or key.pid in pids}
    ports = {place for place, each in enumerate(job_host.host.links) if each.period_ns}
    flows = {place: key for place, key in enumerate(job_host.spans) if key.what is What.RESENDS and key in spans}
    return WirePart(
        links=_links(job_host, turn, set(range(len(job_host.host.links)))),
        ports=_links(job_host, EVER, ports),
        moved=_runs(spans),
        rtt_ns=job_host.host.rtt_ns[0],
        recovering=union([times for key, times in spans.items() if key.what is What.RECOVERS]),
        resending={job_host.flow_number(place): job_host.spans[key] for place, key in flows.items()},
        unplaced=union([times for key, times in spans.items() if key.what is What.UNPLACED]),
        stopped={key.pid: times for key, times in spans.items() if key.what is What.STOPPED},
        unsent={key.pid: times for key, times in spans.items() if key.what is What.UNSENT},
    )


def _links(job_host: JobHost, turn: Intervals, wanted: set[int]) -> FullSides:
    """Return what some of a host's links did."""
    full: dict[Side, tuple[Intervals, Intervals]] = {}
    for key, times in job_host.spans.items():
        if key.what in (What.FULL, What.OTHERS) and isinstance(key.link, int) and key.link in wanted:
            side = Side(job_host.number, key.link, key.direction)
            before = full.get(side, (NOTHING, NOTHING))
            full[side] = (before[0], times) if key.what is What.OTHERS else (times, before[1])
    best, best_ns = np.full(len(turn), UNKNOWN), np.zeros(len(turn), np.int64)
    for side, (of_job, of_others) in full.items():
        both = of_job | of_others
        longest = overlap(both, turn.begin_ns, turn.end_ns)
        better = longest > best_ns
        best, best_ns = np.where(better, side.number, best), np.where(better, longest, best_ns)
    by_link: dict[int, list[Intervals]] = {}
    for side, both_kinds in full.items():
        by_link.setdefault(side.link, []).extend(both_kinds)
    won = {side: _turns_of(turn, best == side.number) for side in full}
    return FullSides(
        best=best,
        best_ns=best_ns,
        best_own=union([of_job & won[side] for side, (of_job, _) in full.items()]),
        best_others=union([of_others & won[side] for side, (_, of_others) in full.items()]),
        any_own=union([of_job for of_job, _ in full.values()]),
        any_others=union([of_others for _, of_others in full.values()]),
        several=at_least([union(each) for each in by_link.values()], 2),
    )


def _turns_of(turn: Intervals, rows: Bool) -> Intervals:
    return merge(turn.begin_ns[rows], turn.end_ns[rows])


def _runs(spans: Mapping[SpanKey, Intervals]) -> Runs:
    parts = [
        Runs(times.begin_ns, times.end_ns, *(np.full(len(times), each) for each in (key.pid, key.what is What.SENDS)))
        for key, times in spans.items()
        if key.what in (What.SENDS, What.RECEIVES)
    ]
    return _joined(concatenate(Runs, parts))


def _joined(runs: Runs) -> Runs:
    """Return runs that may overlap as disjoint ones, each with whoever begins it, by sending if anybody does."""
    runs = runs.where(np.lexsort((1 - runs.sends, runs.begin_ns)))
    if len(runs) == 0:
        return runs
    reach = np.maximum.accumulate(runs.end_ns)
    opens = np.append(True, runs.begin_ns[1:] > reach[:-1])
    closes = np.append(opens[1:], True)
    first = runs.where(opens)
    return Runs(first.begin_ns, reach[closes], first.pid, first.sends)


def wires_together(turn: Intervals, parts: Sequence[WirePart]) -> WirePart:
    """Return what the wires of all hosts of some parts did."""
    if len(parts) == 1:
        return parts[0]
    return WirePart(
        links=_links_together(turn, [part.links for part in parts]),
        ports=_links_together(EVER, [part.ports for part in parts]),
        moved=_joined(concatenate(Runs, [part.moved for part in parts])),
        rtt_ns=max(part.rtt_ns for part in parts),
        recovering=union([part.recovering for part in parts]),
        resending={flow: times for part in parts for flow, times in part.resending.items()},
        unplaced=union([part.unplaced for part in parts]),
        stopped={pid: times for part in parts for pid, times in part.stopped.items()},
        unsent={pid: times for part in parts for pid, times in part.unsent.items()},
    )


def _links_together(turn: Intervals, parts: Sequence[FullSides]) -> FullSides:
    longest = np.stack([part.best_ns for part in parts])
    winner = longest.argmax(axis=0) if len(turn) else np.zeros(0, np.int64)
    won = [_turns_of(turn, winner == number) for number in range(len(parts))]
    return FullSides(
        best=np.stack([part.best for part in parts])[winner, np.arange(len(turn))],
        best_ns=longest.max(axis=0),
        best_own=union([part.best_own & times for part, times in zip(parts, won, strict=True)]),
        best_others=union([part.best_others & times for part, times in zip(parts, won, strict=True)]),
        any_own=union([part.any_own for part in parts]),
        any_others=union([part.any_others for part in parts]),
        several=union(
            [*(part.several for part in parts), at_least([part.any_own | part.any_others for part in parts], 2)]
        ),
    )


def whole_wire(turn: Intervals, part: WirePart, apart_ns: float) -> WholeWire:
    """Return what explains the waiting of the members of a communicator, all of which the part is of.

    The clocks of their hosts may be `apart_ns` apart.
    """
    quiet, lost = lost_unseen(_silences(part.moved, least_silence_ns(part.rtt_ns, apart_ns)), part.resending)
    held = without_unsent(quiet, part.unsent, {})
    link_full, other_traffic = _full(part.links)
    return WholeWire(
        turn=turn,
        links=part.links,
        link_full=link_full,
        other_traffic=other_traffic,
        recovering=part.recovering | union(list(lost.values())),
        held=held,
        unplaced=part.unplaced,
        stopped=part.stopped,
        lost=lost,
    )


def ports_alone(part: WirePart) -> WholeWire:
    """Return what explains the waiting for bytes that nothing was seen to carry but RDMA ports."""
    full = _full(part.ports)
    return WholeWire(EVER, part.ports, *full, NOTHING, NOBODY_HOLDS, part.unplaced, {}, {})


def _full(links: FullSides) -> tuple[Intervals, Intervals]:
    """Return when a link that is full holds everybody up: the best of each turn, and where that one is not, any."""
    taken = links.best_own | links.best_others
    link_full = links.best_own | (links.any_own - taken)
    return link_full, links.best_others | (links.any_others - taken - link_full)


def _silences(moved: Runs, least_ns: int) -> Held:
    """Return when nothing moves for longer than that and then somebody sends, as `group_times.silences`."""
    if len(moved) < 2:
        return NOBODY_HOLDS
    begin, end = moved.end_ns[:-1], moved.begin_ns[1:]
    long = (end - begin > least_ns) & (moved.sends[1:] == 1)
    return Held(Intervals(begin[long], end[long]), moved.pid[1:][long])


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


def wires_on(job_host: JobHost, world: World) -> dict[int, WirePart]:
    """Return what the wire of one host did, by communicator."""
    groups = {0, *job_host.groups}
    return {number: wire_part(job_host, world.groups[number].turn, job_host.members_of(number)) for number in groups}


def all_wires(world: World, parts: Sequence[Mapping[int, WirePart]]) -> dict[int, WirePart]:
    """Return what the wires of several hosts did, by communicator."""
    by_group = merged(parts, list)
    return {number: wires_together(world.groups[number].turn, of_group) for number, of_group in by_group.items()}


def wires_of(world: World, parts: Mapping[int, WirePart]) -> Wires:
    """Return what explains the waiting of everybody, of what the wires of all hosts did."""
    groups = {number: whole_wire(world.groups[number].turn, part, world.apart_ns) for number, part in parts.items()}
    return Wires(groups, ports_alone(parts[0]))
