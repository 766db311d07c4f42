"""Word from the kernel that a network device, a queueing discipline or a route has changed, as it happens."""

from __future__ import annotations

import errno
import select
import socket
import struct
from typing import NamedTuple

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
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
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
