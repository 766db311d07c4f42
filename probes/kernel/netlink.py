"""Asking the kernel over netlink: requests, their answers, and attributes; and the peers of WireGuard."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

from netprof.closing import Closing

DUMP = 0x300

_ERROR, _DONE = 2, 3
_REQUEST = 0x1
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # struct nlattr: length, type
_TYPE_MASK = 0x3FFF  # without the nested and byte-order flags
_RECEIVE_BYTES = 1 << 18
_LONGEST_S = 5.0


def each_attribute(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and payload of a run of netlink attributes; a malformed tail is left out."""
    position = 0
    while position + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, position)
        if length < _ATTRIBUTE.size or position + length > len(data):
            break
        yield kind & _TYPE_MASK, data[position + _ATTRIBUTE.size : position + length]
        position += (length + 3) & ~3


def attributes(data: bytes) -> dict[int, bytes]:
    """Split a run of netlink attributes into {type: payload}; a malformed tail is left out."""
    return dict(each_attribute(data))


def attribute(kind: int, payload: bytes) -> bytes:
    """Return an attribute as a request holds it."""
    header = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(payload), kind)
    return (header + payload).ljust((_ATTRIBUTE.size + len(payload) + 3) & ~3, b"\0")


def number(data: bytes) -> int:
    """Read an attribute of 4 or 8 bytes as an unsigned number in the machine's order; 0 when it is absent."""
    if len(data) >= 8:
        return int(struct.unpack_from("=Q", data)[0])
    return int(struct.unpack_from("=I", data)[0]) if len(data) >= 4 else 0


class NetlinkSocket(Closing):
    """A netlink socket of one family. A context manager. Methods raise OSError."""

    def __init__(self, family: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
        self._socket.settimeout(_LONGEST_S)
        self._sequence = 0
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))  # one for all answers: it takes longer to get than to fill

    def request(self, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
        """Send one request and yield the bodies of its answers."""
        self._sequence += 1
        header = _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, self._sequence, 0)
        self._socket.send(header + body)
        while True:
            data = bytes(self._buffer[: self._socket.recv_into(self._buffer)])
            position = 0
            while position + _HEADER.size <= len(data):
                length, answer, _, sequence, _ = _HEADER.unpack_from(data, position)
                if length < _HEADER.size:
                    return
                payload = data[position + _HEADER.size : position + length]
                position += (length + 3) & ~3
                if sequence != self._sequence:
                    continue  # left over from a request given up before its end
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    code = -struct.unpack_from("=i", payload)[0]
                    raise OSError(code, os.strerror(code))
                yield payload
            if not flags & DUMP:
                return

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


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
        addresses = []
        request = struct.pack("=BBxx", _GET_DEVICE, 1) + attribute(_IFNAME, device + b"\0")
        for body in self.request(family, DUMP, request) if family else ():
            for _, peer in each_attribute(attributes(body[_HEAD:]).get(_PEERS, b"")):
                addresses += _address(attributes(peer).get(_ENDPOINT, b""))
        return list(dict.fromkeys(addresses))


def _address(socket_address: bytes) -> list[bytes]:
    """Return the IP address of a struct sockaddr, if it has one."""
    family = int.from_bytes(socket_address[:2], "little") if len(socket_address) >= 8 else 0
    if family == socket.AF_INET:
        return [socket_address[4:8]]
    return [socket_address[8:24]] if family == socket.AF_INET6 and len(socket_address) >= 24 else []
