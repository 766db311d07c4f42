"""From a slot of the kernel's table to a row of table `flows`."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.probes.kernel.rtnetlink import device_name
from netprof.probes.probe import Row, row_of
from netprof.schema import TCP

_AF_INET6 = 10


def flow_row(flow: Any, rank_of: Callable[[int], int]) -> Row:
    """Return the row of the flow in a slot (FLOW)."""
    local, remote = (_address(flow[name], int(flow["family"])) for name in ("local_addr", "remote_addr"))
    past = flow["adoption"]
    return row_of(
        "flows",
        flow_id=int(flow["id"]),
        family=local.version,
        local_addr=str(local),
        local_port=int(flow["local_port"]),
        remote_addr=str(remote),
        remote_port=int(flow["remote_port"]),
        protocol=TCP,
        netns=int(flow["netns"]),
        device=device_name(bytes(flow["device"]).split(b"\0")[0]),
        pid=int(flow["pid"]),
        rank=rank_of(int(flow["pid"])),
        adopted_ns=int(past["time_ns"]),
        **{f"earlier_{name}": int(past[name]) for name in past.dtype.names[1:]},
        congestion_control=bytes(flow["congestion_control"]).split(b"\0")[0].decode("ascii", "replace"),
    )


def _address(data: NDArray[np.uint8], family: int) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Read an address; IPv4 carried by an IPv6 socket is IPv4."""
    if family != _AF_INET6:
        return ipaddress.IPv4Address(data[:4].tobytes())
    address = ipaddress.IPv6Address(data.tobytes())
    return address.ipv4_mapped or address
