"""Flows that never leave their host: the loopback device loses nothing, so long as nothing counts a drop there."""

from __future__ import annotations

from typing import Any

import numpy as np

from netprof.analysis.tables.columns import UNKNOWN, Bool, Int64, int64_column, text_column
from netprof.analysis.tables.flow_lanes import FlowLanes, passed
from netprof.analysis.tables.flow_table import LOOPBACK, Flows
from netprof.analysis.tables.nic_counters import rows_by_device

HARMLESS = frozenset(
    {"NOT_SPECIFIED", "TCP_OLD_DATA", "TCP_OLD_SEQUENCE", "TCP_OLD_ACK", "TCP_TOO_OLD_ACK", "TCP_CLOSE", "TCP_RESET"}
    | {"TCP_OFOMERGE", "TCP_FLAGS", "TCP_ABORT_ON_DATA", "TCP_ABORT_ON_CLOSE", "TCP_ABORT_ON_LINGER", "SOCKET_CLOSE"}
)
"""Reasons for which TCP lets packets go that bring it nothing new."""
_COUNTED = ("qdisc_drops", "tx_drops", "rx_drops")


def lossless(flows: Flows, lanes: FlowLanes, peers: Int64, drops: Any, nic: Any) -> Bool:
    """Return which flows (by row) use the loopback device alone, without a drop in either table.

    What they send again was not lost: a process was slow to take or to acknowledge it. `drops`, `nic` are the tables.
    """
    harmless = np.zeros(len(flows), bool)
    candidates = np.flatnonzero(flows.device == LOOPBACK)
    if len(candidates) == 0:
        return harmless
    row, reasons = flows.positions(int64_column(drops, "flow_id")), text_column(drops, "reason")
    dropped = set(row[[reason not in HARMLESS for reason in reasons]].tolist()) if len(row) else set()
    time_ns = int64_column(nic, "time_ns")
    counts = [int64_column(nic, name) for name in _COUNTED]
    counted = {
        link for link, rows in rows_by_device(nic, time_ns).items() if any(np.ptp(each[rows]) > 0 for each in counts)
    }
    for flow in candidates.tolist():
        links = {passage.link for _, _, passage in passed(lanes, peers, flow)}
        ends = {flow, int(peers[flow])} - {UNKNOWN}
        harmless[flow] = all(link.device == LOOPBACK for link in links) and not (links & counted or ends & dropped)
    return harmless
