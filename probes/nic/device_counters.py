"""Counters of network devices as the kernel keeps them, read for a whole network namespace at once.

`/proc/PID/net/dev` belongs to the namespace it was opened in, whoever reads it and whether or not the process still
lives: one descriptor a namespace and one read a sample cost 3 to 7 µs, need no capability beyond looking at the
process, and give 64-bit counters that do not wrap.
"""

from __future__ import annotations

import time
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

from netprof.errors import NetprofError
from netprof.probes.kernel.procfile import ProcFile
from netprof.probes.kernel.rights import SYS_PTRACE, not_permitted
from netprof.probes.kernel.rtnetlink import ROOT, device_name
from netprof.probes.nic.namespaces import Namespace
from netprof.schema import NIC_COUNTERS

_RECEIVED, _SENT = 0, 8  # where each direction's counters begin on a line, after the device's name
_ORDER = ("bytes", "packets", "errors", "drops")  # of each direction; what follows is not kept
_FIELDS = {name: (_SENT if name.startswith("tx_") else _RECEIVED) + _ORDER.index(name[3:]) for name in NIC_COUNTERS}


def open_counters(netns: int, pid: int) -> ProcFile:
    """Open the counters of namespace `netns` (its inode) by way of `pid`, any process in there.

    Raises NetprofError when `pid` is gone or lives elsewhere, NotPermittedError when it may not be looked at.
    """
    try:
        inode = Path(f"/proc/{pid}/ns/net").stat().st_ino
        if inode != netns:
            raise NetprofError(f"process {pid} is not in network namespace {netns} but in {inode}")
        return ProcFile(f"/proc/{pid}/net/dev")
    except PermissionError as error:
        raise not_permitted(f"read the network counters of process {pid}", SYS_PTRACE) from error
    except OSError as error:
        raise NetprofError(f"there is no process {pid} any more", "attach again with a pid that runs") from error


def parse_counters(text: bytes, devices: Container[str]) -> dict[str, dict[str, int]]:
    """Read `devices` in the text of `/proc/net/dev`; a line cut short is left out."""
    counters: dict[str, dict[str, int]] = {}
    for line in text.split(b"\n")[2:]:
        name, colon, rest = line.partition(b":")  # the kernel lets no device name hold a colon
        device, values = device_name(name.lstrip(b" ")), rest.split()
        if colon and len(values) >= 16 and device in devices:
            counters[device] = {column: int(values[index]) for column, index in _FIELDS.items()}
    return counters


_EVERY_S = 0.4
_WRAP = 1 << 32


class QdiscDrops:
    """Counts of a namespace, 0 for each device where there is none: the root has counted what all below it dropped."""

    def __init__(self, namespace: Namespace | None) -> None:
        self._namespace = namespace
        self._next_s = 0.0
        self._last: dict[tuple[int, int], int] = {}  # by device and handle, as the kernel had it: 32 bits
        self._counts: dict[str, int] = {}

    def counts(self) -> dict[str, int]:
        """Return what was dropped, by the device's name; looked up a few times a second at most."""
        now_s = time.monotonic()
        if self._namespace is None or now_s < self._next_s:
            return self._counts
        self._next_s = now_s + _EVERY_S
        with suppress(OSError):
            self._look(self._namespace)
        return self._counts

    def _look(self, namespace: Namespace) -> None:
        counts, last = dict(self._counts), dict[tuple[int, int], int]()
        for qdisc in namespace.route.qdiscs():
            if qdisc.parent != ROOT:
                continue
            key = qdisc.index, qdisc.handle
            last[key] = qdisc.drops
            grown = (qdisc.drops - self._last.get(key, 0)) % _WRAP
            if grown >= _WRAP // 2:  # it was made anew under the same handle
                grown = qdisc.drops
            if grown:
                if qdisc.index not in namespace.links:
                    namespace.forget()
                link = namespace.links.get(qdisc.index)
                if link is not None:
                    counts[link.name] = counts.get(link.name, 0) + grown
        self._last, self._counts = last, counts
