"""What each flow sent in each iteration, or in each of other windows of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.tables.columns import UNKNOWN, Int64, int64_column
from netprof.analysis.tables.intervals import Windows, merge, row_at
from netprof.schema import TRANSMIT

_MOST_CELLS = 1 << 19
NEVER = np.iinfo(np.int64).max
"""The first packet of a flow that sent none."""


class FlowsByWindow:
    """Transmitted payload and the first and last packet of every flow in every window.

    At most half a million (flow, window) cells are kept: of a longer recording the last windows. A bin is counted to
    the window in which its first packet left.
    """

    def __init__(self, windows: Windows, flow_count: int) -> None:
        keep = max(1, _MOST_CELLS // max(flow_count, 1))
        self.windows = windows.where(np.arange(max(0, len(windows) - keep), len(windows)))
        shape = (flow_count, len(self.windows))
        self.payload_bytes = np.zeros(shape, np.int64)
        self.first_ns = np.full(shape, NEVER)
        self.last_ns = np.zeros(shape, np.int64)

    def add(self, flow: Int64, direction: Int64, columns: dict[str, npt.NDArray[Any]]) -> None:
        """Add wire rows: the flow's row in the flow table, the direction, and the columns of `wire`."""
        if len(self.windows) == 0:
            return
        rows = np.flatnonzero((direction == TRANSMIT) & (columns["payload_bytes"] > 0))
        first = int64_column(columns, "first_ns")[rows]
        index = row_at(self.windows.begin_ns, self.windows.end_ns, first)
        inside = index != UNKNOWN
        rows, cell = rows[inside], flow[rows[inside]] * len(self.windows) + index[inside]
        size = self.payload_bytes.size
        payload = np.bincount(cell, weights=columns["payload_bytes"][rows], minlength=size).astype(np.int64)
        self.payload_bytes += payload.reshape(self.payload_bytes.shape)
        np.minimum.at(self.first_ns.reshape(-1), cell, first[inside])
        np.maximum.at(self.last_ns.reshape(-1), cell, int64_column(columns, "last_ns")[rows])


class FlowCells:
    """Both: what each flow sent in each iteration, and in each collective."""

    def __init__(self, by_iteration: FlowsByWindow, by_collective: FlowsByWindow) -> None:
        self.by_iteration, self.by_collective = by_iteration, by_collective

    def add(self, flow: Int64, direction: Int64, columns: dict[str, npt.NDArray[Any]]) -> None:
        """Add wire rows to both."""
        for each in (self.by_iteration, self.by_collective):
            each.add(flow, direction, columns)


def collective_windows(collectives: Collectives) -> Windows:
    """Return when any collective runs on any rank: one window each, where they do not overlap."""
    times = merge(collectives.begin_ns, collectives.end_ns)
    return Windows(times.begin_ns, times.end_ns)


def held_alone(windows: Windows, collectives: Collectives) -> npt.NDArray[np.bool_]:
    """Return the windows in which the process with the most collectives has just one."""
    begin = np.sort(collectives.of_most().begin_ns)
    inside = np.searchsorted(begin, windows.end_ns) - np.searchsorted(begin, windows.begin_ns)
    return np.asarray(inside == 1)
