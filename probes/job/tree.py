"""Processes and those that they started: what is looked at of each, what is below it and what is above."""

from __future__ import annotations

import os
from collections.abc import Iterable

from netprof.probes.job import procfs
from netprof.probes.job.roles import VARIABLES, Process

_MAX_PROCESSES = 100_000


def look(pid: int) -> Process | None:
    """Look at a process that nobody named; None if it is gone or is no program."""
    stat = procfs.read_stat(pid)
    if stat is None or stat.ended or stat.kernel_thread:
        return None
    return Process(stat, procfs.network_namespace(pid), procfs.environment(pid, VARIABLES))


def add_trees(roots: Iterable[Process], job: dict[int, Process]) -> None:
    """Add processes and all their descendants to the job, but not netprof."""
    waiting = list(roots)
    while waiting and len(job) < _MAX_PROCESSES:
        process = waiting.pop()
        if process.stat.pid in job or process.stat.pid == os.getpid():
            continue
        job[process.stat.pid] = process
        below = (look(pid) for pid in procfs.children(process.stat.pid) if pid not in job)
        waiting += [child for child in below if child is not None]


def ancestors(pids: Iterable[int]) -> set[int]:
    """Return the processes that others descend from, themselves included."""
    found: set[int] = set()
    for pid in pids:
        while pid > 0 and pid not in found:
            found.add(pid)
            stat = procfs.read_stat(pid)
            pid = stat.parent if stat else 0
    return found
