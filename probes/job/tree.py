"""Processes and those that they started: what is looked at of each, what is below it and what is above."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
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


def look(pid: int) -> Process | None:
    """Look at a process that nobody named; None if it is gone or is no program."""
    stat = procfs.read_stat(pid)
    if stat is None or stat.ended or stat.kernel_thread:
        return None
    return Process(stat, procfs.namespace(pid, "net"), procfs.environment(pid, VARIABLES))


def look_at_all(pids: Iterable[int]) -> list[Process]:
    """Look at several, and leave out those of which nothing is to be seen."""
    return [process for process in map(look, pids) if process is not None]


def add_trees(roots: Iterable[Process], job: dict[int, Process]) -> None:
    """Add processes and all their descendants to the job, but not netprof."""
    waiting = list(roots)
    while waiting and len(job) < _MAX_PROCESSES:
        process = waiting.pop()
        if process.stat.pid in job or process.stat.pid == os.getpid():
            continue
        job[process.stat.pid] = process
        waiting += look_at_all(pid for pid in procfs.children(process.stat.pid) if pid not in job)


def ancestors(pids: Iterable[int]) -> set[int]:
    """Return the processes that others descend from, themselves included."""
    above: set[int] = set()
    for pid in pids:
        while pid > 0 and pid not in above:
            above.add(pid)
            stat = procfs.read_stat(pid)
            pid = stat.parent if stat else 0
    return above
