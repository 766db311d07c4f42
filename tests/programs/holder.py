"""A process that comes to hold sockets in every way there is, one order a line on stdin, one answer a line on stdout.

Orders are JSON lists: a word and its arguments. Answers are JSON objects; `totals` is what the socket itself says, by
TCP_INFO: new bytes sent, bytes received, packets sent and received.

    ["listen", ADDR]             -> {"port": ...}
    ["accept"]                   takes a connection from the listener's queue
    ["connect", ADDR, PORT, PROTOCOL]
    ["receive_from", PATH]       a socket by SCM_RIGHTS, from whoever listens on the UNIX socket PATH
    ["steal", PID, FD]           a socket of another process, by pidfd_getfd
    ["inherited", FD]            the socket that was open when the program began
    ["send", BYTES]  ["receive", BYTES]  ["totals"]  ["close"]
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys
import time
from typing import Any

_PIDFD_GETFD, _CLOSE_WAIT = 438, 8
_FIELDS = {"received": ("Q", 128), "sent": ("Q", 200), "resent": ("Q", 208), "packets_out": ("I", 136)}


def totals(held: socket.socket) -> dict[str, int]:
    """Return what TCP says that it has moved, once everything sent is acknowledged."""
    while True:
        raw = held.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        info = {name: struct.unpack_from(code, raw, offset)[0] for name, (code, offset) in _FIELDS.items()}
        unacknowledged, not_sent = struct.unpack_from("I", raw, 24)[0], struct.unpack_from("I", raw, 144)[0]
        if not unacknowledged and not not_sent:
            info["sent"] -= info.pop("resent")
            info["received"] -= raw[0] == _CLOSE_WAIT  # the FIN counts as a byte
            return info
        time.sleep(0.001)


def steal(pid: int, descriptor: int) -> socket.socket:
    """Take a copy of another process's socket."""
    found = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, os.pidfd_open(pid), descriptor, 0)
    if found < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return socket.socket(fileno=found)


def received_from(path: str) -> socket.socket:
    """Take a socket from whoever listens on a UNIX socket."""
    with socket.socket(socket.AF_UNIX) as from_whom:
        from_whom.connect(path)
        return socket.socket(fileno=socket.recv_fds(from_whom, 1, 1)[1][0])


class Holder:
    """The listener and the connection that the process holds."""

    def __init__(self) -> None:
        self.listener: socket.socket | None = None
        self.held: socket.socket | None = None

    def obey(self, order: str, *arguments: Any) -> dict[str, Any]:
        """Carry out an order and return the answer."""
        if order == "listen":
            self.listener = socket.create_server((arguments[0], 0))
            return {"port": self.listener.getsockname()[1]}
        if order in ("send", "receive", "totals", "close"):
            return self._use(order, *arguments)
        self.held = self._get(order, *arguments)
        return {"time_ns": time.monotonic_ns(), "fd": self.held.fileno(), "port": self.held.getsockname()[1]}

    def _get(self, order: str, *arguments: Any) -> socket.socket:
        if order == "accept":
            assert self.listener is not None
            return self.listener.accept()[0]
        if order == "connect":
            held = socket.socket(socket.AF_INET, socket.SOCK_STREAM, arguments[2])
            held.connect((arguments[0], arguments[1]))
            return held
        if order == "inherited":
            return socket.socket(fileno=arguments[0])
        return received_from(*arguments) if order == "receive_from" else steal(*arguments)

    def _use(self, order: str, *arguments: Any) -> dict[str, Any]:
        assert self.held is not None
        if order == "send":
            self.held.sendall(bytes(arguments[0]))
        elif order == "receive":
            left = arguments[0]
            while left:
                left -= len(self.held.recv(min(left, 1 << 20)))
        answer = totals(self.held)
        if order == "close":
            self.held.close()
        return answer


def main() -> None:
    holder = Holder()
    print(json.dumps({"pid": os.getpid()}), flush=True)
    for line in sys.stdin:
        print(json.dumps(holder.obey(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
