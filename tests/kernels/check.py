"""Runs on the kernel to be judged: is every byte and every post counted, does every mark fire, and by what? See `run`.

Each line is `check: NAME: RESULT`; a result that is not as it should be begins with WRONG.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np

from netprof.errors import NetprofError
from netprof.probes.doctor.capabilities import require_recording
from netprof.probes.flow.probe import FlowProbe
from netprof.probes.frameworks.table import Framework, Mark
from netprof.probes.job.watch import Starts
from netprof.probes.kernel.targets import TargetMap
from netprof.probes.kernel.types import described_by_kernel
from netprof.probes.marks.libraries import executable_mappings, matches, open_library
from netprof.probes.marks.probe import MarkProbe
from netprof.probes.marks.symbols import find_functions
from netprof.probes.nccl import probe as nccl
from netprof.probes.nccl.interface import Call
from netprof.probes.nccl.net_functions import NetFunction
from netprof.probes.nccl.net_libraries import NetLibrary
from netprof.probes.probe import Shared
from netprof.schema import TRANSMIT, MarkKind, NcclNetwork

CALLS = 7
WAIT_S = 60
CONNECTION = 4711
HARMLESS = "srand"
"""A function of libc that may be called with anything."""
HERE = ("127.0.0.1", 0)
Table = dict[str, Any]


class WrongError(Exception):
    """Something was not counted as it should be."""


def say(name: str, result: str) -> None:
    print(f"check: {name}: {result}", flush=True)


def insist(right: bool, otherwise: str) -> None:
    if not right:
        raise WrongError(otherwise)


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not true():
        insist(time.monotonic() < deadline_s, what)
        time.sleep(0.02)


def transfer(source: socket.socket, target: socket.socket, count: int) -> None:
    """Move `count` bytes from one socket to another."""
    sender = threading.Thread(target=source.sendall, args=(bytes(count),))
    sender.start()
    left = count
    while left:
        left -= len(target.recv(min(left, 1 << 16)))
    sender.join()


def tcp_info(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)


def reported(sock: socket.socket) -> tuple[int, int]:
    """Return the new bytes sent and the bytes received, by TCP_INFO."""
    received, sent, again = (struct.unpack_from("Q", tcp_info(sock), offset)[0] for offset in (128, 200, 208))
    return sent - again, received


def clocks(sock: socket.socket) -> tuple[int, ...]:
    """Return for how long a socket was busy, limited by the receiver's window and by its send buffer, by TCP_INFO."""
    info = tcp_info(sock)
    return tuple(int(struct.unpack_from("Q", info, offset)[0]) for offset in (168, 176, 184))


class Recording:
    """What a flow probe has handed over so far, of a job that is this process."""

    def __init__(self, probe: FlowProbe) -> None:
        self.probe = probe
        self._parts: list[dict[str, Table]] = []

    def begin(self) -> None:
        self.probe.targets.add(os.getpid())
        self.probe.follow(())

    def drain(self, *, final: bool = False) -> None:
        self._parts.append({name: dict(rows) for name, rows in self.probe.drain(final=final).items()})

    def table(self, name: str) -> Table:
        parts = [part[name] for part in self._parts if len(next(iter(part[name].values()), ()))]
        return {column: np.concatenate([np.asarray(part[column]) for part in parts]) for column in parts[0]}

    def flow(self, sock: socket.socket) -> Table:
        """Return the row of table `flows` of a socket."""
        flows = self.table("flows")
        ports = (flows["local_port"] == sock.getsockname()[1]) & (flows["remote_port"] == sock.getpeername()[1])
        (row,) = np.flatnonzero(ports)
        return {name: column[row] for name, column in flows.items()}

    def counted(self, sock: socket.socket) -> tuple[int, int]:
        """Return the bytes sent and received by a socket: those noted as earlier, and those counted."""
        flow, wire = self.flow(sock), self.table("wire")
        totals = Counter[int]()
        mine = wire["flow_id"] == flow["flow_id"]
        for direction, count in zip(wire["direction"][mine], wire["payload_bytes"][mine], strict=True):
            totals[int(direction)] += int(count)
        return int(flow["earlier_sent_bytes"]) + totals[0], int(flow["earlier_received_bytes"]) + totals[1]

    def insist_exact(self, *socks: socket.socket, earlier: bool) -> None:
        """Compare what was counted with what the sockets report; unless `earlier`, nothing was missed at first."""
        for sock in socks:
            counted, told = self.counted(sock), reported(sock)
            insist(counted == told, f"{counted} bytes sent and received, TCP says {told}")
            if not earlier:
                insist(int(self.flow(sock)["earlier_sent_bytes"]) == 0, "the flow was seen too late")

    def last(self, name: str, sock: socket.socket) -> Table:
        """Return the last row of a table that is of a socket's flow."""
        rows = self.table(name)
        mine = np.flatnonzero(rows["flow_id"] == self.flow(sock)["flow_id"])
        insist(len(mine) > 0, f"no row in table {name}")
        return {column: values[mine[-1]] for column, values in rows.items()}


