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
from netprof.probes.kernel.rtnetlink import device_name
from netprof.probes.nic.places import Place
from netprof.schema import NIC_COUNTERS

_RECEIVED, _SENT = 0, 8  # where each direction's counters begin on a line, after the device's name
_ORDER = ("bytes", "packets", "errors", "drops")  # of each direction; what follows is not kept
_PLACES = {name: (_SENT if name.startswith("tx_") else _RECEIVED) + _ORDER.index(name[3:]) for name in NIC_COUNTERS}


def open_counters(netns: int, pid: int) -> ProcFile:
    """Open the counters of namespace `netns` (its inode) by way of `pid`, any process in there.

    Raises NetprofError when `pid` is gone or lives elsewhere, NotPermittedError when it may not be looked at.
    """
    try:
        seen = Path(f"/proc/{pid}/ns/net").stat().st_ino
        if seen != netns:
            raise NetprofError(f"process {pid} is not in network namespace {netns} but in {seen}")
        return ProcFile(f"/proc/{pid}/net/dev")
    except PermissionError as error:
        raise not_permitted(f"read the network counters of process {pid}", SYS_PTRACE) from error
    except OSError as error:
        raise NetprofError(f"there is no process {pid} any more", "attach again with a pid that runs") from error


def parse_counters(text: bytes, devices: Container[str]) -> dict[str, dict[str, int]]:
    """Read `devices` in the text of `/proc/net/dev`; a line cut short is left out."""
    found: dict[str, dict[str, int]] = {}
    for line in text.split(b"\n")[2:]:
        name, colon, rest = line.partition(b":")  # the kernel lets no device name hold a colon
        device, values = device_name(name.lstrip(b" ")), rest.split()
        if colon and len(values) >= 16 and device in devices:
            found[device] = {column: int(values[place]) for column, place in _PLACES.items()}
    return found


_EVERY_S = 0.4
_ROOT = 0xFFFFFFFF
_WRAP = 1 << 32


class QdiscDrops:
    """Counts of a place, 0 for each device where there is none: the root has counted what all below it dropped."""

    def __init__(self, place: Place | None) -> None:
        self._place = place
        self._next_s = 0.0
        self._last: dict[tuple[int, int], int] = {}  # by device and handle, as the kernel had it: 32 bits
        self._counts: dict[str, int] = {}

    def counts(self) -> dict[str, int]:
        """Return what was dropped, by the device's name; looked up a few times a second at most."""
        now_s = time.monotonic()
        if self._place is None or now_s < self._next_s:
            return self._counts
        self._next_s = now_s + _EVERY_S
        with suppress(OSError):
            self._look(self._place)
        return self._counts

    def _look(self, place: Place) -> None:
        counts, last = dict(self._counts), dict[tuple[int, int], int]()
        for qdisc in place.route.qdiscs():
            if qdisc.parent != _ROOT:
                continue
            key = qdisc.index, qdisc.handle
            last[key] = qdisc.drops
            grown = (qdisc.drops - self._last[key]) % _WRAP if key in self._last else qdisc.drops
            if grown:
                if qdisc.index not in place.links:
                    place.forget()
                link = place.links.get(qdisc.index)
                if link is not None:
                    counts[link.name] = counts.get(link.name, 0) + grown
        self._last, self._counts = last, counts
