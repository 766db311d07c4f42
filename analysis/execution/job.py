"""The job as something to be simulated: what each rank executes, and the groups that its collectives are of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.members import Members
from netprof.analysis.evidence import Evidence
from netprof.analysis.execution.nodes import Execution, common_iterations, executed, execution
from netprof.analysis.tables.columns import UNKNOWN
from netprof.schema import Backend


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
    iterations = common_iterations(evidence.iterations)
    ranks = _ranks(evidence, np.unique(iterations.pid).tolist())
    iterations = iterations.where(np.isin(iterations.pid, list(ranks)))
    rows = executed(evidence.collectives, evidence.members, iterations)
    collectives, members = evidence.collectives.where(rows), evidence.members.where(rows)
    found = [execution(pid, iterations, evidence.phases[pid], collectives, members) for pid in ranks]
    size = evidence.world_size or len(ranks)
    return JobExecution(
        ranks=ranks,
        executions=tuple(found),
        groups=_groups(collectives, members, ranks, size),
        world_size=size,
        iterations={pid: int((iterations.pid == pid).sum()) for pid in ranks},
        notes=tuple(_notes(evidence, ranks, size)),
    )


def _ranks(evidence: Evidence, pids: list[int]) -> dict[int, int]:
    """Return the rank of each process that trains, one process each; numbers in order where nothing tells ranks."""
    if not any(pid in evidence.ranks for pid in pids):
        return {pid: number for number, pid in enumerate(pids)}
    by_rank = {evidence.ranks[pid]: pid for pid in pids if pid in evidence.ranks}
    return {pid: rank for rank, pid in sorted(by_rank.items())}


def _groups(
    collectives: Collectives, members: Members, ranks: Mapping[int, int], world_size: int
) -> dict[int, tuple[int, ...] | None]:
    found: dict[int, tuple[int, ...] | None] = {}
    for number in np.unique(members.group).tolist():
        own = members.group == number
        size = int(members.ranks[own].max(initial=UNKNOWN))
        is_world = size in (world_size, UNKNOWN)
        known = sorted({ranks[pid] for pid in np.unique(collectives.pid[own]).tolist() if pid in ranks})
        found[number] = None if is_world else tuple(known)
    return found


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
