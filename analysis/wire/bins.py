"""One lane of the wire, bin by bin, and exact questions to it: bytes in an interval, and when there are any."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from netprof.analysis.tables.columns import Float64, Int64
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.errors import TraceError

MOST_BINS = 1 << 28
"""Bins in one lane that are believed: three days of 1 ms bins. Times further apart are taken for damage."""

_BLOCK = 1 << 20


@dataclass(frozen=True, eq=False)
class Bins:
    """Bytes per time bin without gaps: element i is the bin that begins at (first_bin + i) * bin_ns.

    `lead_ns` is the time from the bin's first packet to the bin's end, `last_ns` the time from the bin's beginning to
    its last packet; both are 0 in a bin without packets. `resent_bytes` is payload that went by before.
    """

    bin_ns: int
    first_bin: int
    wire_bytes: npt.NDArray[np.unsignedinteger]
    payload_bytes: npt.NDArray[np.unsignedinteger]
    resent_bytes: npt.NDArray[np.unsignedinteger]
    lead_ns: npt.NDArray[np.uint32]
    last_ns: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.wire_bytes)

    def wire_bytes_in(self, times: Intervals) -> float:
        """Return the bytes on the link during `times` (`definitions.UTILIZATION` says how edges are split)."""
        return _bytes_in(self, self.wire_bytes, times)

    def payload_bytes_in(self, times: Intervals) -> float:
        """Return the new bytes of the streams during `times`, edges split as for wire bytes."""
        return _bytes_in(self, self.payload_bytes, times)

    def payload_until(self, at_ns: Int64) -> Float64:
        """Return for each instant the new bytes of the streams before it."""
        return _until(self, self.payload_bytes, at_ns) if len(self) and len(at_ns) else np.zeros(len(at_ns))

    @property
    def busy(self) -> Intervals:
        """The bins that hold a packet, as times."""
        rows = np.flatnonzero(self.wire_bytes)
        begin_ns = (self.first_bin + rows) * self.bin_ns
        return merge(begin_ns, begin_ns + self.bin_ns)


def combine(lanes: list[Bins]) -> Bins | None:
    """Return the sum of several lanes with one bin width; the lane itself if there is one, None if there is none."""
    lanes = [lane for lane in lanes if len(lane)]
    if len(lanes) < 2:
        return lanes[0] if lanes else None
    first = min(lane.first_bin for lane in lanes)
    count = max(lane.first_bin + len(lane) for lane in lanes) - first
    wire, payload, resent = (np.zeros(count, np.uint64) for _ in range(3))
    lead_ns, last_ns = np.zeros(count, np.uint32), np.zeros(count, np.uint32)
    for lane in lanes:
        part = slice(lane.first_bin - first, lane.first_bin - first + len(lane))
        wire[part] += lane.wire_bytes
        payload[part] += lane.payload_bytes
        resent[part] += lane.resent_bytes
        np.maximum(lead_ns[part], lane.lead_ns, out=lead_ns[part])
        np.maximum(last_ns[part], lane.last_ns, out=last_ns[part])
    return Bins(lanes[0].bin_ns, first, wire, payload, resent, lead_ns, last_ns)


def check_span(bins: int) -> None:
    """Raise TraceError when a trace's times lie further apart than a recording can last."""
    if bins > MOST_BINS:
        raise TraceError(
            f"the trace's times span {bins} time bins, more than the {MOST_BINS} that can be analysed",
            "the trace is damaged, or was recorded for longer than its bin width allows",
        )


def _bytes_in(bins: Bins, amounts: npt.NDArray[np.unsignedinteger], times: Intervals) -> float:
    if len(bins) == 0 or len(times) == 0:
        return 0.0
    return float((_until(bins, amounts, times.end_ns) - _until(bins, amounts, times.begin_ns)).sum())


def _until(bins: Bins, amounts: npt.NDArray[np.unsignedinteger], instants: Int64) -> Float64:
    """Return the bytes before each instant."""
    index = instants // bins.bin_ns - bins.first_bin
    inside = np.clip(index, 0, len(bins) - 1)
    held = amounts[inside].astype(np.float64)
    first = bins.bin_ns - bins.lead_ns[inside].astype(np.float64)
    last = bins.last_ns[inside].astype(np.float64)
    offset = (instants % bins.bin_ns).astype(np.float64)
    share = np.where(last > first, (offset - first) / np.maximum(last - first, 1), offset > first)
    share = np.where(index < 0, 0.0, np.where(index >= len(bins), 1.0, np.clip(share, 0.0, 1.0)))
    return _before(amounts, inside) + held * share


def _before(amounts: npt.NDArray[np.unsignedinteger], index: Int64) -> Int64:
    """Return the sum of all amounts before each index; a block at a time, so that no long running sum is kept."""
    result = np.zeros(len(index), np.int64)
    total = 0
    for begin in range(0, int(index.max()) + 1, _BLOCK):
        sums = np.concatenate(([0], np.cumsum(amounts[begin : begin + _BLOCK], dtype=np.int64)))
        here = (index >= begin) & (index < begin + _BLOCK)
        result[here] = total + sums[index[here] - begin]
        total += int(sums[-1])
    return result
