"""What the job's processes are of: containers, Kubernetes pods, Slurm jobs; and their numbers inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netprof.analysis.declared import by_key
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.names import rank_or_pid
from netprof.analysis.form import Grid, Part
from netprof.analysis.section import Section
from netprof.model import Target
from netprof.units import listed

_NAMED = 8


@dataclass(frozen=True)
class ProcessSummary:
    """A process of the job; `host` and its number there, `own_pid`, where several hosts recorded the job."""

    target: Target
    rank: int | None
    host: str | None = None
    own_pid: int | None = None


def _summary(target: Target, evidence: Evidence) -> ProcessSummary:
    host = evidence.host_of.get(target.pid)
    where = () if host is None else (host.name, host.pids[target.pid])
    return ProcessSummary(target, evidence.ranks.get(target.pid), *where)


def _process(each: ProcessSummary) -> dict[str, Any]:
    cgroup = each.target.cgroup
    container = {
        "id": cgroup.container or None,
        "name": cgroup.container_name or None,
        "runtime": cgroup.runtime or None,
    }
    pod = {"uid": cgroup.pod_uid, "name": cgroup.pod or None, "namespace": cgroup.pod_namespace or None}
    return {
        "pid": each.target.pid,
        **({"host": each.host, "own_pid": each.own_pid} if each.host is not None else {}),
        "inner_pid": each.target.inner_pid or None,
        "rank": each.rank,
        "container": container if cgroup.in_container else None,
        "pod": pod if cgroup.pod_uid else None,
        "slurm": {"job": cgroup.slurm_job, "step": cgroup.slurm_step or None} if cgroup.slurm_job else None,
    }


def _parts(processes: Sequence[ProcessSummary]) -> Sequence[Part]:
    """Show what ranks run in; where no rank is known, what any process does."""
    ranks = [each for each in processes if each.rank is not None]
    places = by_key([ranks or processes], lambda each: (each.target.cgroup.label, each.host or ""))
    if not any(label for label, _ in places):
        return ()
    rows = [(_who(alike), host, label or "no container known") for (label, host), alike in places.items()]
    grid = Grid(("processes", "host", "run in"), rows, frozenset({"host", "run in"}))
    return [Part("Placement", bodies=[grid if any(each.host for each in processes) else grid.without({"host"})])]


def _who(processes: Sequence[ProcessSummary]) -> str:
    """Name processes for a person: by rank and, in a namespace of its own, by the number that each has in there."""
    return listed([_name(each) for each in processes], _NAMED)


def _name(each: ProcessSummary) -> str:
    pid, inner_pid = each.own_pid or each.target.pid, each.target.inner_pid
    name = rank_or_pid(each.rank, pid)
    return f"{name} (pid {inner_pid} inside)" if inner_pid not in (0, pid) else name


PROCESSES = Section(
    "processes",
    lambda analysis: tuple(_summary(target, analysis.evidence) for target in analysis.meta.targets),
    (),
    lambda processes: {"processes": [_process(each) for each in processes]},
    _parts,
)
