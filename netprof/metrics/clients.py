"""Who is at the other end of a connection: one client, however many addresses it has."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from dataclasses import dataclass

from netprof.probes.job.owners import Owners
from netprof.probes.sampled.tcp_info import TcpSockets

_NETWORK_BITS = 64
"""What one IPv6 host is given at least: it may use any address of it."""


@dataclass(frozen=True)
class Client:
    """`name` is a user of this host, or an address (of IPv6 a network); `address` is the one of many that it used."""

    name: str
    address: str


class Clients:
    """Tells clients. Where the kernel does not say whose local sockets are, all of this host are one."""

    def __init__(self) -> None:
        self._owners = Owners()
        self._sockets: TcpSockets | None = None
        with suppress(OSError):
            self._sockets = TcpSockets()

    def of(self, connection: socket.socket) -> Client:
        """Return the client of an accepted connection. Raises OSError for one that is over."""
        remote, local = connection.getpeername(), connection.getsockname()
        there = ipaddress.ip_address(remote[0].partition("%")[0])
        here = ipaddress.ip_address(local[0].partition("%")[0])
        there, here = getattr(there, "ipv4_mapped", None) or there, getattr(here, "ipv4_mapped", None) or here
        uid = self._user((there.packed, remote[1]), (here.packed, local[1]))
        if uid is not None:
            return Client(f"user {self._owners.of_uid(uid)}", str(there))
        if there.is_loopback or there == here:
            return Client("this host", str(there))
        if there.version == 4:
            return Client(str(there), str(there))
        return Client(str(ipaddress.ip_network((there, _NETWORK_BITS), strict=False)), str(there))

    def close(self) -> None:
        """Ask no more. May be called twice."""
        if self._sockets is not None:
            self._sockets.close()
        self._sockets = None

    def _user(self, there: tuple[bytes, int], here: tuple[bytes, int]) -> int | None:
        """Return whose socket on this host the other end is; None where it is on another, or cannot be told."""
        if self._sockets is None:
            return None
        try:
            return self._sockets.user_of(socket.AF_INET if len(there[0]) == 4 else socket.AF_INET6, there, here)
        except OSError:
            return None
