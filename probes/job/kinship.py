"""Kinship: which processes belong to a job although none of its processes started them.

Ranks are started by hand, by mpirun, by a container engine; what all ranks of one job have in common, and no other job
has, is the rendezvous in the environment that they were started with. torchrun meets anew, elsewhere, when it starts a
rank again; there it is the agent, of which each job has its own, that tells.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from netprof.probes.job import procfs, ranks
from netprof.probes.job.tree import LIVE, Process, View, add_trees, ancestors
from netprof.schema import UNKNOWN_RANK


@dataclass(frozen=True)
class Kinship:
    """What processes of a job have in common: rendezvous, torchrun's agents by pid and run, users by id."""

    rendezvous: frozenset[tuple[str, ...]]
    agents: frozenset[tuple[int, str]]
    owners: frozenset[int]

    @classmethod
    def of(cls, processes: Collection[Process], view: View = LIVE) -> Kinship:
        """Return that of the given processes of one job."""
        names = (ranks.job_of(process.environment, process.netns) for process in processes)
        agents = {(process.stat.parent, ranks.run_of(process.environment)) for process in processes}
        # What has PyTorch loaded is the agent; where that has ended, init or the like is the parent, of strangers too.
        agents = {(pid, run) for pid, run in agents if run and (agent := view.look(pid)) and agent.frameworks}
        owners = (procfs.owner(process.stat.pid) for process in processes)
        return cls(frozenset(filter(None, names)), frozenset(agents), frozenset(owners))

    def may_claim(self, pid: int) -> bool:
        """Tell, without looking closely, whether a process could belong to the job."""
        names = self.variables
        return bool(names) and procfs.owner(pid) in self.owners and procfs.was_started_with(pid, names)

    def claims(self, process: Process) -> bool:
        """Tell whether a process was started as one of the job's."""
        agent = (process.stat.parent, ranks.run_of(process.environment))
        return ranks.job_of(process.environment, process.netns) in self.rendezvous or agent in self.agents

    @property
    def variables(self) -> set[str]:
        """The variables (NAME=value) that tell the job's processes."""
        named = {f"{name}={value}" for name, value, *_ in self.rendezvous}
        return named | {f"{ranks.RUN}={run}" for _, run in self.agents}


def add_kin(job: dict[int, Process], among: Collection[int] | None = None, view: View = LIVE) -> None:
    """Add the ranks that share a rendezvous with a process of the job, and their descendants.

    They are looked for in all processes of the job's users, or only `among` some.
    """
    kinship = Kinship.of(job.values(), view)
    if not kinship.rendezvous and not kinship.agents:
        return
    if among is None:
        pids = view.kin(kinship.rendezvous, kinship.agents, kinship.owners)
    else:
        pids = (pid for pid in among if kinship.may_claim(pid))
    add_trees(_one_of_each_rank(_kin(kinship, pids, job, view), job, view), job, view)


def add_agents(job: dict[int, Process], view: View = LIVE) -> None:
    """Add the torchrun agents that started processes of the job, with all that they started: they may start more."""
    agents = {pid for pid, _ in Kinship.of(job.values(), view).agents} - ancestors([os.getpid()], view)
    add_trees(view.look_at_all(agents), job, view)


def _kin(kinship: Kinship, pids: Iterable[int], job: dict[int, Process], view: View) -> list[Process]:
    """Return the ranks outside `job` that were started as its own.

    The shell in which somebody exported MASTER_ADDR has it too, and so has a netprof started from there: only ranks
    and processes with a framework loaded count, and never netprof or what it was started by.
    """
    not_the_job = ancestors([os.getpid()], view)
    candidates = (pid for pid in pids if pid not in job and pid not in not_the_job)
    return [
        process
        for process in view.look_at_all(candidates)
        if kinship.claims(process) and (ranks.rank_variables(process.environment) or process.frameworks)
    ]


def _one_of_each_rank(kin: list[Process], job: dict[int, Process], view: View) -> list[Process]:
    """Leave out the ranks of another job that happens to use the same address and port, in namespaces of its own.

    What the job descends from is its own. A rank that it has already is not; of several that could be a rank, it is
    the one that was started at about the same time. Descendants are left to the process that they descend from.
    """
    above = ancestors(job, view)
    pids = {process.stat.pid for process in kin}
    began = min(process.stat.start_ticks for process in job.values())
    taken = {_own_rank(process) for process in job.values()} - {UNKNOWN_RANK}
    chosen: dict[int, Process] = {}
    others = [process for process in kin if process.stat.pid in above]
    for process in sorted(kin, key=lambda process: abs(process.stat.start_ticks - began)):
        rank = _own_rank(process)
        if process.stat.parent in pids or process.stat.pid in above or rank in taken:
            continue
        if rank == UNKNOWN_RANK:
            others.append(process)
        else:
            chosen.setdefault(rank, process)
    return [*chosen.values(), *others]


def _own_rank(process: Process) -> int:
    place = ranks.place_of(process.environment)
    return UNKNOWN_RANK if place.inherited else place.rank
