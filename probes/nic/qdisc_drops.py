"""Packets that the queueing disciplines of a namespace's devices have dropped."""

from __future__ import annotations

import time
from contextlib import suppress

from netprof.probes.nic.places import Place

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
        for qdisc in place.route.all_qdiscs():
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
