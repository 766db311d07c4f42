"""Which of a host's devices reaches a peer faster, and the line that makes a job use it: for reports and the doctor."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass

FASTER = 1.5
"""A device is worth a change if it is so many times as fast as the one that is used."""
IDLE = 0.5
"""And if no more of it than this share is used, by whomever."""

_LINES = {
    "nccl": "NCCL_SOCKET_IFNAME={}",
    "gloo": "GLOO_SOCKET_IFNAME={}",
    "mpi": "mpirun --mca btl_tcp_if_include {}",
    "horovod": "horovodrun --network-interfaces {}",
}


@dataclass(frozen=True)
class Nic:
    """A network device: its addresses with their prefixes, its line rate and what share of it is used, if known."""

    name: str
    addresses: tuple[str, ...]
    rate_bps: float | None
    used: float | None = None


def reached(nic: Nic, remote: str, peer_addresses: Iterable[str]) -> str:
    """Return the address of a peer that is in a network of a device, "" if there is none.

    `remote` is the address at which the peer is reached today, `peer_addresses` are all that it is known to have.
    """
    networks = [ipaddress.ip_interface(each).network for each in nic.addresses]
    for address in (remote, *(each.partition("/")[0] for each in peer_addresses)):
        if any(ipaddress.ip_address(address) in network for network in networks):
            return address
    return ""


def faster(used_bps: float, others: Iterable[Nic], remote: str, peer_addresses: Collection[str]) -> Nic | None:
    """Return the fastest device that idles, reaches the peer too and is worth a change; None where there is none."""
    worth = [
        nic
        for nic in others
        if nic.rate_bps is not None
        and nic.rate_bps >= FASTER * used_bps
        and (nic.used is None or nic.used <= IDLE)
        and reached(nic, remote, peer_addresses)
    ]
    return max(worth, key=lambda nic: nic.rate_bps or 0.0, default=None)


def line_to_use(device: str, frameworks: Collection[str]) -> str:
    """Return what makes a job's frameworks use a device."""
    lines = [line.format(device) for name, line in _LINES.items() if name in frameworks]
    return " and ".join(lines or [_LINES["nccl"].format(device)])


def line_of_route(route: str, device: str) -> str:
    """Return the command that lets a route, written as `ip route` does, go by another device."""
    words = route.split()
    if "dev" in words:
        words[words.index("dev") + 1] = device
    return f"ip route change {' '.join(words)}"
