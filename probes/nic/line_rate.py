"""A device's line rate, and where that number came from.

In order: `--line-rate`; else the lower of what the driver reports (ethtool) and what a token bucket on the device
lets through. The speed a virtual device's driver reports is a constant in its source and limits nothing: it does not
count. An unknown line rate is None, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from netprof.model import LineRate
from netprof.probes.kernel.rtnetlink import EGRESS, IFF_LOOPBACK, IFF_LOWER_UP, IFF_UP, INGRESS, Link, RouteSocket
from netprof.probes.nic import ethtool
from netprof.probes.nic.path_walk import STACKED
from netprof.probes.nic.shaping import shaping
from netprof.schema import LinkState

_MAX_STACK = 8
_UNKNOWN = LineRate(None, "unknown")


@dataclass(frozen=True)
class Condition:
    """What a device is like at a moment; `kind` is "veth", "bond", or the driver's name."""

    name: str
    state: LinkState
    line_rate: LineRate
    qdisc: str = ""
    mtu_bytes: int = 0
    kind: str = ""
    receive_rate: LineRate = _UNKNOWN  # where what limits receiving is known by itself


def gone(name: str) -> Condition:
    """Return the condition of a device that is not there."""
    return Condition(name, LinkState.GONE, LineRate(None, "unknown: there is no such device any more"))


def conditions(devices: Mapping[str, tuple[int | None, str]]) -> dict[str, tuple[int, Condition] | None]:
    """Look at devices of the calling thread's namespace, given by number, and by name where that one is not there.

    Returns each one's number and condition, None where it is not there. Raises OSError.
    """
    with RouteSocket() as route:
        links = {link.index: link for link in route.links()}
        named = {link.name: link for link in links.values()}
        present = {key: links.get(index or 0) or named.get(name) for key, (index, name) in devices.items()}
        return {key: (link.index, _condition(link, links, route)) if link else None for key, link in present.items()}


def rate_text(bps: float) -> str:
    """Write a rate as people do: `25 Gbit/s`, `2.5 Gbit/s`, `100 Mbit/s`."""
    for unit, size in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bps >= size:
            return f"{bps / size:.4g} {unit}"
    return f"{bps:.4g} bit/s"


def _condition(link: Link, links: dict[int, Link], route: RouteSocket) -> Condition:
    runs = link.flags & IFF_UP and link.flags & IFF_LOWER_UP
    qdiscs = [qdisc.kind for qdisc in route.qdiscs(link.index)]
    hooked = bool({"ingress", "clsact"} & set(qdiscs))
    return Condition(
        name=link.name,
        state=LinkState.UP if runs else LinkState.DOWN,
        line_rate=_policed(_rate(link, links, route), link, route, EGRESS if hooked else 0),
        qdisc=", ".join(dict.fromkeys(qdiscs)),
        mtu_bytes=link.mtu_bytes,
        kind=link.kind or ("loopback" if link.flags & IFF_LOOPBACK else ethtool.driver(link.raw_name)),
        receive_rate=_policed(_hardware(link, links, route, 0), link, route, INGRESS if hooked else 0),
    )


def _policed(rate: LineRate, link: Link, route: RouteSocket, parent: int) -> LineRate:
    """Return the lower of a rate and what the filters that hang at `parent` (0: none do) police a device to."""
    police_bps = 8.0 * route.actions(link.index, parent).police_bytes_per_s if parent else 0.0
    if not police_bps or (rate.bps is not None and rate.bps <= police_bps):
        return rate
    return LineRate(police_bps, f"police: {rate_text(police_bps)} on {link.name}")


def _rate(link: Link, links: dict[int, Link], route: RouteSocket, depth: int = 0) -> LineRate:
    """Return the lower of the driver's speed and the shaping of a device."""
    hardware = _hardware(link, links, route, depth)
    shaped = shaping(route.qdiscs(link.index), route.classes(link.index))
    if shaped.bps is None:
        return LineRate(hardware.bps, f"{hardware.source}; {shaped.remark}" if shaped.remark else hardware.source)
    if hardware.bps is not None and hardware.bps <= shaped.bps:
        return hardware
    return LineRate(shaped.bps, f"{shaped.source}: {rate_text(shaped.bps)} on {link.name}")


def _hardware(link: Link, links: dict[int, Link], route: RouteSocket, depth: int) -> LineRate:
    """Return the speed of the hardware under a device; unknown for a device that has none."""
    speed_bps = ethtool.speed_bps(link.raw_name)
    if link.flags & IFF_LOOPBACK:
        return LineRate(None, "unknown: the loopback device has no line rate")
    if link.kind in STACKED and depth < _MAX_STACK:
        return _of_device_below(link, links, route, depth, speed_bps)
    if link.kind == "bond" and depth < _MAX_STACK:
        return _of_bond(link, links, route, depth, speed_bps)
    name = link.kind or ethtool.driver(link.raw_name)
    if speed_bps is None:
        return LineRate(None, f"unknown: the {name or 'device'} driver reports no speed")
    if link.kind:
        return LineRate(None, f"unknown: the {name} driver's {rate_text(speed_bps)} is nominal, it limits nothing")
    return LineRate(speed_bps, f"ethtool: {rate_text(speed_bps)} ({name or 'driver without a name'})")


def _of_device_below(
    link: Link, links: dict[int, Link], route: RouteSocket, depth: int, speed_bps: float | None
) -> LineRate:
    """Return the line rate of a VLAN, macvlan or ipvlan: that of the device it is stacked on, shaping included."""
    below = links.get(link.lower_index) if link.netns_id is None else None
    if below is not None:
        rate = _rate(below, links, route, depth + 1)
        return LineRate(rate.bps, f"{rate.source}, under the {link.kind}")
    if speed_bps is None:
        return LineRate(None, f"unknown: the {link.kind} is stacked on a device in another namespace")
    return LineRate(speed_bps, f"ethtool: {rate_text(speed_bps)} (passed on by {link.kind} from another namespace)")


def _of_bond(link: Link, links: dict[int, Link], route: RouteSocket, depth: int, speed_bps: float | None) -> LineRate:
    """Return the line rate of a bond: what its driver adds up, where it is known of every member whose link is up."""
    members = [port for port in links.values() if port.master_index == link.index and port.flags & IFF_LOWER_UP]
    rates = [_rate(member, links, route, depth + 1) for member in members]
    unknown = [rate.source for rate in rates if rate.bps is None]
    if not members or unknown or speed_bps is None:
        why = unknown[0].removeprefix("unknown: ") if unknown else "it has no member whose link is up"
        return LineRate(None, f"unknown: bond {link.name}: {why}")
    one = rate_text(max(rate.bps or 0.0 for rate in rates))
    source = f"ethtool: {rate_text(speed_bps)} (bond of {len(members)}; one flow gets at most {one})"
    return LineRate(speed_bps, source)
