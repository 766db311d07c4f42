"""From the kernel's bin records to rows, each bin once: those handed over, and those of flows that fell silent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.probes.kernel.btf import layout
from netprof.probes.kernel.libbpf import libbpf

BIN_RECORD = layout("flow", "bin_record")
"""`struct bin_record` of flow.h: `place` is a slot, times two, plus the direction; above its bits, `unsent`."""

_COLUMNS = {
    "flow_id": np.uint32,
    "direction": np.uint8,
    "bin_start_ns": np.int64,
    "payload_bytes": np.uint64,
    "wire_bytes": np.uint64,
    "retransmitted_bytes": np.uint64,
    "packets": np.uint32,
    "first_ns": np.int64,
    "last_ns": np.int64,
    "stream_position": np.uint32,
    "stream_position_ns": np.int64,
    "unsent": np.uint8,
}
"""Table `wire`, as `struct wire_columns` of native/bins.c points to its columns."""

_PLACE_BITS = np.uint32(24)

_AMOUNTS = ("payload_bytes", "wire_bytes", "retransmitted_bytes", "packets")
_PLACES = ("first_ns", "last_ns", "newest_after_ns", "next_sequence")
_SILENT_AFTER_BINS = 2


class BinCollector:
    """Knows which bins became rows already.

    The kernel hands a bin over when its flow moves on to the next. A flow that falls silent keeps its last bin, so
    that one is read in place; when the flow wakes up the kernel hands the same bin over, and only what it holds
    beyond the row already given is kept. So it is with a bin that is read in place again, with more in it.
    """

    def __init__(self, bin_ns: int, slots: int) -> None:
        self._bin_ns = np.uint64(bin_ns)
        self._handed_over = np.zeros(slots * 2, dtype=np.uint64)  # by place, the last bin
        self._given = np.zeros(slots * 2, dtype=BIN_RECORD)
        self._given_bins = np.zeros(slots * 2, dtype=np.uint64)
        by_place = (self._handed_over, self._given, self._given_bins)
        self._known = np.array([bin_ns, slots * 2, *(array.ctypes.data for array in by_place)], np.uint64)  # known_bins

    def silent(self, ids: NDArray[Any], streams: NDArray[Any], now_bin: int, tries: int = 1) -> NDArray[Any]:
        """Return the last bins (BIN_RECORD) of streams that were not touched for a while.

        `ids` (slots,) and `streams` (slots, 2) are live kernel memory, and time may pass between two looks at it: a bin
        counts only if two reads of it agree, of at most `tries` and one, and by what they say.
        """
        slots, directions = np.nonzero(self._has_news(streams))
        kept, same = _read(streams, slots, directions, tries)
        old = kept["bin_end_ns"] // self._bin_ns + np.uint64(_SILENT_AFTER_BINS) < now_bin + 1
        same &= old & (kept["packets"] > 0)
        slots, directions, kept = slots[same], directions[same], kept[same]
        records = np.zeros(len(kept), dtype=BIN_RECORD)
        for name in (*_AMOUNTS, *_PLACES):
            records[name] = kept[name]
        unsent = kept["unsent"].astype(np.uint32) << _PLACE_BITS
        records["flow_id"], records["place"] = ids[slots], (slots * 2 + directions).astype(np.uint32) | unsent
        return records

    def _has_news(self, streams: NDArray[Any]) -> NDArray[np.bool_]:
        """Say which streams' bins hold what became no row yet: all of a new one, or what was added to one since.

        Where the ring is full, packets of later bins are added to one that was given already.
        """
        bins = streams["bin_end_ns"] // self._bin_ns - np.uint64(1)
        handed_over, given_bins, packets = (
            by_place[: streams.size].reshape(streams.shape)
            for by_place in (self._handed_over, self._given_bins, self._given["packets"])
        )
        more = (bins == given_bins) & (streams["packets"] != packets)
        return np.asarray((bins > handed_over) & ((bins > given_bins) | more) & (streams["bin_end_ns"] > 0))

    def columns(self, handed_over: NDArray[Any], silent: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the columns of table `wire` for new records. `silent` must have been read before `handed_over`."""
        most, rows = len(handed_over) + len(silent), 0
        columns = {name: np.empty(most, kind) for name, kind in _COLUMNS.items()}
        out = np.array([column.ctypes.data for column in columns.values()], np.uint64)
        for records, in_place in ((np.ascontiguousarray(handed_over), False), (silent, True)):
            memory = records.ctypes.data, len(records), in_place
            rows = libbpf().netprof_bins(*memory, self._known.ctypes.data, out.ctypes.data, rows)
        return {name: column[:rows] for name, column in columns.items()}

    def forget(self, slots: NDArray[np.intp]) -> None:
        """Begin anew with slots that get other flows."""
        places = np.concatenate((slots * 2, slots * 2 + 1))
        self._handed_over[places] = 0
        self._given_bins[places] = 0
        self._given[places] = np.zeros((), dtype=BIN_RECORD)


def _read(
    streams: NDArray[Any], slots: NDArray[np.intp], directions: NDArray[np.intp], tries: int
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Read memory that others write: the last reads, and which of them were the same twice."""
    kept, same = streams[slots, directions].copy(), np.zeros(len(slots), bool)
    for _ in range(tries):
        rows = np.flatnonzero(~same)
        if not len(rows):
            break
        again = streams[slots[rows], directions[rows]].copy()
        same[rows], kept[rows] = kept[rows] == again, again
    return kept, same
