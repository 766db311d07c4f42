"""What the ranks of one host wait for, by what all hosts know; and what the ranks of all hosts do, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from netprof.analysis.account.bottlenecks import turns
from netprof.analysis.account.causes import LATE_RANK, LOSS, TRANSPORT, UNSEEN, WAIT_CAUSES
from netprof.analysis.account.group_times import ExplainingTimes
from netprof.analysis.account.lateness import resolve_lateness
from netprof.analysis.account.wait_pieces import cut_at
from netprof.analysis.account.waiting import WITHOUT_COLLECTIVE, Known, Waiting, explain, when_all_seen, within
from netprof.analysis.declared import merged
from netprof.analysis.digest.host_in_job import JobHost, check_size
from netprof.analysis.digest.job_iterations import in_span
from netprof.analysis.digest.spans import What
from netprof.analysis.digest.waited_for import Behind, ByMates, HostKnowledge, TurnStretches, behind_of
from netprof.analysis.digest.wires_of_job import WholeWire, Wires, whole_wire, wire_part
from netprof.analysis.digest.world import World
from netprof.analysis.events.iterations import IterationTimes
from netprof.analysis.events.members import Members, together
from netprof.analysis.events.typical import Durations, durations
from netprof.analysis.findings.bounds.bounds import CountedSteps, counted, counted_together
from netprof.analysis.findings.collectives.bandwidth import Bandwidths, rank_bandwidths
from netprof.analysis.findings.waiting.waiting_finding import RankWaiting
from netprof.analysis.tables.columns import UNKNOWN, Int32, Int64, by_pid, concatenate, distinct
from netprof.analysis.tables.intervals import Intervals, Windows, merge, row_at, union

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
    counted: CountedSteps
    of_ranks: Mapping[int, OfRank] = field(default_factory=dict)
    of_parts: int = 0
    surely: Explained | None = None


def excuses_of(job_host: JobHost, world: World, wires: Wires) -> Excuses:
    """Return what the processes of one host waited for while others waited for them, and when they last had before."""
    waits = job_host.by_pid(What.WAITS)
    waiting = explain(waits, _known(job_host, world, wires))
    late = {}
    for pid in np.unique(waiting.pid).tolist():
        awaited = [
            (group.first_ns[who == pid], until_ns[who == pid])
            for group in world.groups.values()
            for until_ns, who in ((group.ready_ns, group.last_pid), (group.root_ns, group.root_pid))
        ]
        first_ns, ready_ns = (np.concatenate(edges) for edges in zip(*awaited, strict=True))
        before = np.searchsorted(waits[pid].end_ns, ready_ns, "right") - 1
        late[pid] = merge(first_ns, ready_ns) | waits[pid].where(np.unique(before[before >= 0]))
    lost = waiting.of(LOSS)
    return Excuses(within(waiting, late), merge(lost.begin_ns, lost.end_ns))


def excuses_together(parts: Sequence[Excuses]) -> Excuses:
    """Return those of several hosts."""
    return Excuses(concatenate(Waiting, [part.waiting for part in parts]), union([part.lost for part in parts]))


def all_excuses(excuses: Excuses) -> Excuses:
    """Return those of all hosts: who was late because another one was waits for that one's reasons."""
    return Excuses(resolve_lateness(excuses.waiting.in_order(), {}), excuses.lost)


def explained_of(job_host: JobHost, world: World, wires: Wires, excuses: Excuses) -> Explained:
    """Return what the ranks of one host wait for, in their whole iterations in the time that all hosts recorded."""
    known = _known(job_host, world, wires)
    waiting = explain(job_host.by_pid(What.WAITS), known)
    elsewhere = excuses.waiting.where(~np.isin(excuses.waiting.pid, waiting.pid))
    every = resolve_lateness(concatenate(Waiting, [waiting, elsewhere]).in_order(), job_host.by_pid(What.WAITS))
    iterations = job_host.accounted.inside(world.span_ns)
    pids = np.unique(iterations.pid)
    check_size(len(pids), len(world.windows))
    inside = {pid: iterations.whole(pid) for pid in pids.tolist()}
    knowledge = HostKnowledge(job_host, world, wires, excuses.lost, inside, _mates(job_host, world, known.members))
    waiting = within(every.where(np.isin(every.pid, pids)), inside)
    explained = replace(
        _amounts(waiting, knowledge),
        of_ranks=_of_ranks(job_host, inside, known, world),
        of_parts=_untold(job_host, known.members, world),
    )
    if not world.bounded:
        return explained
    surely = job_host.by_pid(What.SURELY if job_host.host.bounded else What.WAITS)
    return replace(explained, counted=_counted(job_host, world), surely=_amounts(within(waiting, surely), knowledge))


