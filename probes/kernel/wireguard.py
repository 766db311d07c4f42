"""The peers of a WireGuard device, over generic netlink (linux/wireguard.h)."""

from __future__ import annotations

import socket
import struct

from netprof.probes.kernel.netlink import DUMP, NetlinkSocket, attribute, attributes, each_attribute

_NETLINK_GENERIC, _CONTROL, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 16, 3, 1, 2
_GET_DEVICE, _IFNAME, _PEERS, _ENDPOINT = 0, 2, 8, 4
_HEAD = 4  # struct genlmsghdr


class WireGuard(NetlinkSocket):
    """Asks about WireGuard devices of the network namespace in which this is made. Methods raise OSError."""

    def __init__(self) -> None:
        super().__init__(_NETLINK_GENERIC)

    def endpoints(self, device: bytes) -> list[bytes]:
        """Return the addresses to which a device sends what it has encrypted, a peer's each."""
        name = attribute(_FAMILY_NAME, b"wireguard\0")
        family = 0
        for body in self.request(_CONTROL, 0, struct.pack("=BBxx", _GET_FAMILY, 1) + name):
            family = struct.unpack_from("=H", attributes(body[_HEAD:]).get(_FAMILY_ID, b"\0\0"))[0]
        found = []
        request = struct.pack("=BBxx", _GET_DEVICE, 1) + attribute(_IFNAME, device + b"\0")
        for body in self.request(family, DUMP, request) if family else ():
            for _, peer in each_attribute(attributes(body[_HEAD:]).get(_PEERS, b"")):
                found += _address(attributes(peer).get(_ENDPOINT, b""))
        return list(dict.fromkeys(found))


def _address(socket_address: bytes) -> list[bytes]:
    """Return the IP address of a struct sockaddr, if it has one."""
    family = int.from_bytes(socket_address[:2], "little") if len(socket_address) >= 8 else 0
    if family == socket.AF_INET:
        return [socket_address[4:8]]
    return [socket_address[8:24]] if family == socket.AF_INET6 and len(socket_address) >= 24 else []
