"""Processes and those that they started: what is looked at of each, what is below it and what is above."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from netprof.probes.frameworks import FRAMEWORKS
from netprof.probes.frameworks.table import Framework, file_names
from netprof.probes.job import cgroups, procfs, ranks

_MAX_PROCESSES = 100_000
VARIABLES = tuple(dict.fromkeys((*ranks.VARIABLES, *cgroups.VARIABLES)))
"""Every variable that is looked at of a process's environment."""

_DATA_LOADER = "pt_data_"  # PyTorch names its data loaders' processes so


class LoadedFrameworks:
    """Looks for the libraries of `frameworks` in processes; those of one family are one."""

    def __init__(self, frameworks: Iterable[Framework]) -> None:
        names: dict[str, dict[bytes, None]] = {}  # of files, by family
        for framework in frameworks:
            names.setdefault(framework.family or framework.name, {})[file_names(framework.library)] = None
        self._families = tuple(names)
        groups = b"|".join(b"(" + b"|".join(each) + b")" for each in names.values())
        self._paths = re.compile(rb"/(?:" + groups + rb")(?: \(deleted\))?$", re.MULTILINE)

    def of(self, pid: int) -> tuple[str, ...]:
        """Return the families whose libraries process `pid` has mapped; () if it cannot be read."""
        try:
            groups = procfs.mapped(pid, self._paths)
        except OSError:
            return ()
        return tuple(family for group, family in enumerate(self._families, start=1) if group in groups)


_LOADED = LoadedFrameworks(framework for framework in FRAMEWORKS if framework.trains)


@dataclass
class Process:
    """A process of the job while it is being sorted out."""

    stat: procfs.Stat
    netns: int
    environment: dict[str, str]
    known_frameworks: tuple[str, ...] | None = None

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks whose libraries the process has mapped; looked up once."""
        if self.known_frameworks is None:
            self.known_frameworks = mapped_frameworks(self.stat.pid)
        return self.known_frameworks

    @property
    def is_data_loader(self) -> bool:
        """Whether it is called like one of PyTorch's."""
        return self.stat.name.startswith(_DATA_LOADER)


def mapped_frameworks(pid: int) -> tuple[str, ...]:
    """Return the frameworks, by family, whose libraries process `pid` has mapped; () if it cannot be read."""
    return _LOADED.of(pid)


Rendezvous = tuple[str, ...]
"""What all ranks of a job have in common (`ranks.job_of`)."""

Agent = tuple[int, str]
"""torchrun's agent that started a process, and what it calls its run."""


class View:
    """Looks at processes, each time anew."""

    def look(self, pid: int) -> Process | None:
        """Look at a process that nobody named; None if it is gone or is no program."""
        stat = procfs.read_stat(pid)
        if stat is None or stat.ended or stat.kernel_thread:
            return None
        return Process(stat, procfs.namespace(pid, "net"), procfs.environment(pid, VARIABLES))

    def look_at_all(self, pids: Iterable[int]) -> list[Process]:
        """Look at several, and leave out those that cannot be looked at."""
        return [process for process in map(self.look, pids) if process is not None]

    def parent(self, pid: int) -> int:
        """Return the process that started one; 0 where there is none, or it is gone."""
        stat = procfs.read_stat(pid)
        return stat.parent if stat else 0

    def children(self, pid: int) -> Iterable[int]:
        """Return the processes that one has started and that live."""
        return procfs.children(pid)

    def kin(
        self, rendezvous: Collection[Rendezvous], agents: Collection[Agent], owners: Collection[int]
    ) -> Iterable[int]:
        """Return the processes of some users that may have been started with one of those in their environment."""
        names = {f"{name}={value}" for name, value, *_ in rendezvous} | {f"{ranks.RUN}={run}" for _, run in agents}
        return (pid for pid in procfs.processes(owners) if procfs.was_started_with(pid, names))


class Snapshot(View):
    """All processes as they are found at one time: each is read once, however often it is looked at."""

    def __init__(self) -> None:
        self.stats = {pid: stat for pid in procfs.processes() if (stat := procfs.read_stat(pid)) is not None}
        self.looks = 0
        """How often processes were looked at: what finding jobs costs."""
        self._looked: dict[int, Process | None] = {}
        self._children: defaultdict[int, list[int]] = defaultdict(list)
        for pid, stat in self.stats.items():
            self._children[stat.parent].append(pid)
        self._kin: dict[int, defaultdict[Rendezvous | Agent | None, list[int]]] = {}  # of each user

    def look(self, pid: int) -> Process | None:
        """Look at a process, the first time."""
        self.looks += 1
        if pid not in self._looked:
            self._looked[pid] = super().look(pid)
        return self._looked[pid]

    def parent(self, pid: int) -> int:
        """Return the process that started one as of then."""
        return self.stats[pid].parent if pid in self.stats else 0

    def children(self, pid: int) -> Iterable[int]:
        """Return the processes that one had started and that lived."""
        return self._children.get(pid, ())

    def kin(
        self, rendezvous: Collection[Rendezvous], agents: Collection[Agent], owners: Collection[int]
    ) -> Iterable[int]:
        """Return the processes of some users that were started with one of those in their environment."""
        if missing := set(owners) - self._kin.keys():
            self._kin.update({owner: defaultdict(list) for owner in missing})
            for pid, stat in self.stats.items():
                if (owner := procfs.owner(pid)) in missing and (process := self.look(pid)) is not None:
                    self._kin[owner][ranks.job_of(process.environment, process.netns)].append(pid)
                    self._kin[owner][stat.parent, ranks.run_of(process.environment)].append(pid)
        keys: list[Rendezvous | Agent] = [*rendezvous, *agents]
        return dict.fromkeys(pid for owner in owners for key in keys for pid in self._kin[owner].get(key, ()))


LIVE = View()


def look(pid: int) -> Process | None:
    """Look at a process that nobody named; None if it is gone or is no program."""
    return LIVE.look(pid)


def look_at_all(pids: Iterable[int]) -> list[Process]:
    """Look at several, and leave out those that cannot be looked at."""
    return LIVE.look_at_all(pids)


def add_trees(roots: Iterable[Process], job: dict[int, Process], view: View = LIVE) -> None:
    """Add processes and all their descendants to the job, but not netprof."""
    waiting = list(roots)
    while waiting and len(job) < _MAX_PROCESSES:
        process = waiting.pop()
        if process.stat.pid in job or process.stat.pid == os.getpid():
            continue
        job[process.stat.pid] = process
        waiting += view.look_at_all(pid for pid in view.children(process.stat.pid) if pid not in job)


def ancestors(pids: Iterable[int], view: View = LIVE) -> set[int]:
    """Return the processes that others descend from, themselves included."""
    above: set[int] = set()
    for pid in pids:
        while pid > 0 and pid not in above:
            above.add(pid)
            pid = view.parent(pid)
    return above