def _untold(job_host: JobHost, members: Members, world: World) -> int:
    """Return how many collectives are of a part of the job and have unknown members on other hosts."""
    untold = 0
    for number in np.unique(members.group[members.group >= world.first_local]).tolist():
        rows = members.group == number
        here, ranks = len(np.unique(job_host.collectives.pid[rows])), int(members.ranks[rows].max())
        if here < ranks and (world.world_size is None or ranks < world.world_size):
            untold += int(rows.sum())
    return untold


def _mates(job_host: JobHost, world: World, members: Members) -> dict[int, frozenset[int]] | None:
    """Return who is in communicators with each process of a host; None where all are, or nothing is known."""
    if world.groups[0].seen.max(initial=0) > 1:
        return None
    mates: dict[int, frozenset[int]] = {}
    for number in np.unique(members.group[members.group >= 0]).tolist():
        here = frozenset(np.unique(job_host.collectives.pid[members.group == number]).tolist())
        every = world.groups[number].pids if number in world.groups else here
        for pid in here:
            mates[pid] = mates.get(pid, frozenset()) | every
    return mates


def _amounts(waiting: Waiting, knowledge: HostKnowledge) -> Explained:
    """Return how much is waited for what, of stretches in whole iterations."""
    pids, windows = np.array(list(knowledge.inside), np.int64), knowledge.world.windows
    parts = _cut_by_group(waiting, knowledge.wires, windows)
    place = row_at(windows.begin_ns, windows.end_ns, parts.begin_ns)
    inside = place != UNKNOWN
    asked = TurnStretches(pids, parts.where(inside), place[inside], len(windows))
    causes_ns, least_ns = np.zeros((2, len(WAIT_CAUSES), len(windows)), np.int64)
    late_ns: Int64 | Int32 = np.zeros((len(pids), len(windows)), np.int32)
    for number, cause in enumerate(WAIT_CAUSES):
        waited = asked.by_process(cause)
        causes_ns[number], least_ns[number] = waited.sum(axis=0), waited.min(axis=0, initial=_ENDLESS)
        if cause is LATE_RANK:  # one for each rank and iteration of the job: in 32 bits where they fit
            late_ns = waited.astype(np.int32) if waited.max(initial=0) <= np.iinfo(np.int32).max else waited
    slow, (behind, by_mates) = waiting.of(TRANSPORT), behind_of(knowledge, asked)
    return Explained(
        by_rank=tuple(_rank(pid, waiting, knowledge.job_host, inside) for pid, inside in knowledge.inside.items()),
        causes_ns=causes_ns,
        least_ns=least_ns,
        pids=pids,
        late_ns=late_ns,
        behind=behind,
        by_mates=by_mates,
        slow=merge(slow.begin_ns, slow.end_ns),
        transport_ns=_by_group(asked, knowledge.wires),
        mates={pid: knowledge.number_of_mates(pid) for pid in knowledge.inside},
        unplaced_ns=_unplaced_ns(waiting.of(UNSEEN), knowledge.wires),
        counted=counted_together([]),
    )


def _cut_by_group(waiting: Waiting, wires: Wires, windows: Windows) -> Waiting:
    """Cut stretches by windows, by the turns of what is waited for, and where more than one link is full."""
    parts = []
    for number in np.unique(waiting.group).tolist():
        wire, stretches = wires.of(number), waiting.where(waiting.group == number)
        sets = (windows, wire.turn, wire.links.several)
        edges = distinct(*(edge for times in sets for edge in (times.begin_ns, times.end_ns)))
        begin, end, row = cut_at(stretches.begin_ns, stretches.end_ns, edges)
        parts.append(replace(stretches.where(row), begin_ns=begin, end_ns=end))
    return concatenate(Waiting, parts)


def _by_group(asked: TurnStretches, wires: Wires) -> dict[int, Int64]:
    """Return for how long all wait for the transport in each window, as `Explained` has it."""
    rows = asked.of(TRANSPORT)
    group = asked.parts.group[rows]
    group = np.where(np.isin(group, list(wires.groups)), group, 0)
    transport_ns = {}
    for number in np.unique(group).tolist():
        chosen = rows[group == number]
        ns = np.bincount(asked.window[chosen], asked.parts.length_ns[chosen], minlength=asked.windows)
        transport_ns[number] = ns.astype(np.int64)
    return transport_ns


