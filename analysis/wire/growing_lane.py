"""A lane that grows while rows are added to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.analysis.tables.columns import Float64, Int64
from netprof.analysis.wire.bins import MOST_BINS, Bins, check_span

_AMOUNTS = ("wire_bytes", "payload_bytes", "resent_bytes")
_SMALLEST = 1 << 12
_LARGEST = np.iinfo(np.uint32).max


class GrowingLane:
    """Bytes per bin of one lane, 20 bytes a bin (more once a bin holds more than 4 GiB). Bins come in any order.

    Room for `expected_bins` is taken at once; the system only hands out the memory that is then used.
    """

    def __init__(self, bin_ns: int, expected_bins: int = 0) -> None:
        self.bin_ns = bin_ns
        self._smallest = min(max(expected_bins, _SMALLEST), MOST_BINS)
        self._origin = 0  # the bin of element 0
        self._low = self._high = 0  # elements in use
        self._columns: dict[str, npt.NDArray[Any]] = {}

    def __len__(self) -> int:
        return self._high - self._low

    def add(
        self,
        bins: Int64,
        wire_bytes: Float64,
        payload_bytes: Float64,
        resent_bytes: Float64,
        lead_ns: npt.NDArray[np.uint32],
        last_ns: npt.NDArray[np.uint32],
    ) -> None:
        """Add rows to the bins whose numbers (time over bin width) are given. Raises TraceError on absurd times."""
        low, high = int(bins.min()), int(bins.max()) + 1
        self._make_room(low, high)
        index = bins - low
        part = slice(low - self._origin, high - self._origin)
        for name, amounts in zip(_AMOUNTS, (wire_bytes, payload_bytes, resent_bytes), strict=True):
            sums: Float64 = np.bincount(index, weights=amounts, minlength=high - low).astype(np.float64, copy=False)
            self._add_amounts(name, part, sums)
        np.maximum.at(self._columns["lead_ns"][part], index, lead_ns)
        np.maximum.at(self._columns["last_ns"][part], index, last_ns)

    def bins(self) -> Bins:
        """Return what was added so far; the arrays are views that later rows may change."""
        part = slice(self._low, self._high)
        columns = {name: values[part] for name, values in self._columns.items()}
        return Bins(self.bin_ns, self._origin + self._low, **columns)

    def _add_amounts(self, name: str, part: slice, sums: Float64) -> None:
        values = self._columns[name]
        total = values[part].astype(np.float64) + sums
        if values.dtype == np.uint32 and total.max() > _LARGEST:
            values = self._columns[name] = values.astype(np.uint64)
        values[part] = total.astype(values.dtype)

    def _make_room(self, low: int, high: int) -> None:
        """Hold the bins [low, high) too, doubling the room where it does not suffice."""
        if self._columns:
            new_low, new_high = min(low, self._origin + self._low), max(high, self._origin + self._high)
        else:
            new_low, new_high = low, high
        check_span(new_high - new_low)
        room = len(self._columns["wire_bytes"]) if self._columns else 0
        if new_low < self._origin or new_high > self._origin + room or not self._columns:
            self._move(new_low, new_high, room)
        self._low, self._high = new_low - self._origin, new_high - self._origin

    def _move(self, low: int, high: int, room: int) -> None:
        size = max(self._smallest, 2 * room, high - low)
        origin = low if not self._columns or low == self._origin + self._low else low - (size - (high - low)) // 2
        for name in (*_AMOUNTS, "lead_ns", "last_ns"):
            old = self._columns.get(name)
            grown = np.zeros(size, np.uint32 if old is None else old.dtype)
            if old is not None:
                begin = self._origin + self._low - origin
                grown[begin : begin + len(self)] = old[self._low : self._high]
            self._columns[name] = grown
        self._origin = origin
