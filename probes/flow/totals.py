"""TCP's own totals of the job's flows, beside what was counted of them at the same instant."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.probes.flow.records import FlowRecords
from netprof.probes.flow.slots import COUNTED
from netprof.probes.kernel.loader import BpfObject

_TCP_TOTALS = np.dtype(
    [
        ("sent_bytes", "u8"),
        ("resent_bytes", "u8"),
        ("received_bytes", "u8"),
        ("sent_segments", "u4"),
        ("received_segments", "u4"),
    ]
)
"""`struct tcp_totals` of flow_totals.h."""

TOTALS_RECORD = np.dtype(
    [
        ("time_ns", "u8"),
        ("flow_id", "u4"),
        ("state", "u4"),
        ("tcp", _TCP_TOTALS),
        ("sent", COUNTED),
        ("received", COUNTED),
        ("queued_bytes", "u4"),
        ("before_queued_bytes", "u4"),
    ]
)
"""`struct totals_record` of flow_totals.h."""

_CLOSED, _SETTLED = 1, 2


class FlowTotals(FlowRecords):
    """Takes the totals of a loaded flow object: rows of table `totals`.

    A flow is read whenever the job's sockets are looked through, unless it did nothing since, and when it ends.
    """

    def __init__(self, loaded: BpfObject) -> None:
        super().__init__(loaded, "totals", TOTALS_RECORD)

    def drain(self, published: NDArray[np.uint32], used: NDArray[np.uint32]) -> dict[str, NDArray[Any]]:
        """Return the rows since the last call; as `take`."""
        return columns(self.take(published, used))


def columns(records: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return records (TOTALS_RECORD) as the columns of table `totals`."""
    tcp, sent, received = (records[name] for name in ("tcp", "sent", "received"))
    return {
        "flow_id": records["flow_id"],
        "time_ns": records["time_ns"],
        "closed": (records["state"] & _CLOSED) > 0,
        "settled": (records["state"] & _SETTLED) > 0,
        **{name: tcp[name] for name in _TCP_TOTALS.names or ()},
        "counted_sent_bytes": sent["payload_bytes"] + sent["retransmitted_bytes"],
        "counted_resent_bytes": sent["retransmitted_bytes"],
        "counted_received_bytes": received["payload_bytes"],
        "counted_sent_packets": sent["packets"],
        "counted_received_packets": received["packets"],
        "queued_bytes": records["queued_bytes"],
        "earlier_queued_bytes": records["before_queued_bytes"],
    }
