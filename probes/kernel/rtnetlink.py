"""Asking the kernel about network devices, queueing disciplines, routes and neighbours, and word of their changes.

pyroute2 would do, but importing it takes a quarter of a second, half of what an attach may take; this is the
small part that is needed. A socket belongs to the network namespace in which it was opened.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from netprof.closing import all_or_nothing
from netprof.probes.kernel.netlink import DUMP, NetlinkSocket, attribute, attributes, each_attribute, number

RTM_GETLINK, RTM_GETADDR, RTM_GETROUTE, RTM_GETNEIGH = 18, 22, 26, 30
RTM_GETQDISC, RTM_GETTCLASS, RTM_GETTFILTER, RTM_GETNSID = 38, 42, 46, 90

_IFINFO = struct.Struct("=BxHiII")  # struct ifinfomsg: family, type, index, flags, change
_TCMSG = struct.Struct("=BxxxiIII")  # struct tcmsg: family, ifindex, handle, parent, info
_RTMSG = struct.Struct("=BBBxxxxBI")  # struct rtmsg: family, bits of the destination and of the source, type, flags
_NDMSG = struct.Struct("=BxxxiHBB")  # struct ndmsg: family, ifindex, state, flags, type
_IFADDRMSG = struct.Struct("=BBBBI")  # struct ifaddrmsg: family, bits, flags, scope, index

_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINK, _IFLA_MASTER, _IFLA_LINKINFO = 1, 3, 4, 5, 10, 18
_IFLA_LINK_NETNSID = 37
_IFLA_INFO_KIND, _IFLA_INFO_DATA = 1, 2
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_SRC, _RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY, _RTA_TABLE, _RTA_VIA = 1, 2, 4, 5, 6, 15, 18
_NDA_DST, _NDA_LLADDR, _NDA_MASTER = 1, 2, 9
_NETNSA_NSID, _NETNSA_FD = 1, 3
_TCA_KIND, _TCA_OPTIONS, _TCA_STATS2, _TCA_STATS_BASIC, _TCA_STATS_QUEUE = 1, 2, 7, 1, 3
_ACT_KIND, _ACT_OPTIONS, _ACT_PARMS = 1, 2, 2
_MIRRED_DEVICE = 24  # in struct tc_mirred
_POLICE_TBF, _POLICE_RATE, _POLICE_RATE64 = 1, 28, 8  # the rate in struct tc_police
_MATCHED_ROUTE = 0x2000  # RTM_F_FIB_MATCH
_LOCAL_ROUTE = 2  # RTN_LOCAL
_DEEPEST = 6
INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
"""Where filters of a clsact (and of an ingress) qdisc hang."""
ROOT = 0xFFFFFFFF
"""The parent of a device's root qdisc."""
IFF_UP, IFF_LOOPBACK, IFF_LOWER_UP = 0x1, 0x8, 0x10000


@dataclass(frozen=True)
class Link:
    """A network device: `kind` is "" for one with a driver of its own (a NIC), else veth, bond, tun and so on."""

    index: int
    name: str
    raw_name: bytes
    flags: int
    mtu_bytes: int
    kind: str
    lower_index: int  # the device this one is stacked on or paired with, 0 if none
    netns_id: int | None  # which namespace that device is in, by this one's numbers; None: in this one
    master_index: int  # the bond or bridge this one belongs to, 0 if none
    mac: bytes = b""
    data: Mapping[int, bytes] = field(default_factory=dict)  # what only devices of its kind say


@dataclass(frozen=True)
class Address:
    """An IP address of a device, with the length of its network's prefix."""

    index: int
    address: bytes
    prefix_bits: int


@dataclass(frozen=True)
class Route:
    """How packets to an address leave: by device `index`, 0 for none, through `gateway`, b"" for none.

    `prefix` and what follows are those of the entry of the routing table that matched.
    """

    index: int
    gateway: bytes = b""
    is_local: bool = False
    prefix: bytes = b""
    prefix_bits: int = 0
    table: int = 0
    metric: int = 0


@dataclass(frozen=True)
class Neighbour:
    """Where a link-layer address is: at an IP address, behind a bridge's port, or a tunnel's remote end."""

    index: int
    mac: bytes
    address: bytes
    master_index: int


@dataclass(frozen=True)
class TrafficControl:
    """A queueing discipline, or a class of one, on a device."""

    kind: str
    handle: int
    parent: int
    options: bytes
    sent_bytes: int
    sent_packets: int
    index: int = 0
    drops: int = 0  # 32 bits of the count


@dataclass(frozen=True)
class FilterActions:
    """What filters do: the devices that they redirect or mirror to, the least rate that they police to, in bytes per
    second (0: none), and whether programs (BPF) are among them, of which that cannot be told."""

    devices: tuple[int, ...] = ()
    police_bytes_per_s: int = 0
    has_programs: bool = False


