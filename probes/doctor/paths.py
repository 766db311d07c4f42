"""The part of the diagnosis that is about a job's network: the devices its connections pass, and what is in the way."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from netprof.errors import NetprofError
from netprof.model import LineRate, Target
from netprof.network_advice import (
    Nic,
    change,
    faster,
    offloads_off,
    reached,
    reaches_too,
    smaller_mtu,
)
from netprof.probes.doctor.check import DoctorCheck, Status
from netprof.probes.job import procfs
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.nic.line_rate import Condition, conditions
from netprof.probes.nic.namespaces import Namespace, Namespaces
from netprof.probes.nic.path_walk import Hop, find_path
from netprof.probes.nic.settings import addresses_of, offloads_of, route_of, usable_devices
from netprof.probes.sampled.tcp_info import TcpSockets
from netprof.schema import TRANSMIT, HopKind
from netprof.units import rate

_AREA, _NAME = "target", "network path"
_MAIN = 0.01
"""Share of the bytes of a namespace's connections from which on an address matters."""


def check_paths(targets: Sequence[Target]) -> Iterator[DoctorCheck]:
    """Say which devices the job's connections pass, how fast each is, and what could be set otherwise."""
    places = Namespaces()
    try:
        ways = [
            way for netns in dict.fromkeys(target.netns for target in targets) for way in _ways(places, targets, netns)
        ]
        busiest = {(way.place.inode, way.device): way for way in ways}  # of those by each device, the last
        if not busiest:
            yield DoctorCheck(_AREA, _NAME, Status.INFO, "no connection to another network namespace is open now")
        addresses_at = {
            way.local: [each for name in usable_devices(way.place) for each in addresses_of(way.place, name)]
            for way in ways
        }
        for way in busiest.values():
            yield from _check_way(places, way, targets, addresses_at)
    except (NetprofError, OSError) as error:
        yield DoctorCheck(_AREA, _NAME, Status.LIMITED, f"cannot be looked at: {error}")
    finally:
        places.close()


@dataclass(frozen=True)
class _Way:
    """By which device of a place an address is reached."""

    place: Namespace
    device: str
    local: str
    remote: str


def _ways(places: Namespaces, targets: Sequence[Target], netns: int) -> list[_Way]:
    """Return how the processes in a namespace reach others, the address with most bytes last."""
    inside = [target for target in targets if target.netns == netns]
    place = places.take(NetworkNamespace.of(inside[0].pid))
    if place is None:
        return []
    inodes = {inode for target in inside for inode in procfs.sockets(target.pid)}
    moved: Counter[tuple[str, str]] = Counter()
    with place.handle.run(TcpSockets) as sockets:
        for each in sockets.look(inodes, ()):
            if not place.has(each.remote[0]) and not ipaddress.ip_address(each.remote[0]).is_loopback:
                ends = str(ipaddress.ip_address(each.local[0])), str(ipaddress.ip_address(each.remote[0]))
                moved[ends] += each.info["sent_bytes"] + each.info["received_bytes"] + 1
    ways: list[_Way] = []
    for (local, remote), count in reversed(moved.most_common()):
        link = place.links.get(place.route.route(ipaddress.ip_address(remote).packed).index)
        if link is not None and count >= _MAIN * moved.total():
            ways.append(_Way(place, link.name, local, remote))
    return ways


def _check_way(
    places: Namespaces, way: _Way, targets: Sequence[Target], addresses_at: Mapping[str, list[str]]
) -> Iterator[DoctorCheck]:
    hops = find_path(places, way.place, way.device, TRANSMIT, way.remote)
    seen = [hop for hop in hops if hop.kind is not HopKind.UNSEEN]
    known = {(hop.netns, hop.device): _condition(places, hop) for hop in seen}
    certain = [hop for hop in seen if hop.kind not in (HopKind.ASSUMED, HopKind.MEMBER)]
    rates = [_rate(known[hop.netns, hop.device], hop) for hop in certain]
    least = min((each for each in rates if each.bps is not None), key=lambda each: each.bps or 0.0, default=None)
    route = " → ".join(hop.device or f"? ({hop.about})" for hop in hops)
    slowest = f"at most {rate(least.bps)} ({least.source})" if least else "no device on it has a known rate"
    yield DoctorCheck(_AREA, f"path to {way.remote}", Status.OK, f"{route}: {slowest}")
    first = known.get((way.place.inode, way.device))
    for key, condition in known.items():
        tunnels = any(hop.kind is HopKind.TUNNEL and (hop.netns, hop.device) == key for hop in seen)
        if first is not None and condition is not None and 0 < condition.mtu_bytes < first.mtu_bytes and not tunnels:
            smaller = smaller_mtu(way.device, first.mtu_bytes, condition.name, condition.mtu_bytes)
            yield DoctorCheck(_AREA, "MTU", Status.INFO, *smaller)
    link = way.place.named(way.device)
    off = offloads_of(way.place, link) if link is not None else []
    if (advice := offloads_off(way.device, off, least.bps if least else None)) is not None:
        yield DoctorCheck(_AREA, "offloads", Status.INFO, *advice)
    if least is not None and least.bps is not None:
        yield from _faster(way, least.bps, targets, addresses_at.get(way.remote, []))


def _rate(condition: Condition | None, hop: Hop) -> LineRate:
    if condition is None:
        return LineRate(None, "unknown")
    return condition.line_rate if hop.direction == TRANSMIT else condition.receive_rate


def _condition(places: Namespaces, hop: Hop) -> Condition | None:
    if (place := places.known(hop.netns)) is None:
        return None
    at = place.handle.run(partial(conditions, {hop.device: (None, hop.device)})).get(hop.device)
    return at[1] if at is not None else None


def _faster(way: _Way, least_bps: float, targets: Sequence[Target], peer_addresses: list[str]) -> Iterator[DoctorCheck]:
    names = [name for name in usable_devices(way.place) if name != way.device]
    beside_it = way.place.handle.run(partial(conditions, {name: (None, name) for name in names}))
    nics = [
        Nic(name, tuple(addresses_of(way.place, name)), at[1].line_rate.bps)
        for name, at in beside_it.items()
        if at is not None
    ]
    nic = faster(least_bps, nics, way.remote, peer_addresses)
    if nic is None:
        return
    route = next((text for _, _, text in route_of(way.place, way.device, way.remote)), "")
    frameworks = {name for target in targets for name in target.frameworks}
    line, why = change(nic, way.device, way.remote, route, frameworks)
    detail = reaches_too(nic, "", reached(nic, way.remote, peer_addresses), way.device, least_bps)
    yield DoctorCheck(_AREA, "faster device", Status.INFO, detail, f"{line} ({why})" if why else line)