def _unplaced_ns(unseen: Waiting, wires: Wires) -> int:
    total_ns = 0
    for number in np.unique(unseen.group).tolist():
        stretches = unseen.where(unseen.group == number)
        total_ns += (merge(stretches.begin_ns, stretches.end_ns) & wires.of(number).unplaced).total_ns
    return total_ns


def _counted(job_host: JobHost, world: World) -> CountedSteps:
    """Count the steps in the time that all hosts recorded; what marks tell is no step of a profile."""
    steps, (begin_ns, end_ns) = job_host.steps, world.span_ns
    steps = steps.where((steps.begin_ns >= begin_ns) & (steps.end_ns <= end_ns))
    return counted(steps.pid, steps.least_ns, steps.most_ns, steps.exact)


def explained_together(parts: Sequence[Explained]) -> Explained:
    """Return what the ranks of several hosts wait for."""
    surely = [part.surely for part in parts if part.surely is not None]
    return Explained(
        by_rank=tuple(rank for part in parts for rank in part.by_rank),
        of_ranks={pid: of_rank for part in parts for pid, of_rank in part.of_ranks.items()},
        causes_ns=np.sum([part.causes_ns for part in parts], axis=0, dtype=np.int64),
        least_ns=np.minimum.reduce([part.least_ns for part in parts]),
        pids=np.concatenate([part.pids for part in parts]),
        late_ns=np.concatenate([part.late_ns for part in parts]),
        behind=concatenate(Behind, [part.behind for part in parts]),
        by_mates=concatenate(ByMates, [part.by_mates for part in parts]),
        slow=union([part.slow for part in parts]),
        transport_ns=merged([part.transport_ns for part in parts], lambda all_ns: np.sum(all_ns, axis=0)),
        mates={pid: count for part in parts for pid, count in part.mates.items()},
        of_parts=sum(part.of_parts for part in parts),
        unplaced_ns=sum(part.unplaced_ns for part in parts),
        counted=counted_together([part.counted for part in parts]),
        surely=explained_together(surely) if surely else None,
    )


def _known(job_host: JobHost, world: World, wires: Wires) -> Known:
    """Return what explains the waiting of one host's processes."""
    members = world.members_on(job_host)
    unmarked, carried = job_host.by_pid(What.UNMARKED), job_host.by_pid(What.ON_PORTS)
    without = wires.groups[0] if unmarked and not carried else wires.ports
    groups: dict[int, ExplainingTimes] = {**wires.groups, WITHOUT_COLLECTIVE: without}
    for number in np.unique(members.group[members.group >= world.first_local]).tolist():
        groups[number] = _of_part(job_host, members, number)
    return Known(
        collectives=job_host.collectives,
        members=members,
        on_wire=job_host.on_wire,
        groups=groups,
        all_seen=when_all_seen(members, job_host.collectives)
        | {number: each.all_seen for number, each in world.groups.items()},
        hidden=job_host.by_pid(What.HIDDEN),
        carried=carried,
        unmarked=unmarked,
    )


def _of_part(job_host: JobHost, members: Members, group: int) -> WholeWire:
    """Return what explains the waiting in a communicator that not all hosts know, as far as this one does."""
    turn = turns(job_host.collectives, members, group)
    pids = set(np.unique(job_host.collectives.pid[members.group == group]).tolist())
    return whole_wire(turn, wire_part(job_host, turn, pids), apart_ns=0.0)


def _rank(pid: int, waiting: Waiting, job_host: JobHost, iterations: Intervals) -> RankWaiting:
    stretches = waiting.of_pid(pid)
    causes = np.bincount(stretches.cause, weights=stretches.length_ns, minlength=len(WAIT_CAUSES)).astype(np.int64)
    rank = job_host.host.told_ranks.get(pid)
    return RankWaiting(pid, rank, iterations.total_ns, int(causes.sum()), tuple(causes.tolist()))


def _of_ranks(job_host: JobHost, inside: Mapping[int, Intervals], known: Known, world: World) -> dict[int, OfRank]:
    times = in_span(job_host.times, world.span_ns)
    if job_host.host.bounded:  # how long a collective takes is not known
        return {pid: OfRank(durations(iterations), None) for pid, iterations in by_pid(times)}
    return {pid: _of_rank(pid, times, iterations, known, world) for pid, iterations in inside.items()}


def _of_rank(pid: int, times: IterationTimes, iterations: Intervals, known: Known, world: World) -> OfRank:
    rows = known.collectives.pid == pid
    matched = together(known.collectives.where(rows), known.members.where(rows))
    return OfRank(durations(times.of_pid(pid)), rank_bandwidths(matched, iterations, world.world_size, None))