def device_name(raw: bytes) -> str:
    """Return a device's name as text that any table can hold: a name may be any bytes but `/`, `:` and blanks."""
    return raw.decode("utf-8", "backslashreplace")


class RouteSocket(NetlinkSocket):
    """An rtnetlink socket. A context manager. Methods raise OSError."""

    def __init__(self) -> None:
        super().__init__(socket.NETLINK_ROUTE)

    def links(self) -> list[Link]:
        """Return every device of the namespace."""
        return [_link(body) for body in self.request(RTM_GETLINK, DUMP, _IFINFO.pack(0, 0, 0, 0, 0))]

    def qdiscs(self, index: int = 0) -> list[TrafficControl]:
        """Return the queueing disciplines of device `index`; 0: of every device of the namespace."""
        return self._traffic_control(RTM_GETQDISC, index)

    def classes(self, index: int) -> list[TrafficControl]:
        """Return the classes of the queueing disciplines of device `index`."""
        return self._traffic_control(RTM_GETTCLASS, index)

    def addresses(self) -> list[Address]:
        """Return every IP address of the namespace's devices."""
        addresses = []
        for body in self.request(RTM_GETADDR, DUMP, _IFADDRMSG.pack(0, 0, 0, 0, 0)):
            _, bits, _, _, index = _IFADDRMSG.unpack_from(body)
            options = attributes(body[_IFADDRMSG.size :])
            address = options.get(_IFA_LOCAL) or options.get(_IFA_ADDRESS, b"")
            if len(address) in (4, 16):  # some devices have those of other protocols
                addresses.append(Address(index, address, bits))
        return addresses

    def route(self, remote: bytes, local: bytes = b"", *, matched: bool = False) -> Route:
        """Return how packets to an address leave, and from one.

        `matched` asks for the entry of the routing table instead of what it comes to.
        """
        family = socket.AF_INET if len(remote) == 4 else socket.AF_INET6
        request = _RTMSG.pack(family, 8 * len(remote), 8 * len(local), 0, _MATCHED_ROUTE if matched else 0)
        request += attribute(_RTA_DST, remote)
        if local:
            request += attribute(_RTA_SRC, local)
        for body in self.request(RTM_GETROUTE, 0, request):
            _, bits, _, kind, _ = _RTMSG.unpack_from(body)
            options = attributes(body[_RTMSG.size :])
            return Route(
                index=number(options.get(_RTA_OIF, b"")),
                gateway=options.get(_RTA_GATEWAY, b"") or options.get(_RTA_VIA, b"")[2:],
                is_local=kind == _LOCAL_ROUTE,
                prefix=options.get(_RTA_DST, b""),
                prefix_bits=bits,
                table=number(options.get(_RTA_TABLE, b"")),
                metric=number(options.get(_RTA_PRIORITY, b"")),
            )
        return Route(0)

    def neighbours(self, family: int) -> list[Neighbour]:
        """Return the neighbours of a family; of AF_BRIDGE, what bridges and VXLANs have learnt."""
        neighbours = []
        for body in self.request(RTM_GETNEIGH, DUMP, _NDMSG.pack(family, 0, 0, 0, 0)):
            _, index, *_ = _NDMSG.unpack_from(body)
            options = attributes(body[_NDMSG.size :])
            mac, address = options.get(_NDA_LLADDR, b""), options.get(_NDA_DST, b"")
            neighbours.append(Neighbour(index, mac, address, number(options.get(_NDA_MASTER, b""))))
        return neighbours

    def netns_id(self, descriptor: int) -> int:
        """Return the number by which this namespace knows another one, which is open; negative: it does not."""
        request = bytes(4) + attribute(_NETNSA_FD, struct.pack("=I", descriptor))
        for body in self.request(RTM_GETNSID, 0, request):
            known = attributes(body[4:]).get(_NETNSA_NSID, b"")
            return int(struct.unpack_from("=i", known)[0]) if len(known) >= 4 else -1
        return -1

    def actions(self, index: int, parent: int) -> FilterActions:
        """Return what the filters of a device do that hang at `parent` (INGRESS, EGRESS, a queueing discipline)."""
        devices, rates, has_programs = list[int](), list[int](), False
        for body in self.request(RTM_GETTFILTER, DUMP, _TCMSG.pack(0, index, 0, parent, 0)):
            about = body[_TCMSG.size :]
            has_programs = has_programs or attributes(about).get(_TCA_KIND, b"").startswith(b"bpf")
            for kind, options in _actions(about):
                parms = options.get(_ACT_PARMS, b"")
                if kind == b"mirred" and len(parms) > _MIRRED_DEVICE:
                    devices.append(number(parms[_MIRRED_DEVICE : _MIRRED_DEVICE + 4]))
                elif kind == b"police":
                    plain = number(options.get(_POLICE_TBF, b"")[_POLICE_RATE : _POLICE_RATE + 4])
                    rates.append(number(options.get(_POLICE_RATE64, b"")) or plain)
        return FilterActions(
            tuple(dict.fromkeys(devices)), min((rate for rate in rates if rate), default=0), has_programs
        )

    def _traffic_control(self, request: int, index: int) -> list[TrafficControl]:
        answers = (_traffic_control(body) for body in self.request(request, DUMP, _TCMSG.pack(0, index, 0, 0, 0)))
        return [answer for answer in answers if index in (0, answer.index)]  # a dump of qdiscs covers every device


