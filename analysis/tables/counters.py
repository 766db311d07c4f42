"""The `counters` table as columns: series of counts and levels, each described in the trace's `meta.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from netprof.analysis.tables.columns import Columns, Int64, read_columns


@dataclass(frozen=True, eq=False)
class CounterSamples(Columns):
    """Values by series and time. A value stands until the next one of its series: those that repeat are left out."""

    series: Int64
    time_ns: Int64
    value: Int64


def read_counters(table: Any) -> CounterSamples:
    """Return the `counters` table (Arrow, DataFrame or mapping of columns, rows in any order)."""
    return read_columns(CounterSamples, table).sorted_by("series", "time_ns")