def flows_are_exact() -> str:
    """Connections that are older than the recording and that are not, both ways, with TCP's clocks and totals."""
    with FlowProbe(1_000_000) as probe, socket.create_server(HERE) as listener:
        say("packets", "plain reads" if probe.objects[0].constants["plain_reads"] else "a helper")
        old, recording = socket.create_connection(listener.getsockname()), Recording(probe)
        old_peer, _ = listener.accept()
        recording.begin()
        new = socket.create_connection(listener.getsockname())
        new_peer, _ = listener.accept()
        transfer(new, new_peer, 10_000_000)
        transfer(old, old_peer, 5_000_000)
        transfer(new_peer, new, 333_333)
        time.sleep(0.3)
        socks = (old, old_peer, new, new_peer)
        before = [clocks(sock) for sock in socks]
        recording.drain(final=True)
        after = [clocks(sock) for sock in socks]
        recording.insist_exact(*socks, earlier=False)
        if not described_by_kernel():
            return "exact"  # TCP's clocks and totals of a flow that rests are not known
        for low, sock, high in zip(before, socks, after, strict=True):
            row = recording.last("tcp", sock)
            sampled = tuple(int(row[name]) for name in ("busy_us", "rwnd_limited_us", "sndbuf_limited_us"))
            within = all(a <= b <= c for a, b, c in zip(low, sampled, high, strict=True))
            insist(within, f"TCP's clocks: {sampled} is not within {low} and {high}")
        for sock in socks:
            row = recording.last("totals", sock)
            for name in ("sent_bytes", "received_bytes", "resent_bytes"):
                insist(
                    row[name] == row[f"counted_{name}"], f"TCP's totals: {name} {row[name]}, {row[f'counted_{name}']}"
                )
        return "exact"


def adopted_are_exact() -> str:
    """Connections that the job came by unseen: one that waited to be accepted, one of a process added late."""
    with FlowProbe(1_000_000) as probe, socket.create_server(HERE) as listener:
        near, recording = socket.create_connection(listener.getsockname()), Recording(probe)
        near.sendall(bytes(1000))
        probe.follow(())  # of nobody yet
        recording.begin()
        far, _ = listener.accept()
        transfer(near, far, 2_000_000)
        far.recv(1000, socket.MSG_WAITALL)
        transfer(far, near, 3_000_000)
        time.sleep(0.3)
        recording.drain(final=True)
        recording.insist_exact(near, far, earlier=True)
        insist(int(recording.flow(near)["earlier_sent_bytes"]) == 1000, "what was sent before is not noted")
        return "exact"


def slots_are_used_again() -> str:
    """More connections than there are slots, in turns: each goes on where it stood."""
    with FlowProbe(1_000_000, max_flows=32) as probe, socket.create_server(HERE) as listener:
        recording, socks = Recording(probe), list[socket.socket]()
        recording.begin()

        def rest() -> bool:
            recording.drain()
            return probe._slots._in_use() <= 8

        for turn in range(3):
            if turn < 2:
                for _ in range(12):
                    socks += [socket.create_connection(listener.getsockname()), listener.accept()[0]]
            mine = socks[24:] if turn == 1 else socks[:24]
            for near, far in zip(mine[::2], mine[1::2], strict=True):
                transfer(near, far, 50_000 + turn)
            wait_until(rest, "silent flows keep their slots")
        recording.drain(final=True)
        recording.insist_exact(*socks, earlier=False)
        insist(probe.describe().losses.untracked_flows == 0, "flows found no slot")
        return "exact"


def starts_are_told() -> str:
    """The kernel tells of a program that is started."""
    starts = Starts()
    try:
        child = subprocess.Popen([sys.executable, "-S", "-c", ""])
        child.wait()
        pids, complete = starts.drain()
        insist(child.pid in pids and complete, f"{child.pid} is not among {sorted(pids)}")
        return "told"
    finally:
        starts.close()


