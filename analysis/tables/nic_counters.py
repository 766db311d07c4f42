"""The `nic` table: what each device itself counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from netprof.analysis.tables.columns import Int64, int64_column, text_column
from netprof.analysis.tables.flow_table import LinkKey


def read_nic(table: Any) -> dict[LinkKey, tuple[Int64, Int64, Int64]]:
    """Return each device's samples by time: times in ns, bytes sent and bytes received since it came up.

    `table` is the `nic` table: Arrow, DataFrame or mapping of columns, rows in any order.
    """
    netns, time_ns = int64_column(table, "netns"), int64_column(table, "time_ns")
    device = np.array(text_column(table, "device"), dtype=object)
    sent, received = int64_column(table, "tx_bytes"), int64_column(table, "rx_bytes")
    found = {}
    for key in dict.fromkeys(zip(netns.tolist(), device.tolist(), strict=True)):
        rows = np.flatnonzero((netns == key[0]) & (device == key[1]))
        rows = rows[np.argsort(time_ns[rows], kind="stable")]
        found[LinkKey(*key)] = time_ns[rows], sent[rows], received[rows]
    return found