def device_names() -> dict[int, str]:
    """Return the devices of the calling thread's namespace: their names by number. Raises OSError."""
    with RouteSocket() as route:
        return {link.index: link.name for link in route.links()}


def _actions(data: bytes, depth: int = 0) -> Iterator[tuple[bytes, Mapping[int, bytes]]]:
    """Yield kind and options of every action in a filter's attributes: each kind of filter nests them elsewhere."""
    options = attributes(data)
    kind = options.get(_ACT_KIND, b"").rstrip(b"\0")
    if kind in (b"mirred", b"police"):
        yield kind, attributes(options.get(_ACT_OPTIONS, b""))
    elif depth < _DEEPEST:
        for _, payload in each_attribute(data):
            yield from _actions(payload, depth + 1)


def _link(body: bytes) -> Link:
    _, _, index, flags, _ = _IFINFO.unpack_from(body)
    options = attributes(body[_IFINFO.size :])
    info = attributes(options.get(_IFLA_LINKINFO, b""))
    raw_name = options.get(_IFLA_IFNAME, b"").rstrip(b"\0")
    return Link(
        index=index,
        name=device_name(raw_name),
        raw_name=raw_name,
        flags=flags,
        mtu_bytes=number(options.get(_IFLA_MTU, b"")),
        kind=device_name(info.get(_IFLA_INFO_KIND, b"").rstrip(b"\0")),
        lower_index=number(options.get(_IFLA_LINK, b"")),
        netns_id=number(options[_IFLA_LINK_NETNSID]) if _IFLA_LINK_NETNSID in options else None,
        master_index=number(options.get(_IFLA_MASTER, b"")),
        mac=options.get(_IFLA_ADDRESS, b""),
        data=attributes(info.get(_IFLA_INFO_DATA, b"")),
    )


def _traffic_control(body: bytes) -> TrafficControl:
    _, index, handle, parent, _ = _TCMSG.unpack_from(body)
    options = attributes(body[_TCMSG.size :])
    counted = attributes(options.get(_TCA_STATS2, b""))
    basic = counted.get(_TCA_STATS_BASIC, b"")
    sent_bytes, sent_packets = struct.unpack_from("=QI", basic) if len(basic) >= 12 else (0, 0)
    return TrafficControl(
        kind=device_name(options.get(_TCA_KIND, b"").rstrip(b"\0")),
        handle=handle,
        parent=parent,
        options=options.get(_TCA_OPTIONS, b""),
        sent_bytes=sent_bytes,
        sent_packets=sent_packets,
        index=index,
        drops=number(counted.get(_TCA_STATS_QUEUE, b"")[8:12]),
    )


_GROUPS = 1 << 0 | 1 << 3 | 1 << 6 | 1 << 10  # RTMGRP_LINK, RTMGRP_TC, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_ROUTE
_RECEIVE_BYTES = 1 << 16
_HEADER = struct.Struct("=IH")  # the begin of struct nlmsghdr: length, type
_ROUTES = (24, 25)  # RTM_NEWROUTE, RTM_DELROUTE


class Changed(NamedTuple):
    """What has changed."""

    links: bool = False
    routes: bool = False


class LinkEvents:
    """Events of the network namespace in which this is made, from then on. Raises OSError."""

    def __init__(self) -> None:
        with all_or_nothing() as opened:
            kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
            self._socket = opened.enter_context(socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE))
            self._socket.bind((0, _GROUPS))
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    @property
    def are_waiting(self) -> bool:
        """Whether there is anything to take: asked many times a second."""
        return bool(self._poll.poll(0))

    def take(self) -> Changed:
        """Return what has changed since the last call. Raises OSError."""
        links = routes = False
        while True:
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
                of_route = len(data) >= _HEADER.size and _HEADER.unpack_from(data)[1] in _ROUTES
                links, routes = links or not of_route, routes or of_route
            except BlockingIOError:
                return Changed(links, routes)
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # the kernel had more to say than there was room for
                    raise
                links = routes = True

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
