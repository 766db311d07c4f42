"""The `nic` table: what each device itself counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from netprof.analysis.tables.columns import Int64, grouped, int64_column, text_column
from netprof.analysis.tables.flow_table import LinkKey


def read_nic(table: Any) -> dict[LinkKey, tuple[Int64, Int64, Int64]]:
    """Return each device's samples by time: times in ns, bytes sent and bytes received since it came up.

    `table` is the `nic` table: Arrow, DataFrame or mapping of columns, rows in any order.
    """
    time_ns = int64_column(table, "time_ns")
    sent, received = int64_column(table, "tx_bytes"), int64_column(table, "rx_bytes")
    return {link: (time_ns[rows], sent[rows], received[rows]) for link, rows in rows_by_device(table, time_ns).items()}


def rows_by_device(table: Any, time_ns: Int64) -> dict[LinkKey, Int64]:
    """Return the rows of each device of a table that has columns `netns` and `device`, by time."""
    netns, device = int64_column(table, "netns").tolist(), text_column(table, "device")
    numbers: dict[LinkKey, int] = {}
    of_row = [numbers.setdefault(LinkKey(*key), len(numbers)) for key in zip(netns, device, strict=True)]
    by_time = np.argsort(time_ns, kind="stable")
    rows = grouped(np.array(of_row, np.int64)[by_time])
    return {link: by_time[device_rows] for link, device_rows in zip(numbers, rows, strict=True)}
