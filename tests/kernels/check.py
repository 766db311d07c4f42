"""Runs inside another kernel: do the programs load, are the bytes exact, do uprobes fire? See `run`."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections import Counter

from netprof.errors import NetprofError
from netprof.probes.flow.probe import FlowProbe
from netprof.probes.frameworks import Framework, Mark
from netprof.probes.marks.probe import MarkProbe
from netprof.probes.probe import Columns
from netprof.schema import MarkKind

CALLS = 7


def say(text: str) -> None:
    print(f"check: {text}", flush=True)


def transfer(source: socket.socket, target: socket.socket, count: int) -> None:
    """Move `count` bytes from one socket to another."""
    sender = threading.Thread(target=source.sendall, args=(bytes(count),))
    sender.start()
    left = count
    while left:
        left -= len(target.recv(min(left, 1 << 16)))
    sender.join()


def reported(sock: socket.socket) -> tuple[int, int]:
    """Return the new bytes sent and the bytes received, by TCP_INFO."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    received, sent, again = (struct.unpack_from("Q", info, offset)[0] for offset in (128, 200, 208))
    return sent - again, received


def clocks(sock: socket.socket) -> tuple[int, ...]:
    """Return for how long a socket was busy, limited by the receiver's window and by its send buffer, by TCP_INFO."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return tuple(int(struct.unpack_from("Q", info, offset)[0]) for offset in (168, 176, 184))


def last_clocks(rows: Columns, flow: int) -> tuple[int, ...]:
    """Return the same of a flow's last row of table `tcp`."""
    last = max((time_ns, row) for row, time_ns in enumerate(rows["time_ns"]) if rows["flow_id"][row] == flow)[1]
    return tuple(int(rows[name][last]) for name in ("busy_us", "rwnd_limited_us", "sndbuf_limited_us"))


def flows_are_exact() -> bool:
    """Compare old and new connections with what their sockets report."""
    with FlowProbe(1_000_000) as probe, socket.create_server(("127.0.0.1", 0)) as listener:
        old = socket.create_connection(listener.getsockname())
        old_peer, _ = listener.accept()
        probe.targets.add(os.getpid())
        probe.follow(())
        new = socket.create_connection(listener.getsockname())
        new_peer, _ = listener.accept()
        transfer(new, new_peer, 10_000_000)
        transfer(old, old_peer, 5_000_000)
        transfer(new_peer, new, 333_333)
        time.sleep(0.3)
        socks = (old, old_peer, new, new_peer)
        before = [clocks(sock) for sock in socks]
        rows, totals = probe.drain(final=True), Counter[tuple[int, int]]()
        after = [clocks(sock) for sock in socks]
        wire, opened = rows["wire"], rows["flows"]
        for flow, direction, count in zip(wire["flow_id"], wire["direction"], wire["payload_bytes"], strict=True):
            totals[int(flow), int(direction)] += int(count)
        ports = zip(opened["local_port"], opened["remote_port"], strict=True)
        ids = dict(zip(ports, opened["flow_id"], strict=True))
        flows = [ids[sock.getsockname()[1], sock.getpeername()[1]] for sock in socks]
        for low, flow, high in zip(before, flows, after, strict=True):
            sampled = last_clocks(rows["tcp"], flow)
            if not all(a <= b <= c for a, b, c in zip(low, sampled, high, strict=True)):
                say(f"TCP's clocks: WRONG: {sampled} is not within {low} and {high}")
                return False
        return all((totals[f, 0], totals[f, 1]) == reported(s) for f, s in zip(flows, socks, strict=True))


def adopted_are_exact() -> bool:
    """Compare connections that the job came by unseen: one that waited to be accepted, one of a process added late."""
    with FlowProbe(1_000_000) as probe, socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        near.sendall(bytes(1000))
        probe.follow(())  # of nobody yet
        probe.targets.add(os.getpid())
        probe.follow(())
        far, _ = listener.accept()
        transfer(near, far, 2_000_000)
        far.recv(1000, socket.MSG_WAITALL)
        transfer(far, near, 3_000_000)
        time.sleep(0.3)
        rows = probe.drain(final=True)
        wire, flows, totals = rows["wire"], rows["flows"], Counter[tuple[int, int]]()
        for flow, direction, count in zip(wire["flow_id"], wire["direction"], wire["payload_bytes"], strict=True):
            totals[int(flow), int(direction)] += int(count)
        noted = {
            (flows["local_port"][row], flows["remote_port"][row]): (
                flows["earlier_sent_bytes"][row] + totals[flows["flow_id"][row], 0],
                flows["earlier_received_bytes"][row] + totals[flows["flow_id"][row], 1],
            )
            for row in range(len(flows["flow_id"]))
        }
        ends = {(sock.getsockname()[1], sock.getpeername()[1]): reported(sock) for sock in (near, far)}
        return noted == ends and list(flows["earlier_sent_bytes"]).count(1000) == 1


def marks_fire() -> tuple[bool, str]:
    """Probe the entry of a function of libc, twice, and its return, in this process, and call it."""
    marks = (
        Mark(MarkKind.DDP_FORWARD, "getppid", ()),
        Mark(MarkKind.DDP_BACKWARD, "getppid", ()),
        Mark(MarkKind.DDP_WAIT, "getppid", at_return=True),
    )
    with MarkProbe([os.getpid()], frameworks=(Framework("libc", "libc.so.6", marks),)) as probe:
        for _ in range(CALLS):
            os.getppid()
        time.sleep(0.1)
        return probe.drain()["marks"]["kind"].tolist() == [mark.kind for mark in marks] * CALLS, probe.method


def main() -> None:
    say(f"kernel {os.uname().release}")
    try:
        exact = flows_are_exact()
        say(f"flows: {'exact' if exact else 'WRONG'}")
        adopted = adopted_are_exact()
        say(f"adopted sockets: {'exact' if adopted else 'WRONG'}")
        exact = exact and adopted
        fired, method = marks_fire()
        say(f"marks: {'all' if fired else 'MISSING'} ({method})")
    except NetprofError as error:
        say(f"refused: {error.message}; {error.detail[-1000:]}")
    else:
        say("all good" if exact and fired else "NOT GOOD")


if __name__ == "__main__":
    main()
