"""How long an acknowledgement takes, by flow: TCP's own smoothed round-trip time."""

from __future__ import annotations

from typing import Any

import numpy as np

from netprof.analysis.tables.columns import Int64, int64_column
from netprof.analysis.tables.flow_table import Flows


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
