"""Traffic whose bytes and times are known: bursts over TCP, each logged by sender and receiver.

`burst.py receive` listens and reads, `burst.py send` connects and sends. Both write one JSON object a line to
stdout (`event` says what) and obey `go` lines on stdin, so that a test decides the order of connecting, sending
and closing. All times are CLOCK_MONOTONIC nanoseconds, all sizes payload bytes.

Events of the sender, in order: `ready` (only with --wait connect), `connected`, `forked` (only with --child),
`burst` for each burst, `finished` (all data acknowledged, sockets still open), `closed`.
Events of the receiver: `listening`, `accepted` and `burst` for each, `closed` for each connection.
`finished` and the receiver's `burst` and `closed` carry the kernel's TCP_INFO counters as `tcp`. The handshake
counts as a byte in `bytes_acked` of the side that connected: compare `bytes_sent - bytes_retrans` (new bytes sent)
and `bytes_received`, from which the other side's FIN, which the kernel counts as a byte, is taken off.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import socket
import struct
import sys
import termios
import threading
import time
from typing import Any

HEADER = struct.Struct("!QQ")  # begins every burst and is part of it: bytes of the burst, bytes of the reply
CHUNK = memoryview(bytes(1 << 20))
TCP_CLOSE_WAIT = 8  # the first byte of struct tcp_info, once the other side's FIN is in
_TCP_INFO = {  # field: (struct code, offset) in struct tcp_info, stable ABI since 4.19
    "retransmits": ("I", 100),
    "snd_mss_bytes": ("I", 16),
    "rtt_us": ("I", 68),
    "bytes_acked": ("Q", 120),
    "bytes_received": ("Q", 128),
    "segs_out": ("I", 136),
    "segs_in": ("I", 140),
    "bytes_sent": ("Q", 200),
    "bytes_retrans": ("Q", 208),
    "rcv_ooopack": ("I", 224),
}
_print_lock = threading.Lock()


def say(event: str, **fields: Any) -> None:
    """Write one event as a line of JSON."""
    line = json.dumps({"event": event, "pid": os.getpid(), "time_ns": time.monotonic_ns(), **fields})
    with _print_lock:
        print(line, flush=True)


def wait_for_go() -> bool:
    """Wait for a line on stdin; False when stdin was closed instead."""
    return bool(sys.stdin.readline())


def tcp_info(sock: socket.socket) -> dict[str, int]:
    """Return the counters that the kernel keeps for a socket.

    It reads the state before it locks the socket for the counters, and a FIN may come in between: what was read is one
    picture only if the state is still the same afterwards.
    """
    raw, after = _tcp_info(sock), _tcp_info(sock)
    while raw[0] != after[0]:
        raw, after = after, _tcp_info(sock)
    info = {name: struct.unpack_from("=" + code, raw, offset)[0] for name, (code, offset) in _TCP_INFO.items()}
    if raw[0] == TCP_CLOSE_WAIT:
        info["bytes_received"] -= 1  # the FIN
    return info


def _tcp_info(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)


def unacknowledged_bytes(sock: socket.socket) -> int:
    """Return how many sent bytes the other side has not acknowledged yet (SIOCOUTQ)."""
    raw = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
    return int(struct.unpack("=i", raw)[0])


def wait_until_acknowledged(sock: socket.socket) -> int:
    """Wait until every byte sent is acknowledged, and return the time that was seen at."""
    while unacknowledged_bytes(sock):
        time.sleep(50e-6)
    return time.monotonic_ns()


def write_bytes(sock: socket.socket, count: int) -> None:
    """Send `count` zero bytes."""
    while count:
        count -= sock.send(CHUNK[: min(count, len(CHUNK))])


def read_bytes(sock: socket.socket, count: int) -> tuple[int, int]:
    """Read exactly `count` bytes; return the times of the first and the last piece. Raises EOFError."""
    first_ns, buffer = 0, bytearray(1 << 20)
    while count:
        got = sock.recv_into(buffer, min(count, len(buffer)))
        if not got:
            raise EOFError
        count -= got
        first_ns = first_ns or time.monotonic_ns()
    return first_ns, time.monotonic_ns()


def sleep_until(deadline_ns: int) -> None:
    """Sleep until the monotonic clock reads `deadline_ns`."""
    left_ns = deadline_ns - time.monotonic_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)


def send_one(sock: socket.socket, flow: int, index: int, size: int, reply: int) -> None:
    """Send one burst of `size` bytes, read its reply, and log both."""
    begin_ns = time.monotonic_ns()
    sock.sendall(HEADER.pack(size, reply))
    write_bytes(sock, size - HEADER.size)
    end_ns = time.monotonic_ns()
    acked_ns = wait_until_acknowledged(sock)
    reply_ns = read_bytes(sock, reply) if reply else (0, 0)
    say(
        "burst", flow=flow, index=index, bytes=size, begin_ns=begin_ns, end_ns=end_ns, acked_ns=acked_ns,
        reply_bytes=reply, reply_begin_ns=reply_ns[0], reply_end_ns=reply_ns[1],
    )  # fmt: skip


def send_flow(sock: socket.socket, flow: int, sizes: list[int], reply: int, period_ns: int) -> None:
    """Send all bursts of one connection, one every `period_ns`."""
    start_ns = time.monotonic_ns()
    for index, size in enumerate(sizes):
        sleep_until(start_ns + index * period_ns)
        send_one(sock, flow, index, size, reply)


def endpoints(sock: socket.socket) -> dict[str, Any]:
    """Return a socket's addresses and ports under the names of the `flows` table."""
    local, remote = sock.getsockname(), sock.getpeername()
    return {"local_addr": local[0], "local_port": local[1], "remote_addr": remote[0], "remote_port": remote[1]}


