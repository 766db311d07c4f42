"""Asking the kernel about network devices and queueing disciplines, over rtnetlink.

pyroute2 would do, but importing it takes a quarter of a second, half of what an attach may take; this is the
small part that is needed. A socket belongs to the network namespace in which it was opened.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from netprof.probes.kernel.netlink import DUMP, NetlinkSocket, attribute, attributes, number

RTM_GETLINK, RTM_GETROUTE, RTM_GETQDISC, RTM_GETTCLASS = 18, 26, 38, 42

_IFINFO = struct.Struct("=BxHiII")  # struct ifinfomsg: family, type, index, flags, change
_TCMSG = struct.Struct("=BxxxiIII")  # struct tcmsg: family, ifindex, handle, parent, info
_RTMSG = struct.Struct("=BBBxxxxxxxxx")  # struct rtmsg: family, bits of the destination and of the source

_IFLA_IFNAME, _IFLA_MTU, _IFLA_LINK, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_LINK_NETNSID = 3, 4, 5, 10, 18, 37
_IFLA_INFO_KIND = 1
_RTA_DST, _RTA_SRC, _RTA_OIF = 1, 2, 4
_TCA_KIND, _TCA_OPTIONS, _TCA_STATS2, _TCA_STATS_BASIC = 1, 2, 7, 1
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
    lower_elsewhere: bool  # that device is in another namespace
    master_index: int  # the bond or bridge this one belongs to, 0 if none


@dataclass(frozen=True)
class TrafficControl:
    """A queueing discipline, or a class of one, on a device."""

    kind: str
    handle: int
    parent: int
    options: bytes
    sent_bytes: int
    sent_packets: int


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

    def qdiscs(self, index: int) -> list[TrafficControl]:
        """Return the queueing disciplines of device `index`."""
        return self._traffic_control(RTM_GETQDISC, index)

    def classes(self, index: int) -> list[TrafficControl]:
        """Return the classes of the queueing disciplines of device `index`."""
        return self._traffic_control(RTM_GETTCLASS, index)

    def device_towards(self, local: bytes, remote: bytes) -> int:
        """Return the number of the device by which packets from one address to another leave, 0 if there is none."""
        family = socket.AF_INET if len(remote) == 4 else socket.AF_INET6
        head = _RTMSG.pack(family, 8 * len(remote), 8 * len(local))
        for body in self.request(RTM_GETROUTE, 0, head + attribute(_RTA_DST, remote) + attribute(_RTA_SRC, local)):
            return number(attributes(body[_RTMSG.size :]).get(_RTA_OIF, b""))
        return 0

    def _traffic_control(self, request: int, index: int) -> list[TrafficControl]:
        found = []
        for body in self.request(request, DUMP, _TCMSG.pack(0, index, 0, 0, 0)):
            _, owner, handle, parent, _ = _TCMSG.unpack_from(body)
            if owner == index:  # a dump of queueing disciplines covers every device
                found.append(_traffic_control(body, handle, parent))
        return found


def _link(body: bytes) -> Link:
    _, _, index, flags, _ = _IFINFO.unpack_from(body)
    found = attributes(body[_IFINFO.size :])
    info = attributes(found.get(_IFLA_LINKINFO, b""))
    raw_name = found.get(_IFLA_IFNAME, b"").rstrip(b"\0")
    return Link(
        index=index,
        name=device_name(raw_name),
        raw_name=raw_name,
        flags=flags,
        mtu_bytes=number(found.get(_IFLA_MTU, b"")),
        kind=device_name(info.get(_IFLA_INFO_KIND, b"").rstrip(b"\0")),
        lower_index=number(found.get(_IFLA_LINK, b"")),
        lower_elsewhere=_IFLA_LINK_NETNSID in found,
        master_index=number(found.get(_IFLA_MASTER, b"")),
    )


def _traffic_control(body: bytes, handle: int, parent: int) -> TrafficControl:
    found = attributes(body[_TCMSG.size :])
    basic = attributes(found.get(_TCA_STATS2, b"")).get(_TCA_STATS_BASIC, b"")
    sent_bytes, sent_packets = struct.unpack_from("=QI", basic) if len(basic) >= 12 else (0, 0)
    return TrafficControl(
        kind=device_name(found.get(_TCA_KIND, b"").rstrip(b"\0")),
        handle=handle,
        parent=parent,
        options=found.get(_TCA_OPTIONS, b""),
        sent_bytes=sent_bytes,
        sent_packets=sent_packets,
    )
