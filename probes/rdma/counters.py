"""The counters of one RDMA port: kept open, read together, and going on whatever becomes of the files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from netprof.probes.rdma.drivers import Driver
from netprof.probes.rdma.ports import Port
from netprof.probes.series import Quantity

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


class _Files:
    """Files of numbers that are added up. Raises OSError where one cannot be opened or read, ValueError for no number.

    A file is read by one call: of a file of sysfs a second one, to see its end, would ask the driver again.
    """

    def __init__(self, port: Port, names: Iterable[str], unit: int = 1, bits: int = _WIDE) -> None:
        self.count = Count(bits)
        self._unit = unit
        self._paths = [path for path in map(port.file, names) if path is not None]
        self._descriptors: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._paths)

    def open(self) -> None:
        """Open the files, anew if they are open."""
        self.close()
        for path in self._paths:
            self._descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def read(self) -> None:
        """Read the files."""
        self.count.see(sum(int(os.pread(each, _LONGEST, 0)) for each in self._descriptors) * self._unit)

    def close(self) -> None:
        """Close the files. May be called twice."""
        while self._descriptors:
            os.close(self._descriptors.pop())


@dataclass(frozen=True)
class Moved:
    """What a port had moved at a moment since it was first looked at; None: its driver does not count bytes."""

    time_ns: int
    tx_bytes: int | None
    rx_bytes: int | None
    tx_packets: int
    rx_packets: int

    @property
    def amounts(self) -> tuple[int | None, ...]:
        """All but the time."""
        return self.tx_bytes, self.rx_bytes, self.tx_packets, self.rx_packets


class PortCounters:
    """Reads the counters of a port. They go on after the driver was loaded again; `reloads` says how often it was.

    Raises OSError while the port is not there.
    """

    def __init__(self, port: Port, driver: Driver) -> None:
        self.port, self.driver = port, driver
        self.reloads = 0
        unit = driver.unit_bytes
        self._tx_bytes, self._rx_bytes = (_Files(port, names, unit) for names in (driver.tx_bytes, driver.rx_bytes))
        self._tx_packets, self._rx_packets = (_Files(port, names) for names in (driver.tx_packets, driver.rx_packets))
        self._events: dict[Quantity, _Files] = {}
        for name, quantity in driver.events.items():
            files = _Files(port, (name,), bits=_NARROW if name in driver.narrow else _WIDE)
            if files:
                self._events.setdefault(quantity, files)
        self._open = False
        self._again()

    @property
    def moved_files(self) -> Sequence[_Files]:
        """What is read for one `Moved`."""
        return self._tx_bytes, self._rx_bytes, self._tx_packets, self._rx_packets

    @property
    def is_cached(self) -> bool:
        """Whether the bytes are of those files whose values the kernel hands out for a while."""
        return any(name.startswith("hw_counters") for name in (*self.driver.tx_bytes, *self.driver.tx_packets))

    def moved(self) -> Moved:
        """Return what the port has moved."""
        self._require()
        before_ns = time.monotonic_ns()
        self._read(self.moved_files)
        time_ns = (before_ns + time.monotonic_ns()) // 2
        tx, rx = (files.count.total if files else None for files in (self._tx_bytes, self._rx_bytes))
        return Moved(time_ns, tx, rx, self._tx_packets.count.total, self._rx_packets.count.total)

    def events(self) -> list[tuple[Quantity, int]]:
        """Return what it reports of congestion and loss."""
        self._require()
        self._read(self._events.values())
        return [(quantity, files.count.total) for quantity, files in self._events.items()]

    def close(self) -> None:
        """Close the files. May be called twice."""
        for files in self._all():
            files.close()
        self._open = False

    def _require(self) -> None:
        if not self._open:
            self._again()
            self.reloads += 1

    def _again(self) -> None:
        """Open the files, and go on from what they hold."""
        try:
            for files in self._all():
                files.open()
                files.count.begin_anew()
                with suppress(ValueError):
                    files.read()
        except OSError:
            self.close()
            raise
        self._open = True

    def _read(self, wanted: Iterable[_Files]) -> None:
        try:
            for files in wanted:
                files.read()
        except (OSError, ValueError) as error:
            self.close()
            raise OSError(*getattr(error, "args", ())) from error

    def _all(self) -> list[_Files]:
        return [*self.moved_files, *self._events.values()]
