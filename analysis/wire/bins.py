"""One lane of the wire, bin by bin, and exact questions to it: bytes in an interval, and when there are any."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.analysis.tables.columns import Bool, Float64, Int64
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.analysis.wire.by_bin import Amounts, ByBin

_BLOCK = 1 << 20
_SUMS = ("wire_bytes", "payload_bytes", "resent_bytes")
_LARGEST = ("lead_ns", "last_ns")


@dataclass(frozen=True, eq=False)
class Bins:
    """Bytes of the time bins in which a packet passed; silence takes no room. Bin n begins at n * bin_ns.

    `number` are the bins, ascending, each once; the other columns are as long. `lead_ns` is the time from a bin's first
    packet to the bin's end, `last_ns` the time from the bin's beginning to its last packet. `resent_bytes` is payload
    that went by before.
    """

    bin_ns: int
    number: Int64
    wire_bytes: Amounts
    payload_bytes: Amounts
    resent_bytes: Amounts
    lead_ns: npt.NDArray[np.uint32]
    last_ns: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.number)

    @property
    def span(self) -> int:
        """How many bins there are from the first to the last one, with those in between that are not held."""
        return int(self.number[-1]) - int(self.number[0]) + 1 if len(self) else 0

    @property
    def begin_ns(self) -> Int64:
        """When each bin begins."""
        return self.number * self.bin_ns

    def where(self, rows: Bool) -> Bins:
        """Return the bins that a mask selects; themselves if it selects all, as it nearly always does."""
        return self if rows.all() else self.part(rows)

    def part(self, rows: Bool | slice) -> Bins:
        """Return some of the bins, in columns of their own."""
        columns = {name: np.array(getattr(self, name)[rows]) for name in ("number", *_SUMS, *_LARGEST)}
        return Bins(self.bin_ns, **columns)

    def times(self, factor: float) -> Bins:
        """Return the same bins with so many times the bytes."""
        if factor == 1.0:
            return self
        amounts = {name: np.rint(getattr(self, name) * factor).astype(np.uint64) for name in _SUMS}
        return replace(self, **amounts)

    def find(self, at_ns: Int64) -> tuple[Int64, Bool]:
        """Return for each instant the row of its bin, or of the next one that is held, and whether it is its own.

        There must be a bin.
        """
        number = at_ns // self.bin_ns
        row = np.searchsorted(self.number, number)
        return row, (row < len(self)) & (self.number[np.minimum(row, len(self) - 1)] == number)

    def wire_bytes_in(self, times: Intervals) -> float:
        """Return the bytes on the link during `times` (`definitions.UTILIZATION` says how edges are split)."""
        return _bytes_in(self, self.wire_bytes, times)

    def payload_bytes_in(self, times: Intervals) -> float:
        """Return the new bytes of the streams during `times`, edges split as for wire bytes."""
        return _bytes_in(self, self.payload_bytes, times)

    def payload_until(self, at_ns: Int64) -> Float64:
        """Return for each instant the new bytes of the streams before it."""
        return _until(self, self.payload_bytes, at_ns)

    def wire_until(self, at_ns: Int64) -> Float64:
        """Return for each instant the bytes on the link before it."""
        return _until(self, self.wire_bytes, at_ns)

    def resent_until(self, at_ns: Int64) -> Float64:
        """Return for each instant the payload before it that had gone by already."""
        return _until(self, self.resent_bytes, at_ns)

    @property
    def busy(self) -> Intervals:
        """The bins that hold a packet, as times."""
        begin_ns = self.begin_ns[self.wire_bytes > 0]
        return merge(begin_ns, begin_ns + self.bin_ns)


def combine(lanes: list[Bins]) -> Bins | None:
    """Return the sum of several lanes with one bin width; the lane itself if there is one, None if there is none."""
    lanes = [lane for lane in lanes if len(lane)]
    if len(lanes) < 2:
        return lanes[0] if lanes else None
    rows = ByBin(_joined(lanes, "number"))
    sums = [rows.sums(_joined(lanes, name)) for name in _SUMS]
    return Bins(lanes[0].bin_ns, rows.number, *sums, *(rows.largest(_joined(lanes, name)) for name in _LARGEST))


def _joined(lanes: list[Bins], name: str) -> npt.NDArray[Any]:
    return np.concatenate([getattr(lane, name) for lane in lanes])


def _bytes_in(bins: Bins, amounts: Amounts, times: Intervals) -> float:
    return float((_until(bins, amounts, times.end_ns) - _until(bins, amounts, times.begin_ns)).sum())


def _until(bins: Bins, amounts: Amounts, instants: Int64) -> Float64:
    """Return the bytes before each instant."""
    if len(bins) == 0 or len(instants) == 0:
        return np.zeros(len(instants))
    row, held = bins.find(instants)
    inside = np.minimum(row, len(bins) - 1)
    first = bins.bin_ns - bins.lead_ns[inside].astype(np.float64)
    last = bins.last_ns[inside].astype(np.float64)
    offset = (instants % bins.bin_ns).astype(np.float64)
    share = np.where(last > first, (offset - first) / np.maximum(last - first, 1), offset > first)
    share = np.where(held, np.clip(share, 0.0, 1.0), 0.0)
    return np.asarray(_before(amounts, row) + amounts[inside] * share)


def _before(amounts: Amounts, row: Int64) -> Int64:
    """Return the sum of all amounts before each row; a block at a time, so that no long running sum is kept."""
    result = np.zeros(len(row), np.int64)
    total = 0
    for begin in range(0, int(row.max()) + 1, _BLOCK):
        sums = np.concatenate(([0], np.cumsum(amounts[begin : begin + _BLOCK], dtype=np.int64)))
        here = (row >= begin) & (row < begin + _BLOCK)
        result[here] = total + sums[row[here] - begin]
        total += int(sums[-1])
    return result


_WORTH_IT = 1 << 16


class GrowingLane:
    """The sum of all that was added, put together when asked for and whenever it may have doubled.

    So every bin is touched a few times at most, in however many parts and in whatever order bins come.
    """

    def __init__(self) -> None:
        self._parts: list[Bins] = []
        self._added = 0  # bins since the last time

    def add(self, bins: Bins) -> None:
        """Add bins, which may be some that are held already."""
        self._parts.append(bins)
        self._added += len(bins)
        if self._added > max(_WORTH_IT, len(self._parts[0])):
            self.bins()

    def bins(self) -> Bins | None:
        """Return what was added so far, None if nothing was; later parts do not change what was returned."""
        whole = combine(self._parts)
        self._parts = [whole] if whole is not None else []
        self._added = 0
        return whole
