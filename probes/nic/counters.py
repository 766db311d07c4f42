"""Counters of the network devices that carry the job's flows, read from the kernel ten times a second or more.

`/proc/PID/net/dev` belongs to the namespace it was opened in, whoever reads it and whether or not the process still
lives: one descriptor a namespace and one read a sample cost 3 to 7 µs, need no capability beyond looking at the
process, and give 64-bit counters that do not wrap.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from netprof.errors import NetprofError, NotPermittedError
from netprof.probes.kernel.rtnetlink import device_name

_READ_BYTES = 1 << 16

# Position of each counter on a line of /proc/net/dev, after the device's name.
_COUNTERS = {
    "tx_bytes": 8,
    "rx_bytes": 0,
    "tx_packets": 9,
    "rx_packets": 1,
    "tx_drops": 11,
    "rx_drops": 3,
    "tx_errors": 10,
    "rx_errors": 2,
}


@dataclass
class _Namespace:
    """One namespace's counters file and the devices to keep of it."""

    descriptor: int
    devices: set[str] = field(default_factory=set)


class NicSampler:
    """Samples the counters of a set of devices that grows while recording. A context manager."""

    def __init__(self) -> None:
        self._namespaces: dict[int, _Namespace] = {}

    def add(self, device: str, netns: int, pid: int) -> None:
        """Sample `device` of network namespace `netns` (its inode) from now on; `pid` is any process in there.

        A device added before is left as it is. Raises NetprofError when `pid` is gone or lives in another namespace,
        NotPermittedError when it may not be looked at.
        """
        if netns not in self._namespaces:
            self._namespaces[netns] = _Namespace(_open_counters(netns, pid))
        self._namespaces[netns].devices.add(device)

    def sample(self) -> dict[str, list[int] | list[str]]:
        """Read all devices once and return the rows as columns of the `nic` table; a device that is gone has no row."""
        devices: list[str] = []
        columns: dict[str, list[int]] = {name: [] for name in ("netns", "time_ns", *_COUNTERS)}
        for inode, namespace in self._namespaces.items():
            before_ns = time.monotonic_ns()
            text = _read_all(namespace.descriptor)
            time_ns = (before_ns + time.monotonic_ns()) // 2
            for name, counters in parse_counters(text).items():
                if name not in namespace.devices:
                    continue
                devices.append(name)
                columns["netns"].append(inode)
                columns["time_ns"].append(time_ns)
                for column, position in _COUNTERS.items():
                    columns[column].append(int(counters[position]))
        return {"device": devices, **columns}

    def close(self) -> None:
        """Close every descriptor."""
        for namespace in self._namespaces.values():
            os.close(namespace.descriptor)
        self._namespaces.clear()

    def __enter__(self) -> NicSampler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def parse_counters(text: bytes) -> dict[str, list[bytes]]:
    """Split the text of `/proc/net/dev` into the 16 counters of each device."""
    found: dict[str, list[bytes]] = {}
    for line in text.split(b"\n")[2:]:
        name, colon, rest = line.partition(b":")  # the kernel lets no device name hold a colon
        counters = rest.split()
        if colon and len(counters) >= 16:
            found[device_name(name.lstrip(b" "))] = counters
    return found


def _open_counters(netns: int, pid: int) -> int:
    """Open the counters of namespace `netns` by way of `pid`, making sure that it is that namespace."""
    try:
        seen = Path(f"/proc/{pid}/ns/net").stat().st_ino
        if seen != netns:
            raise NetprofError(f"process {pid} is not in network namespace {netns} but in {seen}")
        return os.open(f"/proc/{pid}/net/dev", os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError as error:
        raise NotPermittedError(
            f"not permitted to read the network counters of process {pid}: CAP_SYS_PTRACE is missing",
            "run as root, or add CAP_SYS_PTRACE",
        ) from error
    except OSError as error:
        raise NetprofError(f"there is no process {pid} any more", "attach again with a pid that runs") from error


def _read_all(descriptor: int) -> bytes:
    """Read the whole file from its beginning; b"" when the kernel gives nothing."""
    parts: list[bytes] = []
    position = 0
    while part := os.pread(descriptor, _READ_BYTES, position):
        parts.append(part)
        position += len(part)
    return b"".join(parts)
