"""What the job's processes are of: containers, Kubernetes pods, Slurm jobs; and their numbers inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netprof.analysis.form import Grid, Part
from netprof.analysis.section import Analysis, Section
from netprof.model import Cgroup, Target

_NAMED = 8


@dataclass(frozen=True)
class ProcessSummary:
    """A process of the job: `pid` is its number in the document, `host` and `own_pid` where several hosts have one."""

    target: Target
    pid: int
    rank: int | None
    host: str | None = None
    own_pid: int | None = None


def _conclude(analysis: Analysis) -> tuple[ProcessSummary, ...]:
    evidence = analysis.evidence
    return tuple(_summary(target, evidence.ranks, evidence.host_of) for target in analysis.meta.targets)


def _summary(target: Target, ranks: Mapping[int, int], host_of: Mapping[int, Any]) -> ProcessSummary:
    host = host_of.get(target.pid)
    if host is None:
        return ProcessSummary(target, target.pid, ranks.get(target.pid))
    return ProcessSummary(target, target.pid, ranks.get(target.pid), host.name, host.pids[target.pid])


def _document(processes: Sequence[ProcessSummary]) -> dict[str, Any]:
    return {"processes": [_process(each) for each in processes]}


def _process(each: ProcessSummary) -> dict[str, Any]:
    cgroup = each.target.cgroup
    return {
        "pid": each.pid,
        **({"host": each.host, "own_pid": each.own_pid} if each.host is not None else {}),
        "inner_pid": each.target.inner_pid or None,
        "rank": each.rank,
        "container": _container(cgroup) if cgroup.in_container else None,
        "pod": _pod(cgroup) if cgroup.pod_uid else None,
        "slurm": {"job": cgroup.slurm_job, "step": cgroup.slurm_step or None} if cgroup.slurm_job else None,
    }


def _container(cgroup: Cgroup) -> dict[str, str | None]:
    return {"id": cgroup.container or None, "name": cgroup.container_name or None, "runtime": cgroup.runtime or None}


def _pod(cgroup: Cgroup) -> dict[str, str | None]:
    return {"uid": cgroup.pod_uid, "name": cgroup.pod or None, "namespace": cgroup.pod_namespace or None}


def _parts(processes: Sequence[ProcessSummary]) -> Sequence[Part]:
    """Show what ranks run in; where no rank is known, what any process does."""
    ranks = [each for each in processes if each.rank is not None]
    places: dict[tuple[str, str], list[ProcessSummary]] = {}
    for each in ranks or processes:
        places.setdefault((each.target.cgroup.label, each.host or ""), []).append(each)
    if not any(label for label, _ in places):
        return ()
    rows = [(_who(found), host, label or "no container known") for (label, host), found in places.items()]
    grid = Grid(("processes", "host", "run in"), rows, frozenset({"host", "run in"}))
    return [Part("Placement", bodies=[grid if any(each.host for each in processes) else grid.without({"host"})])]


def _who(processes: Sequence[ProcessSummary]) -> str:
    """Name processes for a person: by rank and, in a namespace of its own, by the number that each has in there."""
    names = [_name(each) for each in processes[:_NAMED]]
    more = len(processes) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _name(each: ProcessSummary) -> str:
    pid, inner_pid = each.own_pid or each.pid, each.target.inner_pid
    name = f"pid {pid}" if each.rank is None else f"rank {each.rank}"
    return f"{name} (pid {inner_pid} inside)" if inner_pid not in (0, pid) else name


PROCESSES = Section("processes", _conclude, (), _document, _parts)
