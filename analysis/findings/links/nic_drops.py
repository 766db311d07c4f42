"""When the interface dropped packets: between which of its counters' samples, and how many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.tables.columns import Columns, Int64, int64_column, text_column
from netprof.analysis.tables.flow_table import LinkKey

_DROPS = ("tx_drops", "rx_drops")


@dataclass(frozen=True, eq=False)
class Drops(Columns):
    """Packets that a device dropped either way between a sample of its counters and the next one, where any was."""

    begin_ns: Int64
    end_ns: Int64
    packets: Int64


def drops_by_device(table: Any) -> dict[LinkKey, Drops]:
    """Return the drops of every device that had any, by time.

    `table` is the `nic` table: Arrow, DataFrame or mapping of columns, rows in any order. A counter reset between two
    samples counts from zero again.
    """
    netns, time_ns = int64_column(table, "netns"), int64_column(table, "time_ns")
    device = np.array(text_column(table, "device"), dtype=object)
    counted = [int64_column(table, name) for name in _DROPS]
    found = {}
    for key in dict.fromkeys(zip(netns.tolist(), device.tolist(), strict=True)):
        rows = np.flatnonzero((netns == key[0]) & (device == key[1]))
        rows = rows[np.argsort(time_ns[rows], kind="stable")]
        packets = sum((_increases(values[rows]) for values in counted), np.zeros(max(0, len(rows) - 1), np.int64))
        drops = Drops(time_ns[rows[:-1]], time_ns[rows[1:]], packets).where(packets > 0)
        if len(drops):
            found[LinkKey(*key)] = drops
    return found


def _increases(samples: Int64) -> Int64:
    steps = np.diff(samples)
    return np.asarray(np.where(steps >= 0, steps, samples[1:]))
