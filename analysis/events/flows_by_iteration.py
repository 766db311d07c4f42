"""What each flow sent in each iteration."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.analysis.events.iterations import Iterations
from netprof.analysis.tables.columns import Int64, int64_column
from netprof.schema import TRANSMIT

_MOST_CELLS = 1 << 19
NEVER = np.iinfo(np.int64).max
"""The first packet of a flow that sent none."""


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
        self.first_ns = np.full(shape, NEVER)
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
