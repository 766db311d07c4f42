"""The devices that a flow's packets pass below its own: by what devices are stacked on, and by bridges and routes."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from netprof.errors import NetprofError
from netprof.probes.kernel.rtnetlink import EGRESS, IFF_LOOPBACK, IFF_UP, INGRESS, Link
from netprof.probes.nic.namespaces import Namespace, Namespaces
from netprof.schema import RECEIVE, TRANSMIT, HopKind

STACKED = {"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"}
"""Kinds of devices that are stacked on another one, whose speed they report and share."""
AGGREGATES = {"bond", "team"}
"""Kinds of devices that share their packets out among members."""
_UNDERLAYS: dict[str, tuple[tuple[int, ...], int]] = {
    "vxlan": ((2, 16), 50),
    "geneve": ((2, 7), 50),
    "gretap": ((7,), 38),
    "ip6gretap": ((7,), 58),
    "gre": ((7,), 38),
    "ip6gre": ((7,), 58),
    "ipip": ((3,), 34),
    "sit": ((3,), 34),
    "ip6tnl": ((3,), 54),
}
"""Of each kind of tunnel: where its attributes name the remote end, and by how much its packets are longer below."""
_WIREGUARD_BYTES, _TUN_BYTES = 74, 60
_BOND_ACTIVE = 2  # IFLA_BOND_ACTIVE_SLAVE
_MOST_HOPS = 16
_RUN_OUTSIDE = "run netprof on the host to see on (in Kubernetes: hostNetwork and hostPID)"


@dataclass(frozen=True)
class Hop:
    """A device on a path, and which way packets pass it; of HopKind.UNSEEN, why nothing more is known."""

    kind: HopKind
    netns: int
    device: str
    direction: int
    header_bytes: int = 0
    about: str = ""


def find_path(
    namespaces: Namespaces,
    namespace: Namespace,
    device: str,
    direction: int,
    remote: str,
    recorded: Collection[int] = (),
) -> tuple[Hop, ...]:
    """Return the devices that packets between a device and an address pass, from the device itself on.

    They are looked for as packets to the address go; what is received takes the same way back. The path ends where that
    of the other end begins, if its namespace is one of those `recorded`. Raises OSError.
    """
    walk = _PathWalk(namespaces, recorded, direction)
    link = namespace.named(device)
    if link is not None:
        walk.begin(namespace, link, ipaddress.ip_address(remote).packed)
    return tuple(walk.hops)


@dataclass
class _PathWalk:
    """Follows packets device by device."""

    namespaces: Namespaces
    recorded: Collection[int]
    direction: int
    hops: list[Hop] = field(default_factory=list)
    header_bytes: int = 0

    def begin(self, namespace: Namespace, link: Link, remote: bytes) -> None:
        self._note(HopKind.FLOW, namespace, link, TRANSMIT)
        gateway = b""
        with suppress(OSError):
            route = namespace.route.route(remote)
            gateway = route.gateway if route.index == link.index else b""
        self._leave(namespace, link, remote, namespace.mac_of(link.index, gateway or remote))

    def _leave(self, namespace: Namespace, link: Link, remote: bytes, mac: bytes) -> None:
        """Go on behind a device by which packets leave a namespace; `mac` is whom they are for on the link."""
        if len(self.hops) >= _MOST_HOPS:
            return
        if link.kind in STACKED:
            self._leave_below(namespace, link, remote, mac)
        elif link.kind in AGGREGATES:
            self._note_members(namespace, link)
        elif link.kind == "veth":
            self._leave_by_pair(namespace, link, remote, mac)
        elif link.kind == "bridge":
            self._leave_by_port(namespace, link, remote, mac)
        elif link.kind in _UNDERLAYS or link.kind == "wireguard":
            self._leave_by_tunnel(namespace, link)
        elif link.kind == "tun":
            self._assume(namespace, link)

    def _leave_below(self, namespace: Namespace, link: Link, remote: bytes, mac: bytes) -> None:
        lower = self._lower(namespace, link, "the device below")
        if lower is not None:
            self._note(HopKind.BELOW, *lower, TRANSMIT, f"below {link.kind} {link.name}")
            self._leave(*lower, remote, mac)

    def _lower(self, namespace: Namespace, link: Link, what: str) -> tuple[Namespace, Link] | None:
        """Return the device that one is stacked on or paired with, and where; None out of sight, which is noted."""
        there = self.namespaces.elsewhere(namespace, link.netns_id)
        lower = there.links.get(link.lower_index) if there is not None else None
        if there is None or lower is None:
            self._note_unseen(f"{what} {link.name} is in a namespace out of sight: {_RUN_OUTSIDE}")
            return None
        return there, lower

    def _note_members(self, namespace: Namespace, link: Link) -> None:
        members = [each for each in namespace.links.values() if each.master_index == link.index and each.flags & IFF_UP]
        active = link.data.get(_BOND_ACTIVE, b"")
        chosen = [each for each in members if active and each.index == int.from_bytes(active[:4], "little")] or members
        for each in chosen:
            self._note(HopKind.MEMBER, namespace, each, TRANSMIT, f"member of {link.kind} {link.name}")

    def _leave_by_pair(self, namespace: Namespace, link: Link, remote: bytes, mac: bytes) -> None:
        peer = self._lower(namespace, link, "the other end of")
        if peer is not None and not peer[0].has(remote):
            self._note(HopKind.OTHER_END, *peer, RECEIVE, f"the other end of {link.name}")
            self._enter(*peer, remote, mac)

    def _enter(self, namespace: Namespace, link: Link, remote: bytes, mac: bytes) -> None:
        """Go on behind a device by which packets come into a namespace."""
        if len(self.hops) >= _MOST_HOPS:
            return
        master = namespace.links.get(link.master_index)
        if master is None and (not mac or mac == link.mac):  # else it is for one that is stacked on it
            self._route_on(namespace, link, remote)
        elif master is None:
            return
        elif master.kind == "bridge":
            self._leave_by_port(namespace, master, remote, mac, came_by=link)
        elif master.kind in AGGREGATES:
            self._enter(namespace, master, remote, mac)
        else:
            self._note_unseen(f"where {master.kind} {master.name} sends what {link.name} gets is not known")

    def _leave_by_port(
        self, namespace: Namespace, bridge: Link, remote: bytes, mac: bytes, came_by: Link | None = None
    ) -> None:
        if came_by is not None and mac == bridge.mac:
            self._route_on(namespace, bridge, remote)
            return
        behind = [each.index for each in namespace.forwarding if each.mac == mac and each.master_index == bridge.index]
        others = [each for each in namespace.links.values() if each.master_index == bridge.index and each != came_by]
        ports = [each for each in others if each.index in behind] or (others if len(others) == 1 else [])
        if not ports:
            self._note_unseen(f"behind which port of {bridge.name} the other end is, is not known")
            return
        port = ports[0]
        there = self.namespaces.elsewhere(namespace, port.netns_id) if port.kind == "veth" else None
        if there is not None and there.has(remote) and there.inode in self.recorded:
            return
        self._note(HopKind.PORT, namespace, port, TRANSMIT, f"port of {bridge.name}")
        self._leave(namespace, port, remote, mac)

    def _route_on(self, namespace: Namespace, link: Link, remote: bytes) -> None:
        try:
            route = namespace.route.route(remote)
        except OSError:  # it is dropped
            return
        out = namespace.links.get(route.index)
        if route.is_local or namespace.has(remote) or out in (None, link) or out.flags & IFF_LOOPBACK:
            return
        self._note(HopKind.ROUTE, namespace, out, TRANSMIT, f"routed on from {link.name}")
        self._leave(namespace, out, remote, namespace.mac_of(out.index, route.gateway or remote))

    def _leave_by_tunnel(self, namespace: Namespace, link: Link) -> None:
        """Go on with what a tunnel makes of its packets."""
        below = self.namespaces.elsewhere(namespace, link.netns_id)
        if below is None:
            self._note_unseen(f"{link.kind} {link.name} sends from a namespace out of sight: {_RUN_OUTSIDE}")
            return
        names, more_bytes = _UNDERLAYS.get(link.kind, ((), _WIREGUARD_BYTES))
        known = [link.data[name] for name in names if any(link.data.get(name, b""))]
        if link.kind == "wireguard":
            with suppress(OSError, NetprofError):
                known = namespace.endpoints(link.raw_name)
        if not known:
            known = [each.address for each in namespace.forwarding if each.index == link.index and each.address]
        self.header_bytes += more_bytes
        for index, end in _outgoing(below, known).items():
            out = below.links[index]
            self._note(HopKind.TUNNEL, below, out, TRANSMIT, f"{link.kind} {link.name} to {ipaddress.ip_address(end)}")
            self._leave(below, out, end, below.mac_of(index, end))
        if not known:
            self._assume(namespace, link)

    def _assume(self, namespace: Namespace, link: Link) -> None:
        """Note the devices that a tunnel may send by, of which nothing tells but their counters."""
        self.header_bytes += _TUN_BYTES
        for each in namespace.links.values():
            rests = each.kind in STACKED | AGGREGATES | {"tun", "wireguard", "ifb", "bridge", "dummy", *_UNDERLAYS}
            if each.flags & IFF_UP and not each.flags & IFF_LOOPBACK and not rests and each.index != link.index:
                self._note(HopKind.ASSUMED, namespace, each, TRANSMIT, f"what {link.kind} {link.name} may send by")

    def _note(self, kind: HopKind, namespace: Namespace, link: Link, direction: int, about: str = "") -> None:
        """Note a device, and those that its filters send the packets through."""
        direction = direction if self.direction == TRANSMIT else 1 - direction
        self.hops.append(Hop(kind, namespace.inode, link.name, direction, self.header_bytes, about))
        for index, how in _redirects(namespace, link, INGRESS if direction == RECEIVE else EGRESS):
            target = namespace.links[index].name
            about = f"{'what' if how is HopKind.REDIRECT else 'perhaps what'} {link.name} is redirected to"
            self.hops.append(Hop(how, namespace.inode, target, TRANSMIT, self.header_bytes, about))

    def _note_unseen(self, about: str) -> None:
        self.hops.append(Hop(HopKind.UNSEEN, 0, "", self.direction, 0, about))


def _redirects(namespace: Namespace, link: Link, parent: int) -> Iterator[tuple[int, HopKind]]:
    """Yield the ifb devices that filters of a device redirect to; where a program may, all that nobody else names."""
    hooks = [each.kind for each in namespace.route.qdiscs(link.index) if each.kind in ("ingress", "clsact")]
    if not hooks or (hooks == ["ingress"] and parent == EGRESS):
        return
    actions = namespace.route.actions(link.index, parent)
    targets = [index for index in actions.devices if index in namespace.links]
    yield from ((index, HopKind.REDIRECT) for index in targets)
    if not targets and actions.has_programs:
        yield from ((device.index, HopKind.ASSUMED) for device in namespace.links.values() if device.kind == "ifb")


def _outgoing(namespace: Namespace, ends: list[bytes]) -> dict[int, bytes]:
    """Return by which devices packets to some addresses leave, each with the first address."""
    first_ends: dict[int, bytes] = {}
    for end in ends:
        with suppress(OSError):
            index = namespace.route.route(end).index
            if index in namespace.links:
                first_ends.setdefault(index, end)
    return first_ends
