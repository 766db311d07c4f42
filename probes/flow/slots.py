"""The slots of the kernel's table of flows: read in place, freed when a flow is over, given up by the silent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.probes.kernel.btf import layout
from netprof.probes.kernel.loader import BpfObject, map_array, map_update, u32

PARKED, FLOW = layout("flow", "parked"), layout("flow", "flow")
"""Structures of flow.h."""

_FREE_AFTER_NS = 2_000_000_000
_SILENT_NS = 1_000_000_000
_SILENT_BINS = 4
_MAPPED = 1024
_RECEIVE = 1


class Slots:
    """The table of a loaded flow object, of `count` slots.

    A flow takes a slot with its first packet and gives it back some time after its end. When more than half of all
    slots are taken, flows that have been silent for a while give up theirs: what they need to go on is parked.
    """

    def __init__(self, loaded: BpfObject, count: int, bin_ns: int) -> None:
        self._object, self._count = loaded, count
        self._flows = self._mapped(_MAPPED)
        self._ring = map_array(loaded.map_fd("free_slots"), 8, count, writable=True).view(np.uint32)[:, 0]
        self._freed = 0
        self._left_ns = np.zeros(count, dtype=np.int64)  # since when a slot's flow needs it no more; 0: it does
        self._silent_ns = max(_SILENT_NS, _SILENT_BINS * bin_ns)

    def used(self) -> NDArray[Any]:
        """Return the slots that were ever taken (FLOW): live memory, changing under the reader's eyes."""
        taken = self._object.counters("next_slot")["next_slot"]
        if taken > len(self._flows):
            self._flows = self._mapped(2 * taken)
        return self._flows[:taken]

    def _mapped(self, count: int) -> NDArray[Any]:
        """Map the first slots: what is mapped counts as the recorder's memory, and few jobs have thousands of flows."""
        mapped = map_array(self._object.map_fd("flows"), FLOW.itemsize, min(count, self._count), writable=True)
        return mapped.view(FLOW)[:, 0]

    def recycle(self, now_ns: int) -> NDArray[np.intp]:
        """Free the slots that are not needed any more and return them. `now_ns` is CLOCK_MONOTONIC."""
        flows = self.used()
        if self._in_use() > self._count // 2:
            self._give_up_silent(flows, now_ns)
        left = np.flatnonzero((flows["closed"] != 0) | ((flows["holder"] == 0) & (flows["id"] != 0)))
        first_seen = left[self._left_ns[left] == 0]
        self._left_ns[first_seen] = now_ns
        ready: NDArray[np.intp] = left[now_ns - self._left_ns[left] >= _FREE_AFTER_NS]
        if ready.size:
            self._park(flows, ready[flows["closed"][ready] == 0])
            self._free(ready)
        return ready

    def _in_use(self) -> int:
        counted = self._object.counters("next_slot", "reused_slots")
        return counted["next_slot"] - (self._freed - counted["reused_slots"])

    def _give_up_silent(self, flows: NDArray[Any], now_ns: int) -> None:
        """Let go of the slots of silent flows: from here on their next packet takes another."""
        last_ns = flows["streams"]["last_ns"].max(axis=1)
        silent = (last_ns > 0) & (last_ns + np.uint64(self._silent_ns) < now_ns)
        silent &= (flows["holder"] != 0) & (flows["closed"] == 0)
        self._flows["holder"][np.flatnonzero(silent)] = 0

    def _park(self, flows: NDArray[Any], slots: NDArray[np.intp]) -> None:
        """Keep what flows need that gave up their slots, unless they have moved to others already."""
        moved = np.isin(flows["id"][slots], flows["holder"])
        slots = slots[~moved]
        parked = np.zeros(len(slots), PARKED)
        for name in ("adoption", "accepted", "told"):
            parked[name] = flows[name][slots]
        for name in ("next_sequence", "started"):
            parked[name] = flows["streams"][name][slots]
        for name in ("payload_bytes", "retransmitted_bytes", "packets"):
            parked["left"][name] = flows["streams"][name][slots]
        for name in ("holes_bytes", "segments"):
            parked[name] = flows["streams"][name][slots, _RECEIVE]
        descriptor = self._object.map_fd("parked_flows")
        for flow_id, kept in zip(flows["id"][slots].tolist(), parked, strict=True):
            map_update(descriptor, u32(flow_id), kept.tobytes())

    def _free(self, slots: NDArray[np.intp]) -> None:
        self._flows["id"][slots] = 0  # first: whoever copies from the slot meanwhile notices
        self._flows[slots] = np.zeros((), FLOW)
        self._left_ns[slots] = 0
        self._ring[(self._freed + np.arange(len(slots))) % self._count] = slots
        self._freed += len(slots)
        self._object.set_counter("freed_slots", self._freed)
