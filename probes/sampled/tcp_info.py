"""Asking the kernel for its TCP sockets and what each has moved, over sock_diag (inet_diag.h, tcp.h of Linux)."""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from netprof.probes.kernel.netlink import DUMP, NetlinkSocket, attributes

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_INFO, _CONGESTION_CONTROL = 2, 4  # INET_DIAG_INFO, INET_DIAG_CONG
_WITH_BOTH = 1 << _INFO - 1 | 1 << _CONGESTION_CONTROL - 1
_ALL_BUT_LISTENING = 0xFFF & ~(1 << 10)
_REQUEST = struct.Struct("=BBBxI48s")
"""struct inet_diag_req_v2: family, protocol, extensions, states, and of one socket its identity, as in a message."""
_MESSAGE = struct.Struct("=BBxx2s2s16s16sxxxxQxxxxIIII")
"""struct inet_diag_msg: family, state, ports, addresses, cookie, bytes not read and not acknowledged, user, inode."""
_IDENTITY = slice(4, 52)  # in a message: ports, addresses, interface and cookie
_ENDS = struct.Struct(">HH16s16s4s8s")
"""The same for a socket known by both ends only: any interface, no cookie."""
_ANY = bytes(4), b"\xff" * 8
_LISTENING = 10

_OPTIONS_AT, _TIMESTAMPS = 5, 1
_CA_STATE_AT = 1
_LAST_SENT_AT, _LAST_RECEIVED_AT = 44, 52
_U32 = {
    "mss_bytes": 16,
    "rtt_us": 68,
    "cwnd": 80,
    "retransmits": 100,
    "sent_packets": 136,
    "received_packets": 140,
    "notsent_bytes": 144,
    "min_rtt_us": 148,
    "dsacked": 216,
}
_U64 = {
    "received_bytes": 128,
    "busy_us": 168,
    "rwnd_limited_us": 176,
    "sndbuf_limited_us": 184,
    "sent_bytes": 200,
    "resent_bytes": 208,
}
"""Where struct tcp_info has what is used; it only grows, and what a kernel does not have reads 0."""
_MAPPED = bytes(10) + b"\xff\xff"
_NEEDED_BYTES = 216  # up to `resent_bytes`, which Linux has had since 4.19

_End = tuple[bytes, int]
"""An address and a port."""


@dataclass(frozen=True)
class TcpSocket:
    """A TCP socket and what it has moved until `time_ns`: new payload each way, what it sent again, segments.

    `cookie` is its own number, which no other socket ever gets. `options_bytes` are those of each of its segments.
    `family` and `identity` are those by which the kernel is asked for it again. `silent_ms` is for how long it has sent
    and received no data; of one that never did it says nothing.
    """

    time_ns: int
    family: int
    identity: bytes
    cookie: int
    inode: int
    local: _End
    remote: _End
    options_bytes: int
    ca_state: int
    congestion_control: str
    info: dict[str, int]
    unread_bytes: int
    unacked_bytes: int
    silent_ms: tuple[int, int]


class TcpSockets(NetlinkSocket):
    """The TCP sockets of the network namespace in which this is made. A context manager. Methods raise OSError."""

    def __init__(self) -> None:
        super().__init__(_NETLINK_SOCK_DIAG)

    def look(self, inodes: Collection[int], cookies: Collection[int]) -> list[TcpSocket]:
        """Return the sockets with these inodes or cookies, as they are now.

        The kernel walks its whole table of connections, which is as large as the machine's memory makes it, even if
        hardly a socket is in it.
        """
        sockets: list[TcpSocket] = []
        for family in (socket.AF_INET, socket.AF_INET6):
            for body in self._ask(family, DUMP, bytes(48)):
                *_, cookie, _, _, _, inode = _MESSAGE.unpack_from(body)
                if inode in inodes or cookie in cookies:
                    sockets += _socket(family, body)
        return sockets

    def again(self, known: Iterable[TcpSocket]) -> list[TcpSocket]:
        """Return these sockets as they are now, without those that are gone; each is looked up by itself."""
        sockets: list[TcpSocket] = []
        for before in known:
            with suppress(FileNotFoundError):
                for body in self._ask(before.family, 0, before.identity):
                    sockets += _socket(before.family, body)
        return sockets

    def user_of(self, family: int, local: _End, remote: _End) -> int | None:
        """Return the id of the user whose socket is connected from `local` to `remote`; None where none is here."""
        identity = _ENDS.pack(local[1], remote[1], local[0], remote[0], *_ANY)
        try:
            for body in self._ask(family, 0, identity):
                _, state, *_, user, _ = _MESSAGE.unpack_from(body)
                return None if state == _LISTENING else int(user)
        except FileNotFoundError:
            pass
        return None

    def _ask(self, family: int, flags: int, identity: bytes) -> Iterator[bytes]:
        request = _REQUEST.pack(family, socket.IPPROTO_TCP, _WITH_BOTH, _ALL_BUT_LISTENING, identity)
        return self.request(_SOCK_DIAG_BY_FAMILY, flags, request)


def _socket(family: int, body: bytes) -> Iterator[TcpSocket]:
    """Yield the socket of a message; none if the kernel says nothing of what it has moved."""
    options = attributes(body[_MESSAGE.size :])
    data = options.get(_INFO, b"")
    if len(data) < _NEEDED_BYTES:
        return
    _, _, source, target, local, remote, cookie, unread, unacked, _, inode = _MESSAGE.unpack_from(body)
    width = 4 if family == socket.AF_INET else 16
    info = {name: _number(data, at) for name, at in _U32.items()}
    info |= {name: int.from_bytes(data[at : at + 8], sys.byteorder) for name, at in _U64.items()}
    info["sent_bytes"] -= info["resent_bytes"]
    yield TcpSocket(
        time_ns=time.monotonic_ns(),
        family=family,
        identity=body[_IDENTITY],
        cookie=cookie,
        inode=inode,
        local=_end(local[:width], source),
        remote=_end(remote[:width], target),
        options_bytes=12 if data[_OPTIONS_AT] & _TIMESTAMPS else 0,
        ca_state=data[_CA_STATE_AT],
        congestion_control=options.get(_CONGESTION_CONTROL, b"").split(b"\0")[0].decode("ascii", "replace"),
        info=info,
        unread_bytes=unread,
        unacked_bytes=unacked,
        silent_ms=(_number(data, _LAST_SENT_AT), _number(data, _LAST_RECEIVED_AT)),
    )


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], sys.byteorder)


def _end(address: bytes, port: bytes) -> _End:
    """Return an end of a connection; IPv4 carried by an IPv6 socket is IPv4."""
    mapped = len(address) == 16 and address.startswith(_MAPPED)
    return (address[12:] if mapped else address), int.from_bytes(port, "big")
