"""Traffic that has nothing to do with a job: `send tcp|udp ADDRESS PORT BITS_PER_SECOND` and `receive tcp|udp`.

TCP sends as much as it can over four connections, UDP at the given rate. The first line on stdout says that it is
ready: `receiving PORT`, `sending`.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

_UDP_SEGMENT = 103
_DATAGRAM_BYTES, _DATAGRAMS = 1400, 40  # the kernel cuts what is sent at once into datagrams
_CONNECTIONS = 4


def receive(kind: str) -> None:
    """Receive for ever; UDP is left to the kernel to throw away."""
    sock = socket.socket(type=socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    sock.bind(("", 0))
    if kind == "tcp":
        sock.listen()
    print("receiving", sock.getsockname()[1], flush=True)
    while kind == "tcp":
        threading.Thread(target=read, args=[sock.accept()[0]], daemon=True).start()
    threading.Event().wait()


def read(connection: socket.socket) -> None:
    """Read a connection and forget what it brings."""
    place = bytearray(1 << 20)
    while connection.recv_into(place):
        pass


def send_tcp(address: tuple[str, int]) -> None:
    """Send as much as TCP lets us."""
    connection = socket.create_connection(address)
    while True:
        connection.sendall(bytes(1 << 18))


def send_udp(address: tuple[str, int], rate_bps: float) -> None:
    """Send datagrams at a constant rate, some at a time."""
    sock = socket.socket(type=socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_UDP, _UDP_SEGMENT, _DATAGRAM_BYTES)
    sock.connect(address)
    batch = bytes(_DATAGRAM_BYTES * _DATAGRAMS)
    due, step = time.monotonic(), len(batch) * 8 / rate_bps
    while True:
        sock.send(batch)
        due = max(due + step, time.monotonic() - 0.01)  # what could not be sent in time is not made up for
        time.sleep(max(0.0, due - time.monotonic()))


def main() -> None:
    """Send or receive, until killed."""
    role, kind, *rest = sys.argv[1:]
    if role == "receive":
        receive(kind)
        return
    address, rate_bps = (rest[0], int(rest[1])), float(rest[2])
    print("sending", flush=True)
    if kind == "udp":
        send_udp(address, rate_bps)
    for _ in range(_CONNECTIONS):
        threading.Thread(target=send_tcp, args=[address], daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
