"""What TCP says of the job's flows: samples that the kernel takes as packets arrive, handed over by a ring."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.probes.flow.records import FlowRecords
from netprof.probes.kernel.loader import BpfObject

TCP_RECORD = np.dtype(
    [
        ("time_ns", "u8"),
        ("flow_id", "u4"),
        ("retransmits", "u4"),
        ("rtt_us", "u4"),
        ("cwnd", "u4"),
        ("mss_bytes", "u4"),
        ("notsent_bytes", "u4"),
        ("busy_us", "u8"),
        ("rwnd_limited_us", "u8"),
        ("sndbuf_limited_us", "u8"),
        ("ca_state", "u4"),
        ("dsacked", "u4"),
        ("send_buffer_bytes", "u4"),
        ("send_queued_bytes", "u4"),
        ("pacing_bytes_per_s", "u8"),
        ("pacing_limit_bytes_per_s", "u8"),
        ("min_rtt_us", "u4"),
        ("unacked_bytes", "u4"),
    ]
)
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
