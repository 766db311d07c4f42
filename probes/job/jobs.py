"""The training jobs of this host, found without being told a pid, and what a person may call them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePath

from netprof.errors import NetprofError
from netprof.model import Cgroup, Target
from netprof.probes.job import procfs, ranks
from netprof.probes.job.owners import Owners, user_name
from netprof.probes.job.processes import find_job
from netprof.probes.job.tree import Snapshot, ancestors
from netprof.schema import UNKNOWN_RANK
from netprof.units import count

_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # what 'torchrun --standalone' calls its run
_NO_RUN = ("", "none")
_PIDS_SHOWN = 8


@dataclass(frozen=True)
class LocalJob:
    """The processes of a job on this host, and what it goes by: "" for what it has not.

    `run` is what torchrun calls it. `is_sure` says that its processes are ranks for sure, by their environment or since
    they are several; what only holds a connection may be a notebook, too. `owner` is the id of the user whose
    share it takes (`owners`).
    """

    targets: tuple[Target, ...]
    user: str
    cgroup: Cgroup = field(default_factory=Cgroup)
    run: str = ""
    is_sure: bool = True
    owner: int = -1

    @property
    def training(self) -> list[Target]:
        """Those of its processes that train."""
        return [target for target in self.targets if target.frameworks]

    @property
    def pids(self) -> list[int]:
        """The processes that train."""
        return [target.pid for target in self.training]

    @property
    def program(self) -> str:
        """What its first rank runs, or what started that where it was forked: a script, a module or a program."""
        commands = [target.command for target in (*self.training, *self.targets)]
        return next(filter(None, map(script_of, commands)), None) or program_of(commands[0])

    @property
    def label(self) -> str:
        """What to call it that is the same on every host of the job: Slurm's number, torchrun's name, its program."""
        if self.cgroup.slurm_job:
            return f"slurm-{self.cgroup.slurm_job}"
        named = self.run not in _NO_RUN and not _RANDOM.fullmatch(self.run)
        return self.run if named else self.program.removesuffix(".py")

    @property
    def sentence(self) -> str:
        """One line about it, for a person who chooses."""
        pids = self.pids
        shown = ", ".join(map(str, pids[:_PIDS_SHOWN])) + (", …" if len(pids) > _PIDS_SHOWN else "")
        parts = [f"{self.program}: {self._ranks} (pid {shown})", f"user {self.user}"]
        return ", ".join(filter(None, (*parts, self.cgroup.label)))

    @property
    def _ranks(self) -> str:
        known = [target.rank for target in self.training if target.rank != UNKNOWN_RANK]
        if len(known) < len(self.pids):
            return count(len(self.pids), "process", "processes")
        if len(known) > 1 and known == list(range(known[0], known[-1] + 1)):
            return f"ranks {known[0]} to {known[-1]}"
        return f"{'rank' if len(known) == 1 else 'ranks'} {', '.join(map(str, known[:_PIDS_SHOWN]))}"


_MOST_TRIES, _MOST_LOOKS = 128, 20_000
"""Processes of one user whose jobs are looked for at one time, and how many others are looked at for that."""


@dataclass(frozen=True)
class Found:
    """The jobs of this host; `untried` are processes that may be ranks of others, by users with too many to look at."""

    jobs: list[LocalJob]
    untried: Mapping[int, int]


def find_jobs(known: Container[tuple[int, int]] = ()) -> Found:
    """Return the training jobs of this host as far as this process may look, those that are surely some first.

    Which processes belong together is what `find_job` says of any one of them. A process that has a framework loaded,
    but neither a rank nor a connection, is none. Every process is read once; those `known` by pid and start, of jobs
    that need not be found, begin no search.
    """
    view, owners = Snapshot(), Owners()
    group_of: dict[int, dict[int, Target]] = {}
    not_jobs = ancestors([os.getpid()], view)  # netprof, and what it was started by
    tries, looks, untried = Counter[int](), Counter[int](), Counter[int]()
    for pid, stat in sorted(view.stats.items()):
        if pid in not_jobs or pid in group_of or (pid, stat.start_ticks) in known or stat.kernel_thread:
            continue
        process = view.look(pid)
        if process is None:
            continue
        owner = owners.of_process(pid, procfs.real_user(pid))
        if tries[owner] >= _MOST_TRIES or looks[owner] >= _MOST_LOOKS:
            untried[owner] += bool(ranks.rank_variables(process.environment))
            continue
        if not process.frameworks:
            continue
        tries[owner] += 1
        before = view.looks
        with suppress(NetprofError):  # it has ended meanwhile
            _add({target.pid: target for target in find_job([pid], view)}, group_of)
        looks[owner] += view.looks - before
    groups = {id(group): group for group in group_of.values()}.values()
    jobs = (_job(list(group.values()), owners) for group in groups)
    return Found(sorted(filter(None, jobs), key=lambda job: (not job.is_sure, job.pids)), untried)


def label_of(targets: Sequence[Target], *, has_environment: bool = True) -> str:
    """Return what to call the job of some processes, as `LocalJob.label`; "" where none of them trains.

    Of another host's processes there is no environment here.
    """
    training = [target for target in targets if target.frameworks]
    if not training:
        return ""
    run = ranks.run_of(procfs.environment(training[0].pid, ranks.VARIABLES)) if has_environment else ""
    return LocalJob(tuple(targets), "", training[0].cgroup, run).label


def script_of(command: str) -> str:
    """Return the script or the module that a command line runs; "" where it is neither."""
    words = command.split()
    scripts = [word for word in words if word.endswith(".py")]
    modules = [word for before, word in pairwise(words) if before == "-m"]
    return next((PurePath(word).name for word in [*scripts, *modules]), "")


def program_of(command: str) -> str:
    """Return the script, module or program of a command line."""
    return script_of(command) or next((PurePath(word).name for word in command.split()), "?")


def _add(job: dict[int, Target], group_of: dict[int, dict[int, Target]]) -> None:
    """Add a job's processes to the group of each; a launcher is found with ranks that are known already."""
    for group in {id(group_of[pid]): group_of[pid] for pid in job if pid in group_of}.values():
        job = group | job
    group_of.update(dict.fromkeys(job, job))


def _job(targets: Sequence[Target], owners: Owners) -> LocalJob | None:
    training = [target for target in targets if target.frameworks]
    if not training:
        return None
    environments = [procfs.environment(target.pid, ranks.VARIABLES) for target in training]
    has_ranks = any(ranks.rank_variables(each) for each in environments)
    if not has_ranks and not any(procfs.connections(target.pid) for target in training):
        return None
    is_sure = has_ranks or len(training) > 1 or (training[0].world_size or 0) > 1
    uid = procfs.real_user(training[0].pid)
    return LocalJob(
        targets=tuple(sorted(targets, key=lambda each: (each.rank < 0, each.rank, not each.frameworks, each.pid))),
        user=user_name(uid),
        cgroup=training[0].cgroup,
        run=ranks.run_of(environments[0]),
        is_sure=is_sure,
        owner=owners.of_process(training[0].pid, uid),
    )
