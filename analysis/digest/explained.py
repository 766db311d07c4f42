"""What the ranks of one host wait for, by what all hosts know; and what the ranks of all hosts do, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.account.bottlenecks import turns
from netprof.analysis.account.causes import LATE_RANK, LOSS, TRANSPORT, UNSEEN, WAIT_CAUSES
from netprof.analysis.account.group_times import ExplainingTimes
from netprof.analysis.account.lateness import resolve_lateness
from netprof.analysis.account.wait_pieces import cut_at
from netprof.analysis.account.waiting import WITHOUT_COLLECTIVE, Known, Waiting, explain, when_all_seen, within
from netprof.analysis.digest.host_in_job import JobHost, check_size
from netprof.analysis.digest.job_iterations import by_group, in_span
from netprof.analysis.digest.spans import What
from netprof.analysis.digest.waited_for import Behind, ByMates, HostKnows, TurnStretches, behind_of
from netprof.analysis.digest.wires_of_job import WholeWire, Wires, whole_wire, wire_part
from netprof.analysis.digest.world import World
from netprof.analysis.events.iterations import IterationTimes
from netprof.analysis.events.members import Members, together
from netprof.analysis.events.typical import Durations, durations
from netprof.analysis.findings.bounds.bounds import CountedSteps, counted, counted_together
from netprof.analysis.findings.collectives.bandwidth import Bandwidths, rank_bandwidths
from netprof.analysis.findings.waiting.waiting_finding import RankWaiting
from netprof.analysis.tables.columns import UNKNOWN, Int32, Int64, by_pid, concatenate, distinct
from netprof.analysis.tables.intervals import Intervals, merge, row_at, union

_ENDLESS = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Excuses:
    """What those waited for that were late while others waited for them; and when anybody waited for loss to be made
    good."""

    waiting: Waiting
    lost: Intervals


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
    by_mates: ByMates
    slow: Intervals
    transport_ns: Mapping[int, Int64]
    mates: Mapping[int, int]
    unplaced_ns: int
    of_parts: int
    counted: CountedSteps
    surely: Explained | None = None


def excuses_of(own: JobHost, world: World, wires: Wires) -> Excuses:
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
    return Excuses(resolve_lateness(found.waiting.in_order(), {}), found.lost)


def explained_of(own: JobHost, world: World, wires: Wires, excuses: Excuses) -> Explained:
    """Return what the ranks of one host wait for, in their whole iterations in the time that all hosts recorded."""
    known = _known(own, world, wires)
    waiting = explain(own.by_pid(What.WAITS), known)
    others = excuses.waiting.where(~np.isin(excuses.waiting.pid, waiting.pid))
    every = resolve_lateness(concatenate(Waiting, [waiting, others]).in_order(), own.by_pid(What.WAITS))
    iterations = own.accounted.inside(world.span_ns)
    pids = np.unique(iterations.pid)
    check_size(len(pids), len(world.windows))
    inside = {pid: iterations.whole(pid) for pid in pids.tolist()}
    told = HostKnows(own, world, wires, excuses.lost, inside, _mates(own, world, known.members))
    waiting = within(every.where(np.isin(every.pid, pids)), inside)
    found = replace(
        _amounts(waiting, told),
        of_ranks=_of_ranks(own, inside, known, world),
        of_parts=_untold(own, known.members, world),
    )
    if not world.bounded:
        return found
    surely = own.by_pid(What.SURELY if own.host.bounded else What.WAITS)
    return replace(found, counted=_counted(own, world), surely=_amounts(within(waiting, surely), told))


def _untold(own: JobHost, members: Members, world: World) -> int:
    """Return how many collectives are of a part of the job and have members on other hosts that nobody knows."""
    found = 0
    for number in np.unique(members.group[members.group >= world.first_local]).tolist():
        rows = members.group == number
        here, ranks = len(np.unique(own.collectives.pid[rows])), int(members.ranks[rows].max())
        if here < ranks and (world.world_size is None or ranks < world.world_size):
            found += int(rows.sum())
    return found


def _mates(own: JobHost, world: World, members: Members) -> dict[int, frozenset[int]] | None:
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


def _amounts(waiting: Waiting, told: HostKnows) -> Explained:
    """Return how much is waited for what, of stretches in whole iterations."""
    pids, windows = np.array(list(told.inside), np.int64), told.world.windows
    parts = _cut_by_group(waiting, told.wires, Intervals(windows.begin_ns, windows.end_ns))
    place = row_at(windows.begin_ns, windows.end_ns, parts.begin_ns)
    inside = place != UNKNOWN
    asked = TurnStretches(pids, parts.where(inside), place[inside], len(windows))
    causes_ns, least_ns = np.zeros((2, len(WAIT_CAUSES), len(windows)), np.int64)
    late_ns: Int64 | Int32 = np.zeros((len(pids), len(windows)), np.int32)
    for number, cause in enumerate(WAIT_CAUSES):
        waited = asked.by_process(cause)
        causes_ns[number], least_ns[number] = waited.sum(axis=0), waited.min(axis=0, initial=_ENDLESS)
        late_ns = _narrow(waited) if cause is LATE_RANK else late_ns
    slow, (behind, by_mates) = waiting.of(TRANSPORT), behind_of(told, asked)
    return Explained(
        by_rank=tuple(_rank(pid, waiting, told.own, inside) for pid, inside in told.inside.items()),
        of_ranks={},
        causes_ns=causes_ns,
        least_ns=least_ns,
        pids=pids,
        late_ns=late_ns,
        behind=behind,
        by_mates=by_mates,
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


def _by_group(asked: TurnStretches, wires: Wires) -> dict[int, Int64]:
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


def _counted(own: JobHost, world: World) -> CountedSteps:
    """Count the steps in the time that all hosts recorded; what marks tell is no step of a profile."""
    steps = own.steps.where((own.steps.begin_ns >= world.span_ns[0]) & (own.steps.end_ns <= world.span_ns[1]))
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
        by_mates=concatenate(ByMates, [part.by_mates for part in parts]),
        slow=union([part.slow for part in parts]),
        transport_ns=by_group(
            [part.transport_ns for part in parts], lambda all_ns: np.asarray(np.sum(all_ns, axis=0, dtype=np.int64))
        ),
        mates={pid: count for part in parts for pid, count in part.mates.items()},
        of_parts=sum(part.of_parts for part in parts),
        unplaced_ns=sum(part.unplaced_ns for part in parts),
        counted=counted_together([part.counted for part in parts]),
        surely=explained_together(surely) if surely else None,
    )


def _known(own: JobHost, world: World, wires: Wires) -> Known:
    """Return what explains the waiting of one host's processes."""
    members = world.members_on(own)
    groups: dict[int, ExplainingTimes] = {**wires.groups, WITHOUT_COLLECTIVE: wires.ports}
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


