"""The process probe: what the kernel says that each training process did with its time.

Whether a rank that others wait for computed, waited for a CPU that something else had, was stopped, or wrote to a disk:
no mark of a framework tells.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from netprof.model import SkippedProbe, StartedProbe, Target
from netprof.probes.job.procfs import parse_stat
from netprof.probes.kernel.procfile import ProcFile
from netprof.probes.probe import Columns, Description, Probe, Shared, Tables
from netprof.probes.process.last_moved import LastMoved, last_moved
from netprof.probes.process.quota import quota_of
from netprof.probes.series import Quantity, SeriesRows
from netprof.schema import COUNT, LEVEL, PROCESS_SERIES

_ON_CPU = Quantity("on_cpu", "us", COUNT, "time on a CPU, of the process's threads that have marks")
_CPU_WAIT = Quantity("cpu_wait", "us", COUNT, "time in which those threads could run and waited for a CPU")
_STOPPED = Quantity("stopped", "", LEVEL, "1 while the process is stopped, by a signal or a debugger")
_READ = Quantity("read", "bytes", COUNT, "what the process had fetched from disks")
_WRITTEN = Quantity("written", "bytes", COUNT, "what the process wrote to files on disks")

_THROTTLED = Quantity("throttled", "us", COUNT, "time for which the CPU quota of its cgroup kept it from running")
_PERIODS = Quantity("quota_periods", "", COUNT, "periods of that quota in which its cgroup ran")
_THROTTLED_PERIODS = Quantity("throttled_periods", "", COUNT, "those in which it was throttled")
_ALL_ON_CPU = Quantity("threads_on_cpu", "us", COUNT, "time on a CPU, of all of the process's threads")
_ALL_CPU_WAIT = Quantity("threads_cpu_wait", "us", COUNT, "time in which all those could run and waited for a CPU")

_MOST_THREADS = 16  # of a process: those that train and those that communicate are few
_MOST_OF_ALL = 256  # threads whose time is added up
_ALL_EVERY_S = 1.0
_CPU_SHARE = 1e-3  # of a core, that reading about all processes may take: many are read less often
_IO = re.compile(rb"^(read_bytes|write_bytes): (\d+)$", re.MULTILINE)
_SENT = Quantity("sent_before", "ns", LEVEL, "for how long it had sent no data when it was first looked at")
_RECEIVED = Quantity("received_before", "ns", LEVEL, "for how long it had received none then")
_UNACKED = Quantity("unacked", "bytes", LEVEL, "what it had sent by then, or was to send, and nobody had acknowledged")
_UNREAD = Quantity("unread", "bytes", LEVEL, "what had arrived for it by then, and it had not read")

Sample = tuple[Quantity, int]


class ProcessProbe(Probe):
    """Samples what the processes that train have done, twenty times a second."""

    name = PROCESS_SERIES
    period_s = 0.4
    sample_s = 0.05
    notices = frozenset({"marks"})

    def __init__(self, rows: SeriesRows) -> None:
        self._rows = rows
        self._watched: dict[int, _Process] = {}
        self._fresh: dict[int, LastMoved] = {}
        self._skipped: dict[str, SkippedProbe] = {}
        self._next_s = self._all_s = 0.0
        self._spacing_s = self.sample_s

    @classmethod
    def open(cls, shared: Shared) -> ProcessProbe:
        """Make one; it opens files as it learns of processes."""
        return cls(SeriesRows(cls.name, shared.series_ids))

    def follow(self, targets: Sequence[Target]) -> None:
        """Watch the processes that have a framework."""
        fresh = [target for target in targets if target.frameworks and target.pid not in self._watched]
        for target in fresh:
            self._watch(target)
        self._fresh.update(last_moved([target for target in fresh if target.pid in self._watched]))

    def notice(self, table: str, columns: Columns) -> None:
        """Learn which threads of a process train or communicate: those that have marks."""
        pids, tids = (np.asarray(columns[name], np.int64) for name in ("pid", "tid"))
        for both in np.unique(pids << 32 | tids).tolist():
            if (pid := both >> 32) in self._watched:
                self._watched[pid].add_thread(both & 0xFFFFFFFF)

    def drain(self, *, final: bool = False) -> Tables:
        """Read what is due, and return what changed: rows of table `counters`."""
        self.sample(final=final)
        return {"counters": self._rows.drain(final=final)}

    def sample(self, *, final: bool = False) -> None:
        """Read what is due; with `final` all."""
        self._tell_last_moves()
        if final or time.monotonic() >= self._next_s:
            begin_s, begin_cpu_s = time.monotonic(), time.thread_time()
            for pid, process in self._watched.items():
                for quantity, value in process.read(all_threads=final or begin_s >= self._all_s):
                    self._rows.see(time.monotonic_ns(), f"pid {pid}", quantity, value)
            self._spacing_s = max(self.sample_s, (time.thread_time() - begin_cpu_s) / _CPU_SHARE)
            self._next_s = begin_s + self._spacing_s - self.sample_s / 2
            if begin_s >= self._all_s:
                self._all_s = begin_s + max(_ALL_EVERY_S, self._spacing_s)

    def describe(self) -> Description:
        """Return what is read and how often, what is not there, and the series."""
        detail = f"{len(self._watched)} processes every {self._spacing_s * 1e3:.0f} ms"
        started = (StartedProbe(self.name, detail),) if self._watched else ()
        return Description(started, tuple(self._skipped.values()), series=self._rows.series)

    def close(self) -> None:
        """Close all files."""
        for process in self._watched.values():
            process.close()

    def _tell_last_moves(self) -> None:
        """Take samples of when processes last moved data before they were looked at first: within the recording."""
        while self._fresh:
            pid, moved = self._fresh.popitem()
            now_ns = time.monotonic_ns()
            for quantity, before_ns in ((_SENT, moved.sent_before_ns), (_RECEIVED, moved.received_before_ns)):
                if before_ns is not None:
                    self._rows.see(now_ns, f"pid {pid}", quantity, before_ns + now_ns - moved.time_ns)
            for quantity, amount in ((_UNACKED, moved.unacked_bytes), (_UNREAD, moved.unread_bytes)):
                self._rows.see(now_ns, f"pid {pid}", quantity, amount)

    def _watch(self, target: Target) -> None:
        try:
            self._watched[target.pid] = _Process(target)
        except (OSError, ValueError, IndexError):
            return  # it has ended
        for path in self._watched[target.pid].missing:
            reason = f"/proc/PID/{path} cannot be read: what kept a late rank is known in part"
            self._skipped.setdefault(path, SkippedProbe(self.name, reason))


class _Process:
    """The files of one process, and what its threads have done.

    Raises OSError, ValueError or IndexError where it has ended.
    """

    def __init__(self, target: Target) -> None:
        self._folder = Path(f"/proc/{target.pid}")
        self._stat = ProcFile(str(self._folder / "stat"))
        if parse_stat(self._stat.read()).start_ticks != target.start_ticks:
            self._stat.close()
            raise ProcessLookupError(target.pid)
        self._threads: dict[int, ProcFile | None] = {}
        self._run_ns = [0, 0]  # on a CPU, waiting for one
        self._seen_ns: dict[int, tuple[int, int]] = {}
        self.missing: list[str] = []
        self._io = self._optional("io")
        self._quota = quota_of(target.pid)
        self._all_ns: dict[str, tuple[int, int]] = {}
        self._ran_all = [0, 0]
        self.add_thread(target.pid)
        if self._threads[target.pid] is None:
            self.missing.append("schedstat")

    def add_thread(self, tid: int) -> None:
        """Count a thread's time too."""
        if tid not in self._threads and len(self._threads) < _MOST_THREADS:
            try:
                self._threads[tid] = ProcFile(str(self._folder / "task" / str(tid) / "schedstat"))
            except OSError:
                self._threads[tid] = None

    def read(self, all_threads: bool = False) -> Iterator[Sample]:
        """Yield what is known as of now, of `all_threads` too; nothing of a process that has ended."""
        yield from self._parsed(self._stat, _state)
        ran = [found for tid, file in self._threads.items() if file and (found := self._ran_since(tid, file))]
        if ran:
            for place, quantity in enumerate((_ON_CPU, _CPU_WAIT)):
                self._run_ns[place] += sum(each[place] for each in ran)
                yield quantity, self._run_ns[place] // 1000
        if self._io is not None:
            yield from self._parsed(self._io, _amounts)
        if self._quota is not None:
            yield from self._parsed(self._quota, _throttled)
        if all_threads and (every := self._ran_in_all()):
            yield from ((_ALL_ON_CPU, every[0] // 1000), (_ALL_CPU_WAIT, every[1] // 1000))

    def _ran_in_all(self) -> tuple[int, int] | None:
        """Return for how long all threads, those too that have ended, ran and waited since the first look, ns."""
        try:
            tids = sorted(each.name for each in (self._folder / "task").iterdir())[:_MOST_OF_ALL]
        except OSError:
            return None
        for tid in tids:
            with contextlib.suppress(OSError, ValueError):
                ran, waited = map(int, (self._folder / "task" / tid / "schedstat").read_bytes().split()[:2])
                before = self._all_ns.get(tid, (ran, waited))
                self._ran_all[0] += max(0, ran - before[0])
                self._ran_all[1] += max(0, waited - before[1])
                self._all_ns[tid] = ran, waited
        return self._ran_all[0], self._ran_all[1]

    def close(self) -> None:
        """Close the files."""
        for file in (self._stat, self._io, self._quota, *self._threads.values()):
            if file is not None:
                file.close()

    def _optional(self, name: str) -> ProcFile | None:
        try:
            file = ProcFile(str(self._folder / name))
            file.read()
        except OSError:
            self.missing.append(name)
            return None
        return file

    def _parsed(self, file: ProcFile, parse: Callable[[bytes], list[Sample]]) -> list[Sample]:
        try:
            return parse(file.read())
        except (OSError, ValueError, IndexError):  # it has ended
            return []

    def _ran_since(self, tid: int, file: ProcFile) -> tuple[int, int] | None:
        """Return for how long a thread ran and waited since the last look, ns; None where it has ended."""
        try:
            ran, waited = (int(number) for number in file.read().split()[:2])
        except (OSError, ValueError):
            return None
        before = self._seen_ns.get(tid, (ran, waited))
        self._seen_ns[tid] = ran, waited
        return max(0, ran - before[0]), max(0, waited - before[1])


def _state(text: bytes) -> list[Sample]:
    return [(_STOPPED, int(parse_stat(text).state in "Tt"))]


def _throttled(text: bytes) -> list[Sample]:
    """Return what cpu.stat says, of version 2 (microseconds) or 1 (nanoseconds)."""
    found = {name: int(number) for name, number in (line.split() for line in text.splitlines())}
    us = found.get(b"throttled_usec", found.get(b"throttled_time", 0) // 1000)
    return [
        (_THROTTLED, us),
        (_PERIODS, found.get(b"nr_periods", 0)),
        (_THROTTLED_PERIODS, found.get(b"nr_throttled", 0)),
    ]


def _amounts(text: bytes) -> list[Sample]:
    names = {b"read_bytes": _READ, b"write_bytes": _WRITTEN}
    return [(names[name], int(number)) for name, number in _IO.findall(text)]
