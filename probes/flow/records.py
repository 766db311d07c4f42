"""Records about flows that the kernel hands over by a ring, and that may come before the flow's own row.

Samples of what TCP says, TCP's own totals beside what was counted at the same instant, and packets that are dropped.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.probes.kernel.btf import layout
from netprof.probes.kernel.loader import BpfObject, RingBuffer
from netprof.probes.kernel.rtnetlink import device_name
from netprof.probes.kernel.types import enumerators

_COMPARED = 1 << 16


class FlowRecords:
    """Takes records of type `kind`, which has a field `flow_id`, from a ring of a loaded flow object."""

    def __init__(self, loaded: BpfObject, ring: str, kind: np.dtype[Any]) -> None:
        self._ring = RingBuffer(loaded, ring, kind)
        self._early = np.zeros(0, kind)  # of flows that nobody has heard of yet

    def take(self, published: NDArray[np.uint32], used: NDArray[np.uint32]) -> NDArray[Any]:
        """Return the records since the last call of flows that are `published`.

        Those of other flows wait for that, as long as the flow is one of `used`.
        """
        fresh = self._ring.drain()
        if not len(fresh) and not len(self._early):
            return fresh
        records = np.concatenate([self._early, fresh]) if len(self._early) else fresh
        known = _are_among(records["flow_id"], published)
        if known.all():
            self._early = self._early[:0]
            return records
        self._early = records[~known & _are_among(records["flow_id"], used)]
        return records[known]

    def close(self) -> None:
        """Let go of the ring."""
        self._ring.close()


def _are_among(ids: NDArray[np.uint32], some: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Say which ids are among some: of the few flows of most jobs each is compared, as np.isin takes 50 µs at least."""
    if len(ids) * len(some) > _COMPARED:
        return np.isin(ids, some)
    return np.asarray((ids[:, None] == some).any(axis=1))


DROP_RECORD = layout("flow", "drop_record")
"""`struct drop_record` of flow.h."""

_PREFIX = "SKB_DROP_REASON_"


class Drops(FlowRecords):
    """Takes the drops of a loaded flow object."""

    def __init__(self, loaded: BpfObject) -> None:
        super().__init__(loaded, "drops", DROP_RECORD)

    def drain(self, published: NDArray[np.uint32], used: NDArray[np.uint32]) -> dict[str, Any]:
        """Return the rows since the last call; as `take`."""
        records = self.take(published, used)
        numbers = records["reason"].tolist()
        return {
            **{name: records[name] for name in ("time_ns", "flow_id", "bytes", "direction")},
            "reason": [self._reasons.get(number, str(number)) for number in numbers],
            "device": [device_name(name) for name in records["device"].tolist()],
        }

    @cached_property
    def _reasons(self) -> dict[int, str]:
        """The kernel's own names of its drop reasons; each version adds some."""
        return {number: name.removeprefix(_PREFIX) for number, name in enumerators("skb_drop_reason").items()}


_TCP_TOTALS = layout("flow", "tcp_totals")
"""`struct tcp_totals` of flow_totals.h."""

TOTALS_RECORD = layout("flow", "totals_record")
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
    tcp, (sent, received) = records["tcp"], records["counted"].T
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


TCP_RECORD = layout("flow", "tcp_record")
"""`struct tcp_record` of flow.h."""

SAMPLE_NS = 20_000_000
"""The least time from one sample of a flow to the next: TCP's own clocks count in jiffies, of up to 10 ms."""

_CLOCK_MONOTONIC_COARSE = 6  # moves once a jiffy


class TcpSamples(FlowRecords):
    """Takes the samples of a loaded flow object: rows of table `tcp`.

    A flow is sampled when it is first seen, with a packet that arrives `SAMPLE_NS` after its last sample, when it ends,
    and whenever the job's sockets are looked through.
    """

    def __init__(self, loaded: BpfObject) -> None:
        super().__init__(loaded, "tcp_samples", TCP_RECORD)

    def drain(self, published: NDArray[np.uint32], used: NDArray[np.uint32]) -> dict[str, NDArray[Any]]:
        """Return the rows since the last call; as `take`."""
        records = self.take(published, used)
        return {name: records[name] for name in TCP_RECORD.names or ()}


def tick_us() -> int:
    """Return the length of a jiffy in microseconds, as TCP takes it when it gives its clocks (USEC_PER_SEC / HZ)."""
    return round(time.clock_getres(_CLOCK_MONOTONIC_COARSE) * 1e9) // 1000