def _of_part(own: JobHost, members: Members, group: int) -> WholeWire:
    """Return what explains the waiting in a communicator that not all hosts know, as far as this one does."""
    turn = turns(own.collectives, members, group)
    pids = set(np.unique(own.collectives.pid[members.group == group]).tolist())
    return whole_wire(turn, wire_part(own, turn, pids), apart_ns=0.0)


def _narrow(values: Int64) -> Int64 | Int32:
    """Return values in 32 bits where they fit: there is one for each rank and iteration of the job."""
    return values.astype(np.int32) if values.max(initial=0) <= np.iinfo(np.int32).max else values


def _cut(waiting: Waiting, *sets: Intervals) -> Waiting:
    """Cut stretches by the edges of some sets of time."""
    edges = distinct(*(edge for each in sets for edge in (each.begin_ns, each.end_ns)))
    begin, end, row = cut_at(waiting.begin_ns, waiting.end_ns, edges)
    return replace(waiting.where(row), begin_ns=begin, end_ns=end)


def _rank(pid: int, waiting: Waiting, own: JobHost, iterations: Intervals) -> RankWaiting:
    its = waiting.of_pid(pid)
    causes = np.bincount(its.cause, weights=its.length_ns, minlength=len(WAIT_CAUSES)).astype(np.int64)
    rank = own.host.told_ranks.get(pid)
    return RankWaiting(pid, rank, iterations.total_ns, int(causes.sum()), tuple(causes.tolist()))


def _of_ranks(own: JobHost, inside: Mapping[int, Intervals], known: Known, world: World) -> dict[int, OfRank]:
    times = in_span(own.times, world.span_ns)
    if own.host.bounded:  # how long a collective takes is not known
        return {pid: OfRank(durations(its), None) for pid, its in by_pid(times)}
    return {pid: _of_rank(pid, times, iterations, known, world) for pid, iterations in inside.items()}


def _of_rank(pid: int, times: IterationTimes, iterations: Intervals, known: Known, world: World) -> OfRank:
    mine = known.collectives.pid == pid
    own = together(known.collectives.where(mine), known.members.where(mine))
    return OfRank(durations(times.of_pid(pid)), rank_bandwidths(own, iterations, world.world_size, None))
