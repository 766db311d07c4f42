"""What of a host's network could be set otherwise, and the line that does it: for reports and the doctor."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from netprof.units import percent, rate

FASTER = 1.5
"""A device is worth a change if it is so many times as fast as the one that is used."""
IDLE = 0.5
"""And if no more of it than this share is used, by whomever."""

_HARDLY = 1e-3
_FAST_BPS = 1e9

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
    networks = [each.network for each in _interfaces(nic.addresses)]
    for peer in _interfaces((remote, *peer_addresses)):
        if any(peer.ip in network for network in networks):
            return str(peer.ip)
    return ""


def _interfaces(texts: Iterable[str]) -> Iterator[ipaddress.IPv4Interface | ipaddress.IPv6Interface]:
    """Yield addresses with their networks, but for what is none: a trace may hold any text."""
    for text in texts:
        with suppress(ValueError):
            yield ipaddress.ip_interface(text)


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


def change(nic: Nic, device: str, remote: str, route: str, frameworks: Collection[str]) -> tuple[str, str]:
    """Return what makes a job use a device instead of another one, and why it does not yet, if that is known.

    `route`, written as `ip route` does, is the one to the peer. Where both devices are in the peer's network it is that
    which decides, whatever address the job binds to.
    """
    words = route.split()
    if "dev" not in words or words[words.index("dev") + 1] != device or not reached(nic, remote, ()):
        lines = [line.format(shlex.quote(nic.name)) for name, line in _LINES.items() if name in frameworks]
        either = [_LINES[name].format(shlex.quote(nic.name)) for name in ("nccl", "gloo")]
        return " and ".join(lines) or " or ".join(either), ""
    words[words.index("dev") + 1] = nic.name
    return f"ip route change {shlex.join(words)}", f"the route {route} sends by {device}"


def reaches_too(nic: Nic, whose: str, address: str, device: str, device_bps: float) -> str:
    """Say that a device could do what another one does."""
    used = "" if nic.used is None else f", {percent(nic.used)} of it used" if nic.used >= _HARDLY else ", idle"
    times = (nic.rate_bps or 0.0) / device_bps
    faster_one = f"{nic.name}{whose} ({rate(nic.rate_bps)}{used})"
    return f"{faster_one} reaches {address} too, {times:.1f} times as fast as {device} ({rate(device_bps)})"


def smaller_mtu(device: str, mtu_bytes: int, below: str, least_bytes: int) -> tuple[str, str]:
    """Say that a device on the path takes smaller packets than that of the flows, and what helps."""
    problem = f"{below} below {device} has an MTU of {least_bytes}, {device} one of {mtu_bytes}"
    return problem, f"ip link set dev {shlex.quote(device)} mtu {least_bytes}, or raise the other"


def offloads_off(device: str, off: Collection[str], rate_bps: float | None) -> tuple[str, str] | None:
    """Say which offloads that matter at a rate are off, and what switches them on; None where it does not matter."""
    if not {"tso", "gro"} & set(off) or (rate_bps is not None and rate_bps < _FAST_BPS):
        return None
    problem = f"{device} has offloads switched off ({', '.join(off)}): each packet costs the CPU by itself"
    return problem, f"ethtool -K {shlex.quote(device)} {' '.join(f'{each} on' for each in off)}"
