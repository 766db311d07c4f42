"""Records about flows that the kernel hands over by a ring, and that may come before the flow's own row.

Samples of what TCP says, TCP's own totals beside what was counted at the same instant, and packets that are dropped.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from netprof.closing import Closing
from netprof.probes.kernel.btf import layout
from netprof.probes.kernel.loader import BpfObject, RingBuffer
from netprof.probes.kernel.rtnetlink import device_name
from netprof.probes.kernel.types import enumerators

_COMPARED = 1 << 16


class FlowRecords(Closing, ABC):
    """Takes records of type `kind`, which has a field `flow_id`, from a ring of a loaded flow object."""

    ring: ClassVar[str]
    kind: ClassVar[np.dtype[Any]]

    def __init__(self, loaded: BpfObject) -> None:
        self._ring = RingBuffer(loaded, self.ring, self.kind)
        self._early = np.zeros(0, self.kind)  # of flows that nobody has heard of yet

    def drain(self, published: NDArray[np.uint32], used: NDArray[np.uint32]) -> dict[str, Any]:
        """Return the rows since the last call of flows that are `published`.

        Those of other flows wait for that, as long as the flow is one of `used`.
        """
        return self.columns(self._take(published, used))

    @abstractmethod
    def columns(self, records: NDArray[Any]) -> dict[str, Any]:
        """Return records as the columns of their table."""

    def close(self) -> None:
        """Let go of the ring."""
        self._ring.close()

    def _take(self, published: NDArray[np.uint32], used: NDArray[np.uint32]) -> NDArray[Any]:
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


def _are_among(ids: NDArray[np.uint32], some: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Say which ids are among some: of the few flows of most jobs each is compared, as np.isin takes 50 µs at least."""
    if len(ids) * len(some) > _COMPARED:
        return np.isin(ids, some)
    return np.asarray((ids[:, None] == some).any(axis=1))


_PREFIX = "SKB_DROP_REASON_"


class DropRecords(FlowRecords):
    """Takes the drops of a loaded flow object: rows of table `drops`."""

    ring, kind = "drops", layout("flow", "drop_record")

    def columns(self, records: NDArray[Any]) -> dict[str, Any]:
        """Return them with the kernel's names of reasons."""
        return {
            **{name: records[name] for name in ("time_ns", "flow_id", "bytes", "direction")},
            "reason": [self._reasons.get(number, str(number)) for number in records["reason"].tolist()],
            "device": [device_name(name) for name in records["device"].tolist()],
        }

    @cached_property
    def _reasons(self) -> dict[int, str]:
        """The kernel's own names of its drop reasons; each version adds some."""
        return {number: name.removeprefix(_PREFIX) for number, name in enumerators("skb_drop_reason").items()}


_CLOSED, _SETTLED = 1, 2


class TotalsRecords(FlowRecords):
    """Takes the totals of a loaded flow object: rows of table `totals`.

    A flow is read whenever the job's sockets are looked through, unless it did nothing since, and when it ends.
    """

    ring, kind = "totals", layout("flow", "totals_record")

    def columns(self, records: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return TCP's own totals beside what was counted."""
        tcp, (sent, received) = records["tcp"], records["counted"].T
        return {
            "flow_id": records["flow_id"],
            "time_ns": records["time_ns"],
            "closed": (records["state"] & _CLOSED) > 0,
            "settled": (records["state"] & _SETTLED) > 0,
            **{name: tcp[name] for name in tcp.dtype.names or ()},
            "counted_sent_bytes": sent["payload_bytes"] + sent["retransmitted_bytes"],
            "counted_resent_bytes": sent["retransmitted_bytes"],
            "counted_received_bytes": received["payload_bytes"],
            "counted_sent_packets": sent["packets"],
            "counted_received_packets": received["packets"],
            "queued_bytes": records["queued_bytes"],
            "earlier_queued_bytes": records["before_queued_bytes"],
        }


SAMPLE_NS = 20_000_000
"""The least time from one sample of a flow to the next: TCP's own clocks count in jiffies, of up to 10 ms."""

_CLOCK_MONOTONIC_COARSE = 6  # moves once a jiffy


class TcpRecords(FlowRecords):
    """Takes the samples of a loaded flow object: rows of table `tcp`.

    A flow is sampled when it is first seen, with a packet that arrives `SAMPLE_NS` after its last sample, when it ends,
    and whenever the job's sockets are looked through.
    """

    ring, kind = "tcp_samples", layout("flow", "tcp_record")

    def columns(self, records: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return each field by its name, which is the column's too."""
        return {name: records[name] for name in self.kind.names or ()}


def tick_us() -> int:
    """Return the length of a jiffy in microseconds, as TCP takes it when it gives its clocks (USEC_PER_SEC / HZ)."""
    return round(time.clock_getres(_CLOCK_MONOTONIC_COARSE) * 1e9) // 1000
