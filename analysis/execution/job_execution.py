"""What each rank executes and which of it waits for which: the job as something to be simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.wait_pieces import cut_at
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.events.members import Members
from netprof.analysis.events.phase_times import PhaseTimes
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Int64, concatenate, distinct
from netprof.analysis.tables.intervals import Intervals, row_at
from netprof.schema import Backend, CollectiveKind

COMPUTE = -2
"""`Nodes.kind` of what is no collective."""
_MESSAGES = (UNKNOWN, int(CollectiveKind.SEND), int(CollectiveKind.RECEIVE))


@dataclass(frozen=True, eq=False)
class Nodes(Columns):
    """What a process does, such that nothing stands before what it waits for; ns, bytes.

    `kind` is a CollectiveKind or COMPUTE, `phase` an index in `phases` of the execution. Of a collective `begin_ns` is
    when it was asked for and `end_ns` when it was done; `bytes` is its buffer, `group` its communicator, as in
    `Members`, and `ranks` how many that has.
    """

    begin_ns: Int64
    end_ns: Int64
    kind: Int64
    phase: Int64
    bytes: Int64
    group: Int64
    ranks: Int64


@dataclass(frozen=True, eq=False)
class Execution:
    """One process. Row `child[i]` of the nodes cannot begin before row `parent[i]` is done.

    Collectives are asked for by what was computed before. What is computed after a wait, or in the next iteration,
    needs all collectives that were done by then.
    """

    pid: int
    nodes: Nodes
    phases: Sequence[str]
    child: Int64
    parent: Int64


def common_iterations(iterations: Iterations) -> Iterations:
    """Return the iterations that all processes were recorded in: no rank has one that another lacks at the edges."""
    pids = np.unique(iterations.pid)
    if len(pids) == 0:
        return iterations
    by_process = [iterations.of_pid(pid) for pid in pids]
    first, last = max(each.begin_ns[0] for each in by_process), min(each.end_ns[-1] for each in by_process)
    middle = iterations.begin_ns + iterations.duration_ns // 2
    return iterations.where((middle >= first) & (middle <= last))


def executed(collectives: Collectives, members: Members, iterations: Iterations) -> Bool:
    """Return which collectives are asked for in some iterations by every member that was recorded.

    What a single member has, at an edge of the recording or since a mark was lost, would hold all others up for ever.
    Messages are none, and what is of unknown kind and size.
    """
    chosen = np.zeros(len(collectives), bool)
    for pid in np.unique(iterations.pid).tolist():
        of_process = iterations.of_pid(pid)
        rows = collectives.rows_of(pid)
        chosen[rows] = row_at(of_process.begin_ns, of_process.end_ns, collectives.posted_ns[rows]) != UNKNOWN
    chosen &= ~np.isin(collectives.kind, _MESSAGES) & (members.group >= 0)
    recorded = _recorded(collectives, members)
    matched = np.flatnonzero(chosen & (members.event >= 0))
    taking_part = np.bincount(members.event[matched], minlength=int(members.event.max(initial=-1)) + 1)
    together = (members.event >= 0) & (taking_part[np.maximum(members.event, 0)] == recorded) if len(matched) else False
    return np.asarray(chosen & ((recorded < 2) | together))


def _recorded(collectives: Collectives, members: Members) -> Int64:
    """Return of how many processes each collective's communicator is known."""
    count = np.zeros(int(members.group.max(initial=-1)) + 2, np.int64)
    for number in np.unique(members.group[members.group >= 0]).tolist():
        count[number] = len(np.unique(collectives.pid[members.group == number]))
    return count[members.group]


def execution(
    pid: int, iterations: Iterations, phases: PhaseTimes, collectives: Collectives, members: Members
) -> Execution:
    """Return what a process executes in some of its iterations; `collectives` and `members` are those of `executed`."""
    of_process = iterations.of_pid(pid)
    rows = collectives.rows_of(pid)
    asked, group = collectives.where(rows), members.where(rows)
    times = phases.within(of_process.begin_ns, of_process.end_ns)
    waits = times.pop("exposed_communication")
    computing = _computing(times, distinct(asked.posted_ns, of_process.begin_ns))
    talking = Nodes(
        asked.posted_ns,
        asked.end_ns,
        asked.kind,
        np.full(len(asked), UNKNOWN),
        asked.bytes,
        group.group,
        group.ranks,
    )
    child, parent = _dependencies(computing, talking, distinct(waits.end_ns, of_process.begin_ns))
    return _in_order(pid, computing, talking, tuple(times), child, parent)


def _computing(times: Mapping[str, Intervals], edges: Int64) -> Nodes:
    """Return the time of each phase, cut where a collective is asked for, by begin."""
    parts = []
    for number, spans in enumerate(times.values()):
        begin, end, _ = cut_at(spans.begin_ns, spans.end_ns, edges)
        unknown = np.full(len(begin), UNKNOWN)
        kind, phase = np.full(len(begin), COMPUTE), np.full(len(begin), number)
        parts.append(Nodes(begin, end, kind, phase, unknown, unknown, unknown))
    nodes = concatenate(Nodes, parts)
    return nodes.where(np.argsort(nodes.begin_ns, kind="stable"))


