"""What each flow sent in each iteration, and the properties of a collective's flows that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.tables.columns import Bool, Float64, Int64, int64_column
from netprof.schema import TRANSMIT

_MOST_CELLS = 1 << 19
_DATA_FLOW_SHARE = 0.01
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class FlowProperties:
    """`definitions.FLOW_PROPERTIES`: medians over `iterations` iterations, None where fewer than two flows send."""

    iterations: int
    data_flows: float
    start_skew_s: float | None
    size_equality: float | None
    completion: float | None


class FlowsByIteration:
    """Transmitted payload and the first and last packet of every flow in every iteration of one process.

    At most half a million (flow, iteration) cells are kept: of a longer recording the last iterations. A bin is
    counted to the iteration in which its first packet left.
    """

    def __init__(self, iterations: Iterations, flow_count: int) -> None:
        keep = max(1, _MOST_CELLS // max(flow_count, 1))
        self.iterations = iterations.where(np.arange(max(0, len(iterations) - keep), len(iterations)))
        shape = (flow_count, len(self.iterations))
        self.payload_bytes = np.zeros(shape, np.int64)
        self.first_ns = np.full(shape, _NEVER)
        self.last_ns = np.zeros(shape, np.int64)

    def add(self, flow: Int64, direction: Int64, columns: dict[str, npt.NDArray[Any]]) -> None:
        """Add wire rows: the flow's row in the flow table, the direction, and the columns of `wire`."""
        if len(self.iterations) == 0:
            return
        rows = np.flatnonzero((direction == TRANSMIT) & (columns["payload_bytes"] > 0))
        first = int64_column(columns, "first_ns")[rows]
        index = np.searchsorted(self.iterations.begin_ns, first, "right") - 1
        inside = (index >= 0) & (first < self.iterations.end_ns[np.maximum(index, 0)])
        rows, cell = rows[inside], flow[rows[inside]] * len(self.iterations) + index[inside]
        size = self.payload_bytes.size
        payload = np.bincount(cell, weights=columns["payload_bytes"][rows], minlength=size).astype(np.int64)
        self.payload_bytes += payload.reshape(self.payload_bytes.shape)
        np.minimum.at(self.first_ns.reshape(-1), cell, first[inside])
        np.maximum.at(self.last_ns.reshape(-1), cell, int64_column(columns, "last_ns")[rows])


def flow_properties(cells: FlowsByIteration, collectives: Collectives) -> FlowProperties | None:
    """Summarise start skew, size equality and completion of the data flows; None without iterations or flows."""
    if cells.payload_bytes.size == 0:
        return None
    carries = (cells.payload_bytes > 0) & (cells.payload_bytes >= _DATA_FLOW_SHARE * cells.payload_bytes.max(axis=0))
    count = carries.sum(axis=0)
    first = np.where(carries, cells.first_ns, _NEVER)
    last = np.where(carries, cells.last_ns, 0).max(axis=0)
    several = count >= 2
    skew = np.where(carries, cells.first_ns, 0).max(axis=0) - first.min(axis=0)
    smallest = np.where(carries, cells.payload_bytes, _NEVER).min(axis=0)
    equality = smallest / np.maximum(cells.payload_bytes.max(axis=0), 1)
    collective = _collective_time(cells.iterations, collectives)
    completion = (last - first.min(axis=0)) / np.maximum(collective, 1)
    return FlowProperties(
        iterations=int((count > 0).sum()),
        data_flows=_median(count.astype(np.float64), count > 0) or 0.0,
        start_skew_s=_median(skew / 1e9, several),
        size_equality=_median(equality, several),
        completion=_median(completion, (count > 0) & (collective > 0)),
    )


def _collective_time(iterations: Iterations, collectives: Collectives) -> Int64:
    """Return for each iteration the time from its first all-reduce's begin to its last one's end, on any rank."""
    reduces = collectives.all_reduces()
    index = np.searchsorted(iterations.begin_ns, reduces.begin_ns, "right") - 1
    inside = (index >= 0) & (reduces.begin_ns < iterations.end_ns[np.maximum(index, 0)])
    first, last = np.full(len(iterations), _NEVER), np.zeros(len(iterations), np.int64)
    np.minimum.at(first, index[inside], reduces.begin_ns[inside])
    np.maximum.at(last, index[inside], reduces.end_ns[inside])
    return np.where(last > 0, last - first, 0)


def _median(values: Float64, among: Bool) -> float | None:
    return float(np.median(values[among])) if among.any() else None
