"""What an exporter may use of the machine, and what recordings need: files, memory, CPU time; shares of it by user."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from netprof.metrics.board import FILES, MEMORY, MOST_JOBS, PROCESSES, RECORDINGS
from netprof.metrics.connections import MOST_AT_ONCE
from netprof.metrics.shares import Shares
from netprof.probes.kernel.procfile import text_of

MOST_PROCESSES = 1024
"""Of one job: as many are followed, and one with more is not recorded."""
MOST_FLOWS = 8192
"""That there is room for at a time in one recording: the kernel's tables for more take 60 MiB."""
CPUS = 0.4
"""Of a core, for all that an exporter does: the unit has CPUQuota=50%."""
_MOST_BYTES = 2 << 30
"""What the unit has as MemoryMax; less where the cgroup or the machine has less."""
_USABLE = 0.75
_OWN_BYTES, _OWN_FILES = 160 << 20, 128
_LEAST_CPUS = 0.05
_LONGEST_REST_S = 2.0
_EASED = 1.2


@dataclass(frozen=True)
class Need:
    """What a recording takes, as measured, and something to spare."""

    files: int
    size_bytes: int

    @classmethod
    def of(cls, training: int, processes: int) -> Need:
        """Return what a recording of so many processes, some of them training, needs."""
        return cls(100 + 20 * training + 2 * processes, (48 << 20) + (training << 20) + (processes << 14))


class Budget:
    """What there is for recordings as this begins; raises the limit of open files for that."""

    def __init__(self) -> None:
        self.file_limit = _raised_limit()
        self.files = max(0, self.file_limit - _OWN_FILES - min(MOST_AT_ONCE, self.file_limit // 4))
        self.size_bytes = max(0, int(_memory_limit() * _USABLE) - _OWN_BYTES)

    @property
    def sentence(self) -> str:
        """What it is enough for, for a person."""
        least = Need.of(1, 1)
        jobs = min(MOST_JOBS, self.files // least.files, self.size_bytes // least.size_bytes)
        return (
            f"room for {jobs} small jobs, a third of it for one user: {self.file_limit} open files, "
            f"{self.size_bytes >> 20} MiB for recordings"
        )

    def shares(self) -> Taken:
        """Return shares of it with nothing taken yet."""
        return Taken(Shares(MOST_JOBS), Shares(self.files), Shares(self.size_bytes))

    @property
    def is_exceeded(self) -> bool:
        """Whether more memory is used than all recordings and the exporter itself may."""
        return _used_bytes() > self.size_bytes + _OWN_BYTES


@dataclass(frozen=True)
class Taken:
    """What recordings have of a budget, by user."""

    recordings: Shares
    files: Shares
    size_bytes: Shares

    def take(self, user: int, need: Need, processes: int) -> str:
        """Take what a recording needs; else return why there is none for this user, and take nothing."""
        if processes > MOST_PROCESSES:
            return PROCESSES
        for shares, amount, reason in self._needs(need):
            if not shares.has_room(user, amount):
                return reason
        for shares, amount, _ in self._needs(need):
            shares.take(user, amount)
        return ""

    def _needs(self, need: Need) -> tuple[tuple[Shares, float, str], ...]:
        return (
            (self.recordings, 1, RECORDINGS),
            (self.files, need.files, FILES),
            (self.size_bytes, need.size_bytes, MEMORY),
        )


class Pace:
    """How much CPU time a recording's thread may take: over it, the thread rests after each round."""

    def __init__(self) -> None:
        self.cpus: float | None = None
        """Of a core; None for as much as it needs."""
        self.used_s = 0.0
        self._at_s = time.monotonic()

    def ease(self) -> None:
        """Allow some more: to let go at once of what is slowed down would be too much again."""
        if self.cpus is not None:
            self.cpus = self.cpus * _EASED if self.cpus * _EASED < 1 else None

    def __call__(self) -> None:
        """Rest, where it is time for that; called by the recording's thread after every round."""
        now_s, used_s = time.monotonic(), time.thread_time()
        took_s, self.used_s = used_s - self.used_s, used_s
        if self.cpus:
            time.sleep(min(_LONGEST_REST_S, max(0.0, took_s / self.cpus - (now_s - self._at_s))))
        self._at_s = time.monotonic()


def level(used: Mapping[int, float], budget: float) -> float | None:
    """Return what each user may use at most, so that all together use the budget; None where they use less anyway."""
    if sum(used.values()) <= budget:
        return None
    left = budget
    for number, amount in enumerate(sorted(used.values())):
        even = left / (len(used) - number)
        if amount > even:
            return max(even, _LEAST_CPUS)
        left -= amount
    return None


def _raised_limit() -> int:
    """Let this process open as many files as it may; return how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # the system allows fewer by now
        return soft
    return hard


def _memory_limit() -> int:
    """Return how much memory there is for an exporter: of its cgroup, or an eighth of the machine's."""
    limits = [limit for limit, _ in _cgroup_memory()]
    return min(_MOST_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8, *limits)


def _cgroup_memory() -> list[tuple[int, int]]:
    """Return the limit and the use of each cgroup that this process is in and that has a limit, the innermost first."""
    found = []
    for line in text_of("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = Path("/sys/fs/cgroup", *(["memory"] if controllers else []))
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        place = root / path.lstrip("/")
        while root in (place, *place.parents):
            limit, used = (text_of(place / name).strip() for name in names)
            if limit.isdigit() and used.isdigit():
                found.append((int(limit), int(used)))
            place = place.parent
    return found


def _used_bytes() -> int:
    """Return how much memory this process uses, with the kernel's for it where its own cgroup tells."""
    fields = text_of("/proc/self/statm").split()
    resident = int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0
    limited = [used for limit, used in _cgroup_memory()[:1] if limit <= _MOST_BYTES]
    return max(resident, *limited) if limited else resident
