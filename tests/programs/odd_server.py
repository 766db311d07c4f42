"""Serves connections of a peer that sends odd packets: python odd_server.py ADDR COUNT [slowly].

Prints its port, then of each connection a line of JSON: TCP's own totals as it ends. `slowly` it mostly has no room.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time

_SLOWLY = sys.argv[3:] == ["slowly"]
_TOTALS = {"bytes_received": 128, "bytes_sent": 200, "bytes_retrans": 208}
"""Where tcp_info(7) has them."""


def main() -> None:
    addr, count = sys.argv[1], int(sys.argv[2])
    with socket.create_server((addr, 0)) as server:
        if _SLOWLY:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        print(server.getsockname()[1], flush=True)
        for _ in range(count):
            serve(server.accept()[0])


def serve(connection: socket.socket) -> None:
    """Answer some of what comes, until the peer resets."""
    port = connection.getpeername()[1]
    try:
        while data := connection.recv(2000):
            time.sleep(0.02 if _SLOWLY else 0)
            connection.send(b"y" * (len(data) % 97 + 1))
    except ConnectionResetError:
        pass
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
    totals = {name: struct.unpack_from("Q", info, at)[0] for name, at in _TOTALS.items()}
    print(json.dumps({"port": port, **totals}), flush=True)
    connection.close()


if __name__ == "__main__":
    main()
