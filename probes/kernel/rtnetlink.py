"""Asking the kernel about network devices and queueing disciplines, over rtnetlink.

pyroute2 would do, but importing it takes a quarter of a second, half of what an attach may take; this is the
small part that is needed. A socket belongs to the network namespace in which it was opened.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

RTM_GETLINK, RTM_GETQDISC, RTM_GETTCLASS = 18, 38, 42

_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NLM_F_REQUEST, _NLM_F_DUMP = 0x1, 0x300
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # struct rtattr: length, type
_IFINFO = struct.Struct("=BxHiII")  # struct ifinfomsg: family, type, index, flags, change
_TCMSG = struct.Struct("=BxxxiIII")  # struct tcmsg: family, ifindex, handle, parent, info
_TYPE_MASK = 0x3FFF  # without the nested and byte-order flags
_RECEIVE_BYTES = 1 << 18

_IFLA_IFNAME, _IFLA_MTU, _IFLA_LINK, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_LINK_NETNSID = 3, 4, 5, 10, 18, 37
_IFLA_INFO_KIND = 1
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


def attributes(data: bytes) -> dict[int, bytes]:
    """Split a run of netlink attributes into {type: payload}; a malformed tail is left out."""
    found: dict[int, bytes] = {}
    position = 0
    while position + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, position)
        if length < _ATTRIBUTE.size or position + length > len(data):
            break
        found[kind & _TYPE_MASK] = data[position + _ATTRIBUTE.size : position + length]
        position += (length + 3) & ~3
    return found


class RouteSocket:
    """An rtnetlink socket. A context manager. Methods raise OSError."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.settimeout(5.0)
        self._sequence = 0

    def links(self) -> list[Link]:
        """Return every device of the namespace."""
        return [_link(body) for body in self._request(RTM_GETLINK, _NLM_F_DUMP, _IFINFO.pack(0, 0, 0, 0, 0))]

    def qdiscs(self, index: int) -> list[TrafficControl]:
        """Return the queueing disciplines of device `index`."""
        return self._traffic_control(RTM_GETQDISC, index)

    def classes(self, index: int) -> list[TrafficControl]:
        """Return the classes of the queueing disciplines of device `index`."""
        return self._traffic_control(RTM_GETTCLASS, index)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> RouteSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _traffic_control(self, request: int, index: int) -> list[TrafficControl]:
        found = []
        for body in self._request(request, _NLM_F_DUMP, _TCMSG.pack(0, index, 0, 0, 0)):
            _, owner, handle, parent, _ = _TCMSG.unpack_from(body)
            if owner == index:  # a dump of queueing disciplines covers every device
                found.append(_traffic_control(body, handle, parent))
        return found

    def _request(self, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
        """Send one request and yield the bodies of its answers."""
        self._sequence += 1
        header = _HEADER.pack(_HEADER.size + len(body), kind, _NLM_F_REQUEST | flags, self._sequence, 0)
        self._socket.send(header + body)
        while True:
            data = self._socket.recv(_RECEIVE_BYTES)
            position = 0
            while position + _HEADER.size <= len(data):
                length, answer, _, sequence, _ = _HEADER.unpack_from(data, position)
                if length < _HEADER.size:
                    return
                payload = data[position + _HEADER.size : position + length]
                position += (length + 3) & ~3
                if sequence != self._sequence:
                    continue  # left over from a request given up before its end
                if answer == _NLMSG_DONE:
                    return
                if answer == _NLMSG_ERROR:
                    number = -struct.unpack_from("=i", payload)[0]
                    raise OSError(number, os.strerror(number))
                yield payload
            if not flags & _NLM_F_DUMP:
                return


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


def number(data: bytes) -> int:
    """Read an attribute of 4 or 8 bytes as an unsigned number in the machine's order; 0 when it is absent."""
    if len(data) >= 8:
        return int(struct.unpack_from("=Q", data)[0])
    return int(struct.unpack_from("=I", data)[0]) if len(data) >= 4 else 0
