"""From the kernel's bin records to rows, each bin once: those handed over, and those of flows that fell silent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

STREAM = np.dtype(
    [
        ("bin_end_ns", "u8"),
        ("payload_bytes", "u8"),
        ("wire_bytes", "u8"),
        ("retransmitted_bytes", "u8"),
        ("first_ns", "u8"),
        ("last_ns", "u8"),
        ("packets", "u4"),
        ("next_sequence", "u4"),
        ("holes_bytes", "u4"),
        ("started", "u2"),
        ("segments", "u2"),
    ]
)
"""`struct stream` of flow.h."""

BIN_RECORD = np.dtype(
    [
        ("flow_id", "u4"),
        ("slot", "u2"),
        ("direction", "u2"),
        ("bin", "u8"),
        ("payload_bytes", "u8"),
        ("wire_bytes", "u8"),
        ("retransmitted_bytes", "u8"),
        ("first_ns", "u8"),
        ("last_ns", "u8"),
        ("packets", "u8"),
    ]
)
"""`struct bin_record` of flow.h."""

_AMOUNTS = ("payload_bytes", "wire_bytes", "retransmitted_bytes", "packets")
_SILENT_AFTER_BINS = 2


class BinCollector:
    """Knows which bins became rows already.

    The kernel hands a bin over when its flow moves on to the next. A flow that falls silent keeps its last bin, so
    that one is read in place; when the flow wakes up the kernel hands the same bin over, and only what it holds
    beyond the row already given is kept.
    """

    def __init__(self, bin_ns: int, slots: int) -> None:
        self._bin_ns = bin_ns
        self._handed_over = np.zeros((slots, 2), dtype=np.uint64)
        self._given = np.zeros((slots, 2), dtype=BIN_RECORD)
        self._given_bins = np.zeros((slots, 2), dtype=np.uint64)

    def silent(self, ids: NDArray[Any], streams: NDArray[Any], now_bin: int) -> NDArray[Any]:
        """Return the last bins (BIN_RECORD) of streams that were not touched for a while.

        `ids` (slots,) and `streams` (slots, 2) are live kernel memory: a bin counts only if two reads agree.
        """
        bins = streams["bin_end_ns"] // np.uint64(self._bin_ns) - np.uint64(1)
        last = np.maximum(self._handed_over, self._given_bins)[: len(streams)]
        old = (bins + np.uint64(_SILENT_AFTER_BINS) < now_bin) & (bins > last) & (streams["packets"] > 0)
        slots, directions = np.nonzero(old)
        first, second = streams[slots, directions].copy(), streams[slots, directions].copy()
        same = first == second
        slots, directions, kept = slots[same], directions[same], first[same]
        records = np.zeros(len(kept), dtype=BIN_RECORD)
        for name in (*_AMOUNTS, "first_ns", "last_ns"):
            records[name] = kept[name]
        records["bin"] = kept["bin_end_ns"] // np.uint64(self._bin_ns) - np.uint64(1)
        records["flow_id"], records["slot"], records["direction"] = ids[slots], slots, directions
        return records

    def columns(self, handed_over: NDArray[Any], silent: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the columns of table `wire` for new records. `silent` must have been read before `handed_over`."""
        places = handed_over["slot"].astype(np.intp) * 2 + handed_over["direction"]
        rest = self._beyond_given(handed_over, places)
        self._handed_over.reshape(-1)[places] = handed_over["bin"]
        records = rest
        if len(silent):
            silent = silent[silent["bin"] > self._handed_over[silent["slot"], silent["direction"]]]
            self._given[silent["slot"], silent["direction"]] = silent
            self._given_bins[silent["slot"], silent["direction"]] = silent["bin"]
            records = np.concatenate([rest, silent])
        same = ("flow_id", "direction", "first_ns", "last_ns", *_AMOUNTS)
        return {"bin_start_ns": records["bin"] * np.uint64(self._bin_ns)} | {name: records[name] for name in same}

    def forget(self, slots: NDArray[np.intp]) -> None:
        """Begin anew with slots that get other flows."""
        self._handed_over[slots] = 0
        self._given_bins[slots] = 0
        self._given[slots] = np.zeros((), dtype=BIN_RECORD)

    def _beyond_given(self, records: NDArray[Any], places: NDArray[np.intp]) -> NDArray[Any]:
        """Return the records less what was given of their bins before; `places` are their streams."""
        rest: NDArray[Any] = records.copy()
        again = self._given_bins.reshape(-1)[places] == records["bin"]
        if not again.any():  # nearly always
            return rest
        given = self._given.reshape(-1)[places]
        again &= given["flow_id"] == records["flow_id"]
        for name in _AMOUNTS:
            rest[name][again] -= given[name][again]
        remaining: NDArray[Any] = rest[~again | (rest["wire_bytes"] > 0)]
        return remaining
