"""The host probe: what a host that cannot keep up shows, per CPU and as a whole.

Packets that a CPU dropped or put off, the time in which tasks waited for a CPU, and the time that the hypervisor or the
disk took: causes of a slow job that no link shows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from netprof.closing import all_or_nothing
from netprof.model import SkippedProbe, StartedProbe
from netprof.probes.kernel.procfile import ProcFile
from netprof.probes.probe import Description, Probe, Shared, Tables
from netprof.probes.series import Measure, SeriesRows
from netprof.schema import COUNT

_DROPPED = Measure("softnet_dropped", "packets", COUNT, "received packets that the CPU had no room for in its backlog")
_SQUEEZED = Measure(
    "softnet_time_squeeze",
    "times",
    COUNT,
    "times that the CPU's network softirq used up its time with packets left to receive",
)
_SOME = Measure("cpu_pressure_some", "us", COUNT, "time in which at least one task that could run waited for a CPU")
_FULL = Measure(
    "cpu_pressure_full", "us", COUNT, "time in which no task ran although some could; 0 for a whole machine"
)
_STEAL = Measure("steal", "us", COUNT, "time that the hypervisor gave to others while this host had work to do")
_IOWAIT = Measure("iowait", "us", COUNT, "time that CPUs idled while a task of theirs waited for the disk")

_NET_RX = Measure("net_rx", "times", COUNT, "times that the CPU processed received packets")

_WRAP = 1 << 32
_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_CPU_SHARE = 1e-3  # of a core, that reading a file may take: one that costs more is read less often

Sample = tuple[str, Measure, int]
"""A subject, what is counted of it, and the count as the kernel has it."""


def softnet(text: bytes) -> Iterator[Sample]:
    """Read /proc/net/softnet_stat: a line for every CPU that is online, of 32-bit numbers.

    Older kernels do not say which CPU a line is of; there it is the line's own number.
    """
    for place, line in enumerate(text.splitlines()):
        fields = [int(field, 16) for field in line.split()]
        if len(fields) >= 3:
            cpu = f"cpu{fields[12] if len(fields) > 12 else place}"
            yield cpu, _DROPPED, fields[1]
            yield cpu, _SQUEEZED, fields[2]


def pressure(text: bytes) -> Iterator[Sample]:
    """Read /proc/pressure/cpu: `some` and, on newer kernels, `full`, each with its total in microseconds."""
    for line in text.splitlines():
        kind, _, rest = line.partition(b" ")
        quantity = {b"some": _SOME, b"full": _FULL}.get(kind)
        _, has_total, total = rest.partition(b"total=")
        if quantity is not None and has_total:
            yield "all CPUs", quantity, int(total)


def softirqs(text: bytes) -> Iterator[Sample]:
    """Read /proc/softirqs: a column for every CPU, of 32-bit numbers; only what is received is of interest."""
    heads, *lines = text.splitlines() or [b""]
    for line in lines:
        name, _, rest = line.strip().partition(b":")
        if name == b"NET_RX":
            for cpu, count in zip(heads.split(), rest.split(), strict=False):
                yield cpu.decode().lower(), _NET_RX, int(count)


def cpu_time(text: bytes) -> Iterator[Sample]:
    """Read the first line of /proc/stat, of all CPUs together; it counts in ticks, usually of 10 ms."""
    fields = text.partition(b"\n")[0].split()
    if len(fields) > 8 and fields[0] == b"cpu":
        yield "all CPUs", _IOWAIT, int(fields[5]) * _TICK_US
        yield "all CPUs", _STEAL, int(fields[8]) * _TICK_US


def unwrapped(before: int, now: int) -> int:
    """Return a count that goes on from `before`, of which the kernel keeps the lower 32 bits: `now`."""
    return before + (now - before) % _WRAP


def not_less(before: int, now: int) -> int:
    """Return a count that never goes back, as the kernel's own time of waiting for the disk may."""
    return max(before, now)