def connect(args: argparse.Namespace) -> list[socket.socket]:
    """Open the connections and log them."""
    socks = []
    for _ in range(args.flows):
        source = (args.source, 0) if args.source else None
        sock = socket.create_connection((args.addr, args.port), timeout=20, source_address=source)
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        socks.append(sock)
    say("connected", flows=[endpoints(sock) for sock in socks])
    return socks


def run_in_child(work: Any) -> None:
    """Run `work` in a forked child and wait for it; the parent exits with the child's status."""
    pid = os.fork()
    if pid == 0:
        say("forked", child=os.getpid())
        work()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


def send_all(args: argparse.Namespace, socks: list[socket.socket]) -> None:
    """Send every burst of every connection, wait for the acknowledgements, report and close."""
    sizes = args.bursts or [args.bytes] * args.count
    work = [(sock, flow, sizes, args.reply, round(args.period_ms * 1e6)) for flow, sock in enumerate(socks)]
    threads = [threading.Thread(target=send_flow, args=arguments) for arguments in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say("finished", flows=[{**endpoints(sock), "tcp": tcp_info(sock)} for sock in socks])
    if "close" in args.wait:
        wait_for_go()
    for sock in socks:
        sock.close()
    say("closed")


def send(args: argparse.Namespace) -> None:
    """Run as the sender."""
    if "connect" in args.wait:
        say("ready")
        wait_for_go()
    if args.child == "connect":
        run_in_child(lambda: send_connected(args))
    send_connected(args)


def send_connected(args: argparse.Namespace) -> None:
    """Connect, wait where asked, and send, from here or from a forked child."""
    socks = connect(args)
    if "send" in args.wait:
        wait_for_go()
    if args.child == "send":
        run_in_child(lambda: send_all(args, socks))
    send_all(args, socks)


def serve(sock: socket.socket) -> None:
    """Read bursts from one accepted connection until it ends, replying where a burst asks for it."""
    where, index = endpoints(sock), 0
    info = tcp_info(sock)
    header = bytearray(HEADER.size)
    while True:
        got = sock.recv_into(header, HEADER.size, socket.MSG_WAITALL)
        if got < HEADER.size:
            break
        first_ns = time.monotonic_ns()
        size, reply = HEADER.unpack(header)
        _, last_ns = read_bytes(sock, size - HEADER.size)
        if reply:
            write_bytes(sock, reply)
            wait_until_acknowledged(sock)
        info = tcp_info(sock)
        say("burst", **where, index=index, bytes=size, first_ns=first_ns, last_ns=last_ns, reply_bytes=reply, tcp=info)
        index += 1
    sock.close()
    say("closed", **where, bursts=index, tcp=info)


def receive(args: argparse.Namespace) -> None:
    """Run as the receiver: accept --flows connections, and serve each on a thread of its own."""
    family = socket.AF_INET6 if ":" in args.addr else socket.AF_INET
    threads = []
    with socket.create_server((args.addr, args.port), family=family, backlog=256) as listener:
        say("listening", port=listener.getsockname()[1])
        for _ in range(args.flows):
            sock, _peer = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            say("accepted", **endpoints(sock))
            threads.append(threading.Thread(target=serve, args=(sock,)))
            threads[-1].start()
    for thread in threads:
        thread.join()


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("role", choices=["send", "receive"])
    parser.add_argument("--addr", required=True, help="address to connect to or to listen on, IPv4 or IPv6")
    parser.add_argument("--port", type=int, default=0, help="0 (receiver only): any free port, see `listening`")
    parser.add_argument("--source", default="", help="sender: local address")
    parser.add_argument("--flows", type=int, default=1, help="connections")
    parser.add_argument("--bytes", type=int, default=1_000_000, help="payload bytes of each burst, header included")
    parser.add_argument("--count", type=int, default=10, help="bursts of each connection")
    parser.add_argument("--bursts", type=lambda text: [int(part) for part in text.split(",")], help="sizes, by comma")
    parser.add_argument("--period-ms", type=float, default=50.0, help="from one burst's begin to the next one's")
    parser.add_argument("--reply", type=int, default=0, help="bytes that the receiver sends back after each burst")
    parser.add_argument("--wait", action="append", default=[], choices=["connect", "send", "close"],
                        help="wait for a line on stdin before this; may be given several times")  # fmt: skip
    parser.add_argument("--child", choices=["connect", "send"], help="fork, and let the child do it from here on")
    args = parser.parse_args()
    if min(args.bursts or [args.bytes]) < HEADER.size:
        parser.error(f"a burst has at least {HEADER.size} bytes")
    return args


if __name__ == "__main__":
    arguments = parse_args()
    send(arguments) if arguments.role == "send" else receive(arguments)