def _dependencies(computing: Nodes, talking: Nodes, waited_ns: Int64) -> tuple[Int64, Int64]:
    """Return which rows need which; collectives are numbered on after what is computed.

    `waited_ns` is when a wait, or an iteration, is over.
    """
    count = len(computing)
    chain = np.arange(1, count)
    rows = np.arange(len(talking))
    before = np.searchsorted(computing.end_ns, talking.begin_ns, "right") - 1
    starts = np.searchsorted(computing.begin_ns, waited_ns)  # what is computed next after each wait
    starts = distinct(starts[starts < count])
    after = np.searchsorted(computing.begin_ns[starts], talking.end_ns)
    asked, needed = before >= 0, after < len(starts)
    child = np.concatenate((chain, rows[asked] + count, starts[after[needed]]))
    parent = np.concatenate((chain - 1, before[asked], rows[needed] + count))
    return child, parent


def _in_order(
    pid: int, computing: Nodes, talking: Nodes, phases: Sequence[str], child: Int64, parent: Int64
) -> Execution:
    """Return the execution with all nodes by begin; what is asked for at an instant stands before what is computed."""
    both = concatenate(Nodes, [computing, talking])
    is_computing = np.arange(len(both)) < len(computing)
    order = np.lexsort((is_computing, both.begin_ns))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    child, parent = place[child], place[parent]
    by_child = np.lexsort((parent, child))
    return Execution(pid, both.where(order), phases, child[by_child], parent[by_child])


@dataclass(frozen=True, eq=False)
class JobExecution:
    """`ranks` by process, what each of those executes, and the ranks of the groups, by their number in `Nodes`.

    None stands for the group of all ranks. `iterations` is how many are in it, by process. `notes` say what is not in
    it, a sentence each.
    """

    ranks: Mapping[int, int]
    executions: tuple[Execution, ...]
    groups: Mapping[int, tuple[int, ...] | None]
    world_size: int
    iterations: Mapping[int, int]
    notes: tuple[str, ...]


def job_execution(evidence: Evidence) -> JobExecution:
    """Return what the ranks execute in the iterations that all of them were recorded in. Raises TraceError."""
    ranks = _ranks(evidence)
    iterations = common_iterations(evidence.iterations.where(np.isin(evidence.iterations.pid, list(ranks))))
    rows = executed(evidence.collectives, evidence.members, iterations)
    collectives, members = evidence.collectives.where(rows), evidence.members.where(rows)
    size = evidence.world_size or len(ranks)
    return JobExecution(
        ranks=ranks,
        executions=tuple(execution(pid, iterations, evidence.phases[pid], collectives, members) for pid in ranks),
        groups=_groups(collectives, members, ranks, size),
        world_size=size,
        iterations={pid: int((iterations.pid == pid).sum()) for pid in ranks},
        notes=tuple(_notes(evidence, ranks, size)),
    )


def _ranks(evidence: Evidence) -> dict[int, int]:
    """Return the rank of each process that trains, the last of a rank; numbers in order where nothing tells ranks."""
    pids = np.unique(evidence.iterations.pid).tolist()
    if not any(pid in evidence.ranks for pid in pids):
        return {pid: number for number, pid in enumerate(pids)}
    by_begin = evidence.iterations.pid[np.argsort(evidence.iterations.begin_ns, kind="stable")].tolist()
    by_rank = {evidence.ranks[pid]: pid for pid in by_begin if pid in evidence.ranks}
    return {pid: rank for rank, pid in sorted(by_rank.items())}


def _groups(
    collectives: Collectives, members: Members, ranks: Mapping[int, int], world_size: int
) -> dict[int, tuple[int, ...] | None]:
    groups: dict[int, tuple[int, ...] | None] = {}
    for number in np.unique(members.group).tolist():
        rows = members.group == number
        size = int(members.ranks[rows].max(initial=UNKNOWN))
        is_world = size in (world_size, UNKNOWN)
        known = sorted({ranks[pid] for pid in np.unique(collectives.pid[rows]).tolist() if pid in ranks})
        groups[number] = None if is_world else tuple(known)
    return groups


def _notes(evidence: Evidence, ranks: Mapping[int, int], world_size: int) -> Iterator[str]:
    missing = sorted(set(range(world_size)) - set(ranks.values()))
    if missing:
        yield f"ranks {', '.join(map(str, missing))} were not recorded and have no file: a simulation needs one of each"
    if len(evidence.posted):
        yield "messages, and collectives whose end was not seen, are left out"
    if not len(evidence.collectives):
        yield "no collective was seen to begin and end: of NCCL's only the asking is seen, and they are left out"
    if np.isin(evidence.collectives.backend, [int(Backend.HOROVOD)]).any():
        yield "Horovod fuses tensors on its own: its collectives depend on more than is known here"
