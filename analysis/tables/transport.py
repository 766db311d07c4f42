"""The `tcp` table: what TCP itself says of each flow."""

from __future__ import annotations

from typing import Any

import numpy as np

from netprof.analysis.tables.columns import Int64, int64_column
from netprof.analysis.tables.flow_table import Flows
from netprof.analysis.tables.intervals import Intervals, merge

_CLOSE_NS = 300_000_000


def round_trips_ns(table: Any, flows: Flows) -> Int64:
    """Return the median round-trip time of each flow, ns, in the order of the flow table; 0 where TCP said nothing.

    `table` is the `tcp` table.
    """
    flow, rtt_us = int64_column(table, "flow_id"), int64_column(table, "rtt_us")
    row = flows.positions(flow)
    flow_rtt_ns = np.zeros(len(flows), np.int64)
    known = (row >= 0) & (rtt_us > 0)
    row, rtt_us = row[known], rtt_us[known]
    order = np.lexsort((rtt_us, row))
    rows, first, count = np.unique(row[order], return_index=True, return_counts=True)
    flow_rtt_ns[rows] = rtt_us[order][first + count // 2] * 1000
    return flow_rtt_ns


def resending(table: Any, flows: Flows) -> dict[int, Intervals]:
    """Return when each flow's count of what it sent again rose, by the flow's row; flows of which it did.

    Samples that are far apart do not tell when.
    """
    flow, time_ns, count = (int64_column(table, name) for name in ("flow_id", "time_ns", "retransmits"))
    row = flows.positions(flow)
    order = np.lexsort((time_ns, row))
    row, time_ns, count = row[order], time_ns[order], count[order]
    rose = np.flatnonzero((row[1:] == row[:-1]) & (count[1:] > count[:-1]) & (row[1:] >= 0)) + 1
    rose = rose[time_ns[rose] - time_ns[rose - 1] <= _CLOSE_NS]
    return {
        int(each): merge(time_ns[rose[row[rose] == each] - 1], time_ns[rose[row[rose] == each]])
        for each in np.unique(row[rose]).tolist()
    }