MARKS = (
    Mark(MarkKind.DDP_FORWARD, "getppid", ()),
    Mark(MarkKind.DDP_BACKWARD, "getppid", ()),
    Mark(MarkKind.DDP_WAIT, "getppid", at_return=True),
)
LIBC = (Framework("libc", "libc.so.6", MARKS),)


def marks_fire() -> str:
    """Probe the entry of a function of libc, twice, and its return, in this process, and call it."""
    with MarkProbe([os.getpid()], frameworks=LIBC) as probe:
        for _ in range(CALLS):
            os.getppid()
        time.sleep(0.1)
        kinds = probe.drain()["marks"]["kind"].tolist()
        insist(kinds == [mark.kind for mark in MARKS] * CALLS, f"{len(kinds)} of {CALLS * len(MARKS)}")
        say("attached by", probe.method)
        say("hit", ", ".join(f"{name} {cost_ns / 1000:.1f}" for name, cost_ns in probe.costs.all().items()))
        return "all"


def rings_are_read_while_the_program_waits() -> str:
    """Many times the marks that the kernel's ring has room for, and nobody asks for them meanwhile."""
    rounds = 15
    with MarkProbe([os.getpid()], frameworks=LIBC, ring_bytes=4096) as probe:
        for _ in range(rounds):
            for _ in range(CALLS):
                os.getppid()
            time.sleep(0.2)
        wanted, kept = rounds * CALLS * len(MARKS), len(probe.drain()["marks"]["kind"])
        insist(kept == wanted and probe.lost() == 0, f"{kept} of {wanted}, {probe.lost()} lost")
        return "none lost"


def posts_are_counted() -> str:
    """What is posted to a network of NCCL's: a function of libc that does nothing much gets what its `isend` would."""
    mapping = next(each for each in executable_mappings(os.getpid()) if matches(each, "libc.so*"))
    library = open_library(os.getpid(), mapping)
    named = find_functions(library.descriptor, [HARMLESS]).functions[HARMLESS]
    entry = next(each for each in named if each.name == HARMLESS)
    call = Call(TRANSMIT, data=2, size=3, size_bytes=8, request=6)
    function = NetFunction(entry.offset, entry.code, call, NcclNetwork.PLUGIN, "libc", "here")
    post = getattr(ctypes.CDLL(None), HARMLESS)
    request, data = ctypes.c_void_p(), ctypes.create_string_buffer(8)
    where, sizes = ctypes.byref(request), (1, 5_000_000_000, 4096)
    targets = TargetMap()
    targets.add(os.getpid())
    shared = SimpleNamespace(targets=targets, bin_ns=1_000_000, series_ids=itertools.count())
    probe = nccl.NcclNetworkProbe(cast(Shared, shared))
    try:
        with mock.patch.object(nccl, "DEAR_NS", sys.maxsize):  # whatever it begins with: under QEMU all is dear
            probe._attach(NetLibrary(os.getpid(), library, (function,)))
        for size in sizes:
            for _ in range(2):  # asked again: the first time there was no room, since no request was written
                post(CONNECTION, data, ctypes.c_size_t(size), 0, None, where)
                time.sleep(0.002)
        rows = probe.drain(final=True)["nccl_posted"]
    finally:
        probe.close()
        library.close()
        targets.close()
    found = tuple(int(np.sum(rows[name])) for name in ("posted_bytes", "posts", "refused"))
    insist(found == (sum(sizes), len(sizes), len(sizes)), f"{found} bytes, posts and refused ones")
    insist(set(np.asarray(rows["connection"]).tolist()) == {CONNECTION}, "another connection")
    return "all"


CHECKS = {
    "flows": flows_are_exact,
    "adopted": adopted_are_exact,
    "slots": slots_are_used_again,
    "starts": starts_are_told,
    "marks": marks_fire,
    "ring": rings_are_read_while_the_program_waits,
    "posts": posts_are_counted,
}


def main() -> None:
    say("kernel", f"{platform.release()} {platform.machine()}")
    try:
        require_recording()
    except NetprofError as error:
        say("refused", f"{error.message} ({error.hint})")
        return
    for name, check in CHECKS.items():
        try:
            result = check()
        except WrongError as error:
            result = f"WRONG: {error}"
        except NetprofError as error:
            result = f"WRONG: {error.message} {error.detail[-1000:]}"
        except Exception as error:
            result = f"WRONG: {type(error).__name__}: {error}"
        say(name, result)
    say("done", "yes")


if __name__ == "__main__":
    main()
