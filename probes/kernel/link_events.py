"""Word from the kernel that a network device or a queueing discipline has changed, as it happens."""

from __future__ import annotations

import errno
import socket

_GROUPS = 1 << 0 | 1 << 3  # RTMGRP_LINK, RTMGRP_TC
_RECEIVE_BYTES = 1 << 16


class LinkEvents:
    """Events of the network namespace in which this is made, from then on. Raises OSError."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.bind((0, _GROUPS))
        self._socket.setblocking(False)

    def take(self) -> bool:
        """Say whether anything has changed since the last call. Raises OSError."""
        changed = False
        while True:
            try:
                self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return changed
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # the kernel had more to say than there was room for
                    raise
            changed = True

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
