"""What a namespace's devices, routes and TCP are set to, as far as it may slow a job down: rows of table `settings`."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from netprof.probes.kernel.rtnetlink import IFF_LOOPBACK, IFF_UP, Link, Route
from netprof.probes.nic import ethtool
from netprof.probes.nic.namespaces import Namespace
from netprof.probes.nic.shaping import flow_rate_bps

_SYSCTLS = (
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_mtu_probing",
    "net.core.netdev_max_backlog",
)
_MOST_BESIDE = 32
_MAIN_TABLES = (0, 253, 254, 255)  # unspecified, default, main, local: no rule chose them

Fact = tuple[str, str, str]
"""A device ("" for the namespace), what is said of it, and that."""


def usable_devices(namespace: Namespace) -> list[str]:
    """Return the devices of a namespace that a job could use: those that are up and that others reach by an address.

    Not those with no more than a link-local one, as the host's ends of all its containers' veths. Raises OSError.
    """
    with_address = {
        address.index for address in namespace.addresses if not ipaddress.ip_address(address.address).is_link_local
    }
    names = [
        link.name
        for link in namespace.links.values()
        if link.index in with_address and link.flags & IFF_UP and not link.flags & IFF_LOOPBACK
    ]
    return names[:_MOST_BESIDE]


def addresses_of(namespace: Namespace, device: str) -> list[str]:
    """Return the addresses of a device by which others can reach it, with their prefixes. Raises OSError."""
    link = namespace.named(device)
    if link is None:
        return []
    of_device = (address for address in namespace.addresses if address.index == link.index)
    interfaces = (ipaddress.ip_interface((address.address, address.prefix_bits)) for address in of_device)
    return [str(interface) for interface in interfaces if not interface.ip.is_link_local]


def offloads_of(namespace: Namespace, link: Link) -> list[str]:
    """Return which offloads of a device are off that could be on: not those of tunnels and the like. Raises OSError."""
    if link.kind not in ("", "veth"):
        return []
    off = namespace.handle.run(partial(ethtool.offloads_off, link.raw_name))
    return [name for name in off if name != "gro" or link.kind != "veth"]  # a veth passes on what is merged already


def facts_of(namespace: Namespace, devices: list[str]) -> Iterator[Fact]:
    """Yield what is set for some devices of a namespace and for all of it. Raises OSError."""
    for device in devices:
        link = namespace.named(device)
        if link is not None:
            yield device, "addresses", " ".join(addresses_of(namespace, device))
            yield device, "kind", link.kind
            yield device, "off", " ".join(offloads_of(namespace, link))
            rate_bps = flow_rate_bps(namespace.route.qdiscs(link.index))
            yield device, "flow_rate_bps", f"{rate_bps:.0f}" if rate_bps else ""
    yield from namespace.handle.run(lambda: list(_sysctls()))


def route_of(namespace: Namespace, device: str, remote: str) -> Iterator[Fact]:
    """Yield the route, as one writes it, by which packets to an address leave."""
    with suppress(OSError, ValueError):
        route = namespace.route.route(ipaddress.ip_address(remote).packed, matched=True)
        yield device, f"route to {remote}", _text(namespace, route, remote)


def _text(namespace: Namespace, route: Route, remote: str) -> str:
    family = socket.AF_INET6 if ":" in remote else socket.AF_INET
    prefix = f"{socket.inet_ntop(family, route.prefix)}/{route.prefix_bits}" if route.prefix else "default"
    link = namespace.links.get(route.index)
    via = f" via {socket.inet_ntop(family, route.gateway)}" if len(route.gateway) in (4, 16) else ""
    metric = f" metric {route.metric}" if route.metric else ""
    table = f" table {route.table}" if route.table not in _MAIN_TABLES else ""
    return f"{prefix}{via} dev {link.name if link else '?'}{metric}{table}"


def _sysctls() -> Iterator[Fact]:
    for name in _SYSCTLS:
        with suppress(OSError):
            text = Path("/proc/sys", *name.split(".")).read_text(errors="replace")
            yield "", name, " ".join(text.split())
