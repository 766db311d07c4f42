"""The counters of one RDMA port: kept open, read together, and going on whatever becomes of the files."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netprof.probes.nic import ethtool
from netprof.probes.rdma.drivers import (
    BYTES_RECEIVED,
    BYTES_SENT,
    PACKETS_RECEIVED,
    PACKETS_SENT,
    PAUSE_RECEIVED,
    PAUSE_SENT,
    Driver,
)
from netprof.probes.rdma.ports import Port, number_in
from netprof.probes.series import Measure

_LONGEST = 32  # bytes of a number and its line's end
_NARROW, _WIDE = 32, 64


class Count:
    """A count that goes on from 0, however often its source wraps or begins anew. `bits` is how wide that is."""

    def __init__(self, bits: int = _WIDE) -> None:
        self.total = 0
        self._bits = bits
        self._before: int | None = None

    def see(self, value: int) -> None:
        """Take the source's value. One that is lower has wrapped if that is less than half a turn, else begun anew."""
        before, self._before = self._before, value
        if before is None:
            return
        turned = (value - before) % (1 << self._bits)
        if value >= before or turned < 1 << (self._bits - 1):
            self.total += turned
        else:
            self.total += value

    def begin_anew(self) -> None:
        """The next value is where the count goes on from: what was counted before it is not known."""
        self._before = None


class _CounterFiles:
    """Files of numbers that are added up. One that cannot be opened or read is tried again with the next reading.

    A file is read by one call: of a file of sysfs a second one, to see its end, would ask the driver again.
    """

    def __init__(self, port: Port, names: Sequence[str], unit: int = 1, bits: int = _WIDE) -> None:
        self.was_read = False
        self.problem = ""  # why the last reading gave nothing
        self._port, self._names, self._unit = port, names, unit
        self._count = Count(bits)
        self._descriptors: list[int] = []

    def read(self) -> int | None:
        """Return what they have counted since they were first read; None where that is not known."""
        if not self._descriptors:
            self._count.begin_anew()
        sums = 0
        for place, name in enumerate(self._names):
            try:
                if place == len(self._descriptors):
                    self._descriptors.append(self._opened(name))
                sums += number_in(os.pread(self._descriptors[place], _LONGEST, 0))
            except (OSError, ValueError) as error:
                self.close()
                self.problem = f"{name}: {getattr(error, 'strerror', None) or error}"
                return None
        if not self._names:
            return None
        self.was_read = True
        self._count.see(sums * self._unit)
        return self._count.total

    def close(self) -> None:
        """Close the files; the next reading opens them anew. May be called twice."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _opened(self, name: str) -> int:
        path = self._port.file(name)
        if path is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such counter")
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


class PortTotals(NamedTuple):
    """What a port had moved at a moment since it was first looked at: bytes sent and received, and packets.

    None: that is not known.
    """

    time_ns: int
    amounts: tuple[int | None, ...]


class PortCounters:
    """Reads the counters of a port. They go on after the driver was loaded again; `reloads` says how often it was.

    A port is there while its folder and the byte counters are that it had. Of one that is, any other counter may be
    missing, or fail at times: it is left out, and told by `unknown`. Raises OSError where none at all can be read.
    """

    def __init__(self, port: Port, driver: Driver) -> None:
        self.port, self.driver = port, driver
        self.reloads = 0
        unit = driver.unit_bytes
        self._moved = {
            BYTES_SENT: _CounterFiles(port, driver.tx_bytes, unit),
            BYTES_RECEIVED: _CounterFiles(port, driver.rx_bytes, unit),
            PACKETS_SENT: _CounterFiles(port, driver.tx_packets),
            PACKETS_RECEIVED: _CounterFiles(port, driver.rx_packets),
        }
        self._events: dict[Measure, _CounterFiles] = {}
        for name, quantity in driver.events.items():
            if port.file(name) is not None:
                files = _CounterFiles(port, (name,), bits=_NARROW if name in driver.narrow else _WIDE)
                self._events.setdefault(quantity, files)
        self._problems: dict[Measure, str] = {}
        self._is_gone = False
        self.moved()
        self.events()
        if not any(files.was_read for files in self._all()):
            self.close()
            raise OSError(errno.EIO, next(iter(self._problems.values()), "it has no counters"))

    @property
    def is_cached(self) -> bool:
        """Whether the bytes are of those files whose values the kernel hands out for a while."""
        return any(name.startswith("hw_counters") for name in (*self.driver.tx_bytes, *self.driver.tx_packets))

    @property
    def counts_bytes(self) -> bool:
        """Whether its bytes are known both ways."""
        return self._moved[BYTES_SENT].was_read and self._moved[BYTES_RECEIVED].was_read

    @property
    def unknown(self) -> list[str]:
        """What of the port is not known, all the time or at times, and why."""
        files = {**self._moved, **self._events}
        return [
            f"{quantity.name.replace('_', ' ')}{' at times' if files[quantity].was_read else ''} ({problem})"
            for quantity, problem in self._problems.copy().items()  # the thread that reads may add some
        ]

    def moved(self) -> PortTotals:
        """Return what the port has moved. Raises OSError while it is not there."""
        before_ns = time.monotonic_ns()
        totals = self._read(self._moved)
        time_ns = (before_ns + time.monotonic_ns()) // 2
        if self._has_gone(totals):
            self._is_gone = True
            self._problems.clear()  # they were of its going
            self.close()
            raise OSError(errno.ENODEV, "the port is gone")
        self.reloads += self._is_gone
        self._is_gone = False
        return PortTotals(time_ns, tuple(totals.values()))

    def events(self) -> list[tuple[Measure, int]]:
        """Return what it reports of congestion and loss, as far as that can be read; nothing while it is not there."""
        totals = {} if self._is_gone else self._read(self._events)
        return [(quantity, total) for quantity, total in totals.items() if total is not None]

    def close(self) -> None:
        """Close the files. May be called twice."""
        for files in self._all():
            files.close()

    def _read(self, wanted: Mapping[Measure, _CounterFiles]) -> dict[Measure, int | None]:
        totals = {quantity: files.read() for quantity, files in wanted.items()}
        for quantity, total in totals.items():
            if total is None and (problem := wanted[quantity].problem):
                self._problems.setdefault(quantity, problem)
        return totals

    def _has_gone(self, totals: Mapping[Measure, int | None]) -> bool:
        unread = [quantity for quantity, total in totals.items() if total is None]
        had_bytes = any(
            quantity in (BYTES_SENT, BYTES_RECEIVED) and self._moved[quantity].was_read for quantity in unread
        )
        return had_bytes or (bool(unread) and not self.port.folder.exists())

    def _all(self) -> list[_CounterFiles]:
        return [*self._moved.values(), *self._events.values()]


_NAMES = (r"prio\d+_pause", r"pfc_ena_frames_pri\d+", r"pause_ctrl_phy", r"pause_frames")
"""What drivers call them after rx_ or tx_; the first kind that there is counts, for one frame may be in several."""


def statistics_of(device: str) -> dict[str, int]:
    """Return the counters of a network device."""
    return ethtool.statistics(os.fsencode(device))


def pauses(statistics: Mapping[str, int]) -> list[tuple[Measure, int]]:
    """Return how many pauses were received and sent, of a network device's counters; nothing without any."""
    for names in _NAMES:
        totals = []
        for way, quantity in (("rx", PAUSE_RECEIVED), ("tx", PAUSE_SENT)):
            counts = [value for name, value in statistics.items() if re.fullmatch(f"{way}_{names}", name)]
            totals += [(quantity, sum(counts))] if counts else []
        if totals:
            return totals
    return []
