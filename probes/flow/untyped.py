"""Adoption on kernels without type information: their sockets are found through /proc, and asked by themselves.

Each socket that a process of the job holds is borrowed for a moment (pidfd_getfd), to read its cookie and TCP_INFO; the
programs of untyped.bpf.c adopt it, by its cookie, with the next packet that it receives.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.probes.flow.slots import FLOW, Slots
from netprof.probes.kernel.btf import layout
from netprof.probes.kernel.loader import BpfObject, map_keys, map_update, u32
from netprof.probes.kernel.targets import TargetMap

UNTYPED = "flow/untyped"
"""The object whose sockets are found in this way."""

WITHOUT_TYPES = "Bytes are exact; TCP's own totals and clocks are only known while packets pass and at a flow's end"
"""What a recording in this way lacks."""

LOOK_EVERY_S = 0.4
_PIDFD_GETFD = 438  # on every machine
_SO_COOKIE, _COOKIE_BYTES = 57, 8
_LISTENING, _CLOSED = 10, 7  # of TCP_INFO's state
_FOUND_SOCKET = layout(UNTYPED, "found")


class UntypedAdoption:
    """Names the sockets that the job's processes hold, each once; as `Adoption`."""

    def __init__(self, loaded: BpfObject, targets: TargetMap, slots: Slots) -> None:
        self._object, self._targets, self._slots = loaded, targets, slots
        self._known: set[str] = set()  # by the name of their file
        self._named: dict[bytes, NDArray[Any]] = {}  # by cookie: its flow (FLOW), as it was found
        self._next_s = 0.0

    def begin(self) -> int:
        """Name all that is there, and return when that was done (CLOCK_MONOTONIC ns): what comes later is late."""
        self.look()
        self._object.set_counter("late", 1)
        return time.monotonic_ns()

    def look_if_due(self) -> None:
        """Look again, if that was not done just now."""
        if time.monotonic() >= self._next_s:
            self.look()

    def look(self) -> bool:
        """Name every socket that is not known yet; tell whether there was any."""
        self._next_s = time.monotonic() + LOOK_EVERY_S
        before, held = self._known, set[str]()
        for pid in self._targets.pids():
            with suppress(OSError):
                held |= self._look_at(pid, before)
        self._known = held
        self._object.set_counter("to_adopt", len(self._named))
        return not held <= before

    def silent(self) -> NDArray[Any]:
        """Return the flows (FLOW) that have moved something before they were found, and nothing since."""
        left = set(map_keys(self._object.map_fd("found_sockets"), _COOKIE_BYTES))
        flows: NDArray[Any] = np.array([flow for cookie, flow in self._named.items() if cookie in left], dtype=FLOW)
        past = flows["adoption"]
        flows = flows[past["sent_bytes"] + past["received_bytes"] > 0]
        flows["id"] = self._object.counters("next_flow_id")["next_flow_id"] + 1 + np.arange(len(flows))
        return flows

    def _look_at(self, pid: int, known: set[str]) -> set[str]:
        """Name the sockets of a process that are not known; return all that it holds."""
        held = {str(Path(entry.path).readlink()): int(entry.name) for entry in os.scandir(f"/proc/{pid}/fd")}
        held = {name: descriptor for name, descriptor in held.items() if name.startswith("socket:")}
        fresh = [descriptor for name, descriptor in held.items() if name not in known]
        if fresh:
            seen = set(_ends(self._slots.used()))  # from their first packet on
            for borrowed in _borrowed(pid, fresh):
                self._name(pid, borrowed, seen)
        return set(held)

    def _name(self, pid: int, held: socket.socket, seen: set[bytes]) -> None:
        if held.family not in (socket.AF_INET, socket.AF_INET6) or held.proto != socket.IPPROTO_TCP:
            return
        info = held.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        if info[0] == _LISTENING:
            netns, port = Path(f"/proc/{pid}/ns/net").stat().st_ino, held.getsockname()[1]
            map_update(self._object.map_fd("listeners"), struct.pack("II", netns, port), u32(pid))
        elif info[0] != _CLOSED:
            cookie = held.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, _COOKIE_BYTES)
            flow = _flow(pid, held, _past(info))
            if _ends(flow[None])[0] in seen:
                return
            entry = np.array((flow["adoption"], pid, 0), dtype=_FOUND_SOCKET)
            map_update(self._object.map_fd("found_sockets"), cookie, entry.tobytes())
            self._named[cookie] = flow


def _past(info: bytes) -> tuple[int, ...]:
    """Return what TCP_INFO says that a socket has moved (`struct adoption`)."""
    received, sent, again = (struct.unpack_from("Q", info, offset)[0] for offset in (128, 200, 208))
    sent_packets, received_packets = struct.unpack_from("II", info, 136)
    return time.monotonic_ns(), sent - again, again, received, sent_packets, received_packets


def _ends(flows: NDArray[Any]) -> list[bytes]:
    """Return what tells each flow (FLOW) from others at one time."""
    from numpy.lib.recfunctions import repack_fields  # with numpy.ma, which takes 10 ms to import

    packed = repack_fields(flows[["netns", "local_port", "remote_port", "local_addr", "remote_addr"]])
    ends: list[bytes] = packed.view(f"V{packed.itemsize}").tolist()
    return ends


def _flow(pid: int, held: socket.socket, past: tuple[int, ...]) -> NDArray[Any]:
    """Return a flow as the programs would note it (FLOW); its device is not known."""
    flow = np.zeros((), FLOW)
    flow["pid"], flow["family"], flow["adoption"] = pid, held.family, past
    flow["netns"] = Path(f"/proc/{pid}/ns/net").stat().st_ino
    for side, name in (("local", held.getsockname()), ("remote", held.getpeername())):
        flow[f"{side}_port"] = name[1]
        flow[f"{side}_addr"] = np.frombuffer(socket.inet_pton(held.family, name[0]).ljust(16, b"\0"), np.uint8)
    return flow


def _borrowed(pid: int, descriptors: Iterable[int]) -> Iterator[socket.socket]:
    """Yield sockets that a process holds, each open for as long as it is looked at."""
    libc, process = ctypes.CDLL(None, use_errno=True), os.pidfd_open(pid)
    try:
        for descriptor in descriptors:
            copy = int(libc.syscall(_PIDFD_GETFD, process, descriptor, 0))
            if copy >= 0:
                with suppress(OSError), socket.socket(fileno=copy) as held:
                    yield held
    finally:
        os.close(process)
