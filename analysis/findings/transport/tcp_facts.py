"""What TCP says of the flows while a transport does not fill its link: round trips, and the pace that it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.account.wait_pieces import contains
from netprof.analysis.tables.columns import Bool, Int64, int64_column
from netprof.analysis.tables.flow_table import Flows
from netprof.analysis.tables.intervals import Intervals

_QUEUED = 4.0
_QUEUED_NS = 2_000_000
"""A round trip that is so many times the least one, and longer by so much, is spent in a queue."""
_MOSTLY = 0.5
_ROOM = 0.75
"""Share of the congestion window that is on its way, below which the window holds nothing back."""


@dataclass(frozen=True)
class TcpFacts:
    """Round trips, the usual and the least one (0: unknown), and the rate that senders are paced at (0: they are not).

    `by_program` says that the program asked for that rate, `by_device` that the fq of a device holds each flow to it.
    """

    trip_ns: float = 0.0
    least_trip_ns: float = 0.0
    paced_bps: float = 0.0
    by_program: bool = False
    by_device: str = ""

    @property
    def is_queued(self) -> bool:
        """Whether bytes spend most of a round trip in a queue."""
        return 0 < _QUEUED * self.least_trip_ns <= self.trip_ns and self.trip_ns - self.least_trip_ns >= _QUEUED_NS


UNKNOWN_FACTS = TcpFacts()
"""What is known without samples of them."""


def tcp_facts(table: Any, flows: Flows, main: Bool, times: Intervals) -> TcpFacts:
    """Return the facts of the `main` flows in some time, of the `tcp` table (Arrow, DataFrame or mapping)."""
    row = flows.positions(int64_column(table, "flow_id"))
    known = (row >= 0) & main[np.maximum(row, 0)] if len(main) else np.zeros(len(row), bool)
    inside = known & contains(times, int64_column(table, "time_ns"))
    rows = np.flatnonzero(inside if inside.any() else known)
    trips = _above_0(int64_column(table, "rtt_us")[rows])
    least = _above_0(least_trips_us(table)[rows])
    paced_bps, by_program = _pacing(table, rows)
    return TcpFacts(
        float(np.median(trips)) * 1e3 if len(trips) else 0.0,
        float(np.median(least)) * 1e3 if len(least) else 0.0,
        paced_bps,
        by_program,
    )


def least_trips_us(table: Any) -> Int64:
    """Return the least round trip that TCP remembers in each row of the `tcp` table; what it was where it says none."""
    least, trip = int64_column(table, "min_rtt_us"), int64_column(table, "rtt_us")
    return np.where(least > 0, least, trip)


def _pacing(table: Any, rows: Int64) -> tuple[float, bool]:
    """Return at what rate flows are paced that have more to send and room for it, and whether the program wants it."""
    names = ("notsent_bytes", "unacked_bytes", "cwnd", "mss_bytes", "pacing_bytes_per_s", "pacing_limit_bytes_per_s")
    unsent, under_way, window, segment, pace, limit = (int64_column(table, name)[rows] for name in names)
    waits = (unsent > 0) & (pace > 0)
    if not len(rows) or not waits.any():
        return 0.0, False
    limited = waits & (limit > 0) & (pace >= limit)
    if limited.sum() >= _MOSTLY * waits.sum():
        return float(np.median(limit[limited])) * 8, True
    free = waits & (under_way >= 0) & (under_way + segment < _ROOM * window * segment)
    return (float(np.median(pace[free])) * 8, False) if free.sum() >= _MOSTLY * waits.sum() else (0.0, False)


def _above_0(values: Int64) -> Int64:
    return np.asarray(values[values > 0])
