"""The part of the diagnosis that is about a job's network: the devices its connections pass, and what is in the way."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from netprof.alternatives import (
    Nic,
    change,
    faster,
    offloads_off,
    reached,
    reaches_too,
    smaller_mtu,
)
from netprof.errors import NetprofError
from netprof.model import LineRate, Target
from netprof.probes.doctor.check import Check, Status
from netprof.probes.job import procfs
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.nic.line_rate import Condition, conditions
from netprof.probes.nic.path import Hop, find_path
from netprof.probes.nic.places import Place, Places
from netprof.probes.nic.settings import addresses_of, beside, offloads_of, route_of
from netprof.probes.sampled.tcp_info import TcpSockets
from netprof.schema import TRANSMIT, HopKind
from netprof.units import rate

_AREA, _NAME = "target", "network path"
_MAIN = 0.01
"""Share of the bytes of a namespace's connections from which on an address matters."""


def check_paths(targets: Sequence[Target]) -> Iterator[Check]:
    """Say which devices the job's connections pass, how fast each is, and what could be set otherwise."""
    places = Places()
    try:
        ways = [
            way for netns in dict.fromkeys(target.netns for target in targets) for way in _ways(places, targets, netns)
        ]
        busiest = {(way.place.inode, way.device): way for way in ways}  # of those by each device, the last
        if not busiest:
            yield Check(_AREA, _NAME, Status.INFO, "no connection to another network namespace is open now")
        addresses_at = {
            way.local: [each for name in beside(way.place) for each in addresses_of(way.place, name)] for way in ways
        }
        for way in busiest.values():
            yield from _check_way(places, way, targets, addresses_at)
    except (NetprofError, OSError) as error:
        yield Check(_AREA, _NAME, Status.LIMITED, f"cannot be looked at: {error}")
    finally:
        places.close()


@dataclass(frozen=True)
class _Way:
    """By which device of a place an address is reached."""

    place: Place
    device: str
    local: str
    remote: str


def _ways(places: Places, targets: Sequence[Target], netns: int) -> list[_Way]:
    """Return how the processes in a namespace reach others, the address with most bytes last."""
    own = [target for target in targets if target.netns == netns]
    place = places.take(NetworkNamespace.of(own[0].pid))
    if place is None:
        return []
    inodes = {inode for target in own for inode in procfs.sockets(target.pid)}
    moved: Counter[tuple[str, str]] = Counter()
    with place.namespace.run(TcpSockets) as sockets:
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
    places: Places, way: _Way, targets: Sequence[Target], addresses_at: Mapping[str, list[str]]
) -> Iterator[Check]:
    hops = find_path(places, way.place, way.device, TRANSMIT, way.remote)
    seen = [hop for hop in hops if hop.kind is not HopKind.UNSEEN]
    known = {(hop.netns, hop.device): _condition(places, hop) for hop in seen}
    certain = [hop for hop in seen if hop.kind not in (HopKind.ASSUMED, HopKind.MEMBER)]
    rates = [_rate(known[hop.netns, hop.device], hop) for hop in certain]
    least = min((each for each in rates if each.bps is not None), key=lambda each: each.bps or 0.0, default=None)
    route = " → ".join(hop.device or f"? ({hop.about})" for hop in hops)
    slowest = f"at most {rate(least.bps)} ({least.source})" if least else "no device on it has a known rate"
    yield Check(_AREA, f"path to {way.remote}", Status.OK, f"{route}: {slowest}")
    own = known.get((way.place.inode, way.device))
    for key, found in known.items():
        tunnels = any(hop.kind is HopKind.TUNNEL and (hop.netns, hop.device) == key for hop in seen)
        if own is not None and found is not None and 0 < found.mtu_bytes < own.mtu_bytes and not tunnels:
            said, advice = smaller_mtu(way.device, own.mtu_bytes, found.name, found.mtu_bytes)
            yield Check(_AREA, "MTU", Status.INFO, said, advice)
    yield from _offloads(way, least.bps if least else None)
    if least is not None and least.bps is not None:
        yield from _faster(way, least.bps, targets, addresses_at.get(way.remote, []))


def _rate(found: Condition | None, hop: Hop) -> LineRate:
    if found is None:
        return LineRate(None, "unknown")
    return found.line_rate if hop.direction == TRANSMIT else found.receive_rate


def _condition(places: Places, hop: Hop) -> Condition | None:
    place = places.known(hop.netns)
    found = place.namespace.run(partial(conditions, {hop.device: (None, hop.device)})) if place is not None else {}
    at = found.get(hop.device)
    return at[1] if at is not None else None


def _offloads(way: _Way, rate_bps: float | None) -> Iterator[Check]:
    link = way.place.named(way.device)
    off = offloads_of(way.place, link) if link is not None else []
    if (found := offloads_off(way.device, off, rate_bps)) is not None:
        yield Check(_AREA, "offloads", Status.INFO, *found)


def _faster(way: _Way, least_bps: float, targets: Sequence[Target], peer_addresses: list[str]) -> Iterator[Check]:
    names = [name for name in beside(way.place) if name != way.device]
    found = way.place.namespace.run(partial(conditions, {name: (None, name) for name in names}))
    nics = [
        Nic(name, tuple(addresses_of(way.place, name)), each[1].line_rate.bps)
        for name, each in found.items()
        if each is not None
    ]
    nic = faster(least_bps, nics, way.remote, peer_addresses)
    if nic is None:
        return
    route = next((text for _, _, text in route_of(way.place, way.device, way.remote)), "")
    frameworks = {name for target in targets for name in target.frameworks}
    line, why = change(nic, way.device, way.remote, route, frameworks)
    said = reaches_too(nic, "", reached(nic, way.remote, peer_addresses), way.device, least_bps)
    yield Check(_AREA, "faster device", Status.INFO, said, f"{line} ({why})" if why else line)
