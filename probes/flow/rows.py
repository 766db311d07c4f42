"""From a slot of the kernel's table to a row of table `flows`."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netprof.probes.kernel.rtnetlink import device_name

_AF_INET6 = 10


class FlowRow(NamedTuple):
    """A row of table `flows`."""

    flow_id: int
    family: int
    local_addr: str
    local_port: int
    remote_addr: str
    remote_port: int
    protocol: int
    netns: int
    device: str
    pid: int
    rank: int
    adopted_ns: int
    earlier_sent_bytes: int
    earlier_resent_bytes: int
    earlier_received_bytes: int
    earlier_sent_packets: int
    earlier_received_packets: int
    local_queue_pair: int
    remote_queue_pair: int
    congestion_control: str


def flow_row(flow: Any, rank_of: Callable[[int], int]) -> FlowRow:
    """Return the row of the flow in a slot (FLOW)."""
    local, remote = (_address(flow[name], int(flow["family"])) for name in ("local_addr", "remote_addr"))
    return FlowRow(
        flow_id=int(flow["id"]),
        family=local.version,
        local_addr=str(local),
        local_port=int(flow["local_port"]),
        remote_addr=str(remote),
        remote_port=int(flow["remote_port"]),
        protocol=6,
        netns=int(flow["netns"]),
        device=device_name(bytes(flow["device"]).split(b"\0")[0]),
        pid=int(flow["pid"]),
        rank=rank_of(int(flow["pid"])),
        adopted_ns=int(flow["adoption"]["time_ns"]),
        earlier_sent_bytes=int(flow["adoption"]["sent_bytes"]),
        earlier_resent_bytes=int(flow["adoption"]["resent_bytes"]),
        earlier_received_bytes=int(flow["adoption"]["received_bytes"]),
        earlier_sent_packets=int(flow["adoption"]["sent_packets"]),
        earlier_received_packets=int(flow["adoption"]["received_packets"]),
        local_queue_pair=0,
        remote_queue_pair=0,
        congestion_control=bytes(flow["congestion_control"]).split(b"\0")[0].decode("ascii", "replace"),
    )


def _address(data: NDArray[np.uint8], family: int) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Read an address; IPv4 carried by an IPv6 socket is IPv4."""
    if family != _AF_INET6:
        return ipaddress.IPv4Address(data[:4].tobytes())
    address = ipaddress.IPv6Address(data.tobytes())
    return address.ipv4_mapped or address
