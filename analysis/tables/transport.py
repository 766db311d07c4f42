"""The `tcp` table: what TCP itself says of each flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.tables.columns import Bool, Columns, Int64, grouped, int64_column
from netprof.analysis.tables.flow_table import Flows
from netprof.analysis.tables.intervals import Intervals

_LOSS = 4  # enum tcp_ca_state
_HEARD_NS = 60_000_000
"""So long and a round trip later a sender has heard that what it sent again was there already."""


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


@dataclass(frozen=True, eq=False)
class Resends(Columns):
    """How often each flow had sent something again that was needed, by flow and time. `row` is the flow's row.

    A busy receiver is slow to acknowledge, and TCP sends the last packet again to see; that the receiver had it already
    is heard of a round trip later. Those are not counted. `timed_out` says that nothing was acknowledged for so long
    that TCP began anew, and that some still is not: what its own device does not take is not counted as sent again. By
    `heard_ns` later a sender has heard what was there already.
    """

    row: Int64
    time_ns: Int64
    count: Int64
    timed_out: Bool
    heard_ns: Int64

    def times(self) -> dict[int, Intervals]:
        """Return between which samples the count rose, or of which the later one has timed out, by flow."""
        before = np.flatnonzero(self.row[1:] == self.row[:-1])
        heard_ns = self.time_ns[before + 1] + self.heard_ns[before + 1]
        rose = before[(self._heard(self.row[before], heard_ns) > self.count[before]) | self.timed_out[before + 1]]
        return {
            int(self.row[rows[0]]): _apart(self.time_ns[rows], self.time_ns[rows + 1])
            for rows in (rose[places] for places in grouped(self.row[rose]))
        }

    def needless(self, row: Int64, at_ns: Int64) -> Bool:
        """Return whether nothing that flows sent again at some instants was needed; False where TCP does not say."""
        if len(self) == 0:
            return np.zeros(len(row), bool)
        known = self._index(row, at_ns - 1)
        before, after = np.where(known >= 0, self.count[known], -1), self._heard(row, at_ns + self.heard_ns[known])
        return np.asarray((before >= 0) & (after >= 0) & (after <= before))

    def _heard(self, row: Int64, at_ns: Int64) -> Int64:
        """Return the count of flows by some instants, or that of the next sample where it is lower.

        A sample is taken before TCP handles its packet: what an acknowledgement says is in the one after it.
        """
        index = self._index(row, at_ns)
        later = np.minimum(index + 1, len(self.row) - 1)
        later = np.where(self.row[later] == row, later, index)
        return np.where(index >= 0, np.minimum(self.count[index], self.count[later]), -1)

    def _index(self, row: Int64, at_ns: Int64) -> Int64:
        """Return the last sample of flows by some instants; -1 before a flow's first one."""
        index = _search(np.stack((self.row, self.time_ns)), np.stack((row, at_ns))) - 1
        return np.where((index >= 0) & (self.row[np.maximum(index, 0)] == row), index, -1)


def read_resends(table: Any, flows: Flows) -> Resends:
    """Return the counts of the `tcp` table; an older one does not say what was needed, so all was."""
    flow, time_ns, sent, had = (int64_column(table, name) for name in ("flow_id", "time_ns", "retransmits", "dsacked"))
    state, unacked = (int64_column(table, name) for name in ("ca_state", "unacked_bytes"))
    timed_out = (state == _LOSS) & (unacked > 0)
    heard_ns = _HEARD_NS + 1000 * np.maximum(int64_column(table, "rtt_us"), 0)
    resends = Resends(flows.positions(flow), time_ns, sent - np.maximum(had, 0), timed_out, heard_ns)
    return resends.where(resends.row >= 0).sorted_by("row", "time_ns")


def _apart(begin_ns: Int64, end_ns: Int64) -> Intervals:
    """Return intervals that may touch, without joining them."""
    longer = end_ns > begin_ns
    return Intervals(begin_ns[longer], end_ns[longer])


def _search(ordered: Int64, wanted: Int64) -> Int64:
    """Return how many columns of `ordered`, shape (2, n), come before or at each of `wanted`, shape (2, m)."""
    both = np.concatenate((ordered, wanted), axis=1)
    order = np.lexsort((np.arange(both.shape[1]), both[1], both[0]))
    is_ordered = order < ordered.shape[1]
    count = np.cumsum(is_ordered)
    counts = np.zeros(wanted.shape[1], np.int64)
    counts[order[~is_ordered] - ordered.shape[1]] = count[~is_ordered]
    return counts
