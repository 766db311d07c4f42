"""The process probe: what the kernel says that each training process did with its time.

Whether a rank that others wait for computed, waited for a CPU that something else had, was stopped, or wrote to a disk:
no mark of a framework tells.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from netprof.closing import all_or_nothing
from netprof.model import SkippedProbe, StartedProbe, Target
from netprof.probes.job.procfs import parse_stat
from netprof.probes.job.roles import may_train
from netprof.probes.kernel.procfile import ProcFile
from netprof.probes.probe import Columns, Description, Probe, Shared, Tables
from netprof.probes.process.last_moved import LastMoved, last_moved
from netprof.probes.process.quota import quota_of
from netprof.probes.process.start_up import StartUp
from netprof.probes.series import Measure, SeriesRows
from netprof.schema import COUNT, LEVEL, PROCESS_SERIES, TRAINING

_ON_CPU = Measure("on_cpu", "us", COUNT, "time on a CPU, of the process's threads that have marks")
_CPU_WAIT = Measure("cpu_wait", "us", COUNT, "time in which those threads could run and waited for a CPU")
_STOPPED = Measure("stopped", "", LEVEL, "1 while the process is stopped, by a signal or a debugger")
_READ = Measure("read", "bytes", COUNT, "what the process had fetched from disks")
_WRITTEN = Measure("written", "bytes", COUNT, "what the process wrote to files on disks")

_THROTTLED = Measure("throttled", "us", COUNT, "time for which the CPU quota of its cgroup kept it from running")
_PERIODS = Measure("quota_periods", "", COUNT, "periods of that quota in which its cgroup ran")
_THROTTLED_PERIODS = Measure("throttled_periods", "", COUNT, "those in which it was throttled")
_ALL_ON_CPU = Measure("threads_on_cpu", "us", COUNT, "time on a CPU, of all of the process's threads")
_ALL_CPU_WAIT = Measure("threads_cpu_wait", "us", COUNT, "time in which all those could run and waited for a CPU")

_MOST_THREADS = 16  # of a process: those that train and those that communicate are few
_MOST_OF_ALL = 256  # threads whose waiting is added up
_ALL_EVERY_S = 1.0
_START_EVERY_S, _START_SHARE = 0.5, 1e-2  # of a core, while nothing trains
_MOST_IDLE = 64  # processes whose sockets are looked at
_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_CPU_SHARE = 1e-3  # of a core, that reading about all processes may take: many are read less often
_IO = re.compile(rb"^(read_bytes|write_bytes): (\d+)$", re.MULTILINE)
_SENT = Measure("sent_before", "ns", LEVEL, "for how long it had sent no data when it was first looked at")
_RECEIVED = Measure("received_before", "ns", LEVEL, "for how long it had received none then")
_UNACKED = Measure("unacked", "bytes", LEVEL, "what it had sent by then, or was to send, and nobody had acknowledged")
_UNREAD = Measure("unread", "bytes", LEVEL, "what had arrived for it by then, and it had not read")

Sample = tuple[Measure, int]


class ProcessProbe(Probe):
    """Samples what the processes that train have done, twenty times a second."""

    name = PROCESS_SERIES
    period_s = 0.4
    sample_s = 0.05
    notices = frozenset({"marks", "flows"})

    def __init__(self, rows: SeriesRows) -> None:
        self._rows = rows
        self._watched: dict[int, _Process] = {}
        self._known: set[tuple[int, int]] = set()  # by identity, of those too that have ended
        self._count = 0  # processes that were watched
        self._fresh: dict[int, LastMoved] = {}
        self._skipped: dict[str, SkippedProbe] = {}
        self._next_s = self._all_s = self._start_s = 0.0
        self._start_up, self._idle = StartUp(), dict[int, Target]()  # those that do not train yet
        self._spacing_s = self.sample_s

    @classmethod
    def open(cls, shared: Shared) -> ProcessProbe:
        """Make one; it opens files as it learns of processes."""
        return cls(SeriesRows(cls.name, shared.series_ids))

    def follow(self, targets: Sequence[Target]) -> None:
        """Watch the processes that may train."""
        wanted = {target.identity: target for target in may_train(targets)}
        fresh = [target for identity, target in wanted.items() if identity not in self._known]
        self._known.update(wanted)
        watched = [target for target in fresh if self._watch(target)]
        self._idle.update({target.pid: target for target in watched[: _MOST_IDLE - len(self._idle)]})
        self._fresh.update(last_moved(watched))

    def notice(self, table: str, columns: Columns) -> None:
        """Learn which threads of a process train or communicate: those that have marks; and whom it connects to."""
        if table == "flows":
            names = ("pid", "netns", "remote_addr", "remote_port")
            for pid, netns, address, port in zip(*(columns[name] for name in names), strict=True):
                if pid in self._idle:
                    self._start_up.connects(int(netns), str(address), int(port))
            return
        pids, tids = (np.asarray(columns[name], np.int64) for name in ("pid", "tid"))
        for pid in np.unique(pids[np.isin(columns["kind"], TRAINING)]).tolist():
            self._idle.pop(pid, None)
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
                for measure, value in process.read(all_threads=final or begin_s >= self._all_s):
                    self._rows.see(time.monotonic_ns(), f"pid {pid}", measure, value)
            for pid in [pid for pid, process in self._watched.items() if process.has_ended]:
                self._watched.pop(pid).close()
                self._idle.pop(pid, None)
            self._spacing_s = max(self.sample_s, (time.thread_time() - begin_cpu_s) / _CPU_SHARE)
            self._next_s = begin_s + self._spacing_s - self.sample_s / 2
            if begin_s >= self._all_s:
                self._all_s = begin_s + max(_ALL_EVERY_S, self._spacing_s)

        if self._idle and (final or time.monotonic() >= self._start_s):
            for pid, measure, value in self._start_up.look(list(self._idle.values())):
                self._rows.see(time.monotonic_ns(), f"pid {pid}", measure, value)
            self._start_s = time.monotonic() + max(_START_EVERY_S, self._start_up.took_s / _START_SHARE)

    def describe(self) -> Description:
        """Return what is read and how often, what is not there, and the series."""
        detail = f"{self._count} processes every {self._spacing_s * 1e3:.0f} ms"
        started = (StartedProbe(self.name, detail),) if self._count else ()
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
            for measure, before_ns in ((_SENT, moved.sent_before_ns), (_RECEIVED, moved.received_before_ns)):
                if before_ns is not None:
                    self._rows.see(now_ns, f"pid {pid}", measure, before_ns + now_ns - moved.time_ns)
            self._rows.see(now_ns, f"pid {pid}", _UNACKED, moved.unacked_bytes)
            self._rows.see(now_ns, f"pid {pid}", _UNREAD, moved.unread_bytes)

    def _watch(self, target: Target) -> bool:
        """Watch a process; say whether it is there."""
        try:
            process = _Process(target)
        except (OSError, ValueError, IndexError):
            return False  # it has ended
        if target.pid in self._watched:
            self._watched[target.pid].close()
        self._watched[target.pid] = process
        self._count += 1
        for path in process.missing:
            reason = f"/proc/PID/{path} cannot be read: what kept a late rank is known in part"
            self._skipped.setdefault(path, SkippedProbe(self.name, reason))
        return True


class _Process:
    """The files of one process, and what its threads have done.

    Raises OSError, ValueError or IndexError where it has ended.
    """

    def __init__(self, target: Target) -> None:
        self._folder = Path(f"/proc/{target.pid}")
        with all_or_nothing() as opened:
            self._stat = opened.enter_context(ProcFile(str(self._folder / "stat")))
            if parse_stat(self._stat.read()).start_ticks != target.start_ticks:
                raise ProcessLookupError(target.pid)
        self._threads: dict[int, ProcFile | None] = {}
        self._run_ns = [0, 0]  # on a CPU, waiting for one
        self._seen_ns: dict[int, tuple[int, int]] = {}
        self.has_ended = False
        self.missing: list[str] = []
        self._io = self._open_io()
        self._quota = quota_of(target.pid)
        self._all_ns: dict[str, int] = {}  # for how long each thread had waited for a CPU
        self._waited_all_ns = 0
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
        state = self._parsed(self._stat, _state)
        self.has_ended = not state
        yield from state
        ran = [times for tid, file in self._threads.items() if file and (times := self._ran_since(tid, file))]
        if ran:
            for place, measure in enumerate((_ON_CPU, _CPU_WAIT)):
                self._run_ns[place] += sum(times[place] for times in ran)
                yield measure, self._run_ns[place] // 1000
        if self._io is not None:
            yield from self._parsed(self._io, _amounts)
        if self._quota is not None:
            yield from self._parsed(self._quota, _throttled)
        if all_threads:
            yield from self._parsed(self._stat, _ran_in_all)
            if (waited_ns := self._waited_in_all()) is not None:
                yield _ALL_CPU_WAIT, waited_ns // 1000

    def _waited_in_all(self) -> int | None:
        """Return for how long all threads, those too that have ended, waited for a CPU since the first look, ns.

        None where there are too many to ask: which of them wait is not known.
        """
        try:
            tids = [folder.name for folder in (self._folder / "task").iterdir()]
        except OSError:
            return None
        if len(tids) > _MOST_OF_ALL:
            return None
        for tid in tids:
            with contextlib.suppress(OSError, ValueError):
                waited = int((self._folder / "task" / tid / "schedstat").read_bytes().split()[1])
                self._waited_all_ns += max(0, waited - self._all_ns.get(tid, waited))
                self._all_ns[tid] = waited
        return self._waited_all_ns

    def close(self) -> None:
        """Close the files."""
        for file in (self._stat, self._io, self._quota, *self._threads.values()):
            if file is not None:
                file.close()

    def _open_io(self) -> ProcFile | None:
        try:
            with all_or_nothing() as opened:
                file = opened.enter_context(ProcFile(str(self._folder / "io")))
                file.read()
        except OSError:
            self.missing.append("io")
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


def _ran_in_all(text: bytes) -> list[Sample]:
    """Return what the process says of all of its threads: to a tick, and however many there are."""
    return [(_ALL_ON_CPU, sum(map(int, text.rpartition(b")")[2].split()[11:13])) * _TICK_US)]


def _throttled(text: bytes) -> list[Sample]:
    """Return what cpu.stat says, of version 2 (microseconds) or 1 (nanoseconds)."""
    stat = {name: int(number) for name, number in (line.split() for line in text.splitlines())}
    us = stat.get(b"throttled_usec", stat.get(b"throttled_time", 0) // 1000)
    periods, throttled = (stat.get(name, 0) for name in (b"nr_periods", b"nr_throttled"))
    return [(_THROTTLED, us), (_PERIODS, periods), (_THROTTLED_PERIODS, throttled)]


def _amounts(text: bytes) -> list[Sample]:
    names = {b"read_bytes": _READ, b"write_bytes": _WRITTEN}
    return [(names[name], int(number)) for name, number in _IO.findall(text)]