@dataclass(frozen=True)
class CountFile:
    """A file of counts: how its text is read, how a count goes on, and what would make the kernel have the file.

    It is read no more often than `every_s`.
    """

    path: str
    parse: Callable[[bytes], Iterator[Sample]]
    go_on: Callable[[int, int], int]
    remedy: str = ""
    every_s: float = 0.0


COUNT_FILES = (
    CountFile("/proc/net/softnet_stat", softnet, unwrapped),
    CountFile("/proc/pressure/cpu", pressure, not_less, "boot with psi=1"),
    CountFile("/proc/stat", cpu_time, not_less, every_s=0.5),  # counts in ticks
    CountFile("/proc/softirqs", softirqs, unwrapped, every_s=1.0),
)


class HostProbe(Probe):
    """Samples counts of the host ten times a second."""

    name = "host"
    period_s = 0.4
    sample_s = 0.1

    def __init__(self, rows: SeriesRows, files: Iterable[CountFile] = COUNT_FILES) -> None:
        self._rows = rows
        self._readers: list[_PacedFile] = []
        self._skipped: list[SkippedProbe] = []
        for file in files:
            try:
                self._readers.append(_PacedFile(file))
            except OSError as error:
                reason = f"{file.path} cannot be read: {error.strerror}"
                self._skipped.append(SkippedProbe(self.name, reason, file.remedy))

    @classmethod
    def open(cls, shared: Shared) -> HostProbe:
        """Open the files; one that is not there is left out."""
        return cls(SeriesRows(cls.name, shared.series_ids))

    def drain(self, *, final: bool = False) -> Tables:
        """Read the files that are due, and return what changed: rows of table `counters`."""
        self.sample(final=final)
        return {"counters": self._rows.drain(final=final)}

    def sample(self, *, final: bool = False) -> None:
        """Read the files that are due; with `final` all."""
        for reader in self._readers:
            if final or reader.is_due():
                reader.read(self._rows)

    def describe(self) -> Description:
        """Return what is read and how often, what is not there, and the series."""
        detail = ", ".join(f"{reader.path} every {reader.period_s * 1e3:.0f} ms" for reader in self._readers)
        started = (StartedProbe(self.name, detail),) if detail else ()
        return Description(started, tuple(self._skipped), series=self._rows.series)

    def close(self) -> None:
        """Close the files."""
        for reader in self._readers:
            reader.close()


class _PacedFile:
    """Reads a file of counts as often as it is cheap. Raises OSError where it cannot be read."""

    def __init__(self, file: CountFile) -> None:
        self.path = file.path
        self._least_s = max(HostProbe.sample_s, file.every_s)
        self.period_s = self._least_s
        self._file = file
        self._counts: dict[tuple[str, str], int] = {}
        self._next_s = 0.0
        with all_or_nothing() as opened:
            self._text = opened.enter_context(ProcFile(file.path))
            self._text.read()  # where the kernel has the file but not what is in it, that fails

    def is_due(self) -> bool:
        """Say whether it is time to read the file."""
        return time.monotonic() >= self._next_s

    def read(self, rows: SeriesRows) -> None:
        """Hand the counts of this moment to `rows`."""
        begin_s, begin_ns = time.thread_time(), time.monotonic_ns()
        text = self._text.read()
        time_ns = (begin_ns + time.monotonic_ns()) // 2
        for subject, quantity, count in self._file.parse(text):
            before = self._counts.get((subject, quantity.name), count)
            self._counts[subject, quantity.name] = value = self._file.go_on(before, count)
            rows.see(time_ns, subject, quantity, value)
        self.period_s = max(self._least_s, (time.thread_time() - begin_s) / _CPU_SHARE)
        self._next_s = begin_ns / 1e9 + self.period_s - HostProbe.sample_s / 2

    def close(self) -> None:
        """Close the file."""
        self._text.close()
