"""Bursts of known bytes and times between two places, driven by a test; see tests/programs/burst.py."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lab import NETNS_DIR

from netprof.model import Losses
from netprof.probes.flow.probe import FlowProbe
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.schema import RECEIVE, TRANSMIT

BURST = Path(__file__).parents[1] / "programs" / "burst.py"
_TIMEOUT_S = 60


class Peer:
    """One running burst.py, and what it has said."""

    def __init__(self, popen: Callable[..., subprocess.Popen[str]], *arguments: str) -> None:
        self.process = popen(
            [sys.executable, str(BURST), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.said: list[dict[str, Any]] = []
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def until(self, event: str) -> dict[str, Any]:
        """Read on until `event` is said, and return it."""
        while True:
            line: dict[str, Any] = json.loads(self._lines.get(timeout=_TIMEOUT_S))
            self.said.append(line)
            if line["event"] == event:
                return line

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.said if line["event"] == name]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)


@dataclass
class Recorded:
    """What the flow probe saw: flows by their local and remote port, and all rows of table `wire`."""

    flows: dict[tuple[int, int], dict[str, Any]]
    wire: dict[str, np.ndarray]
    losses: Losses

    def rows(self, flow: dict[str, Any], direction: int) -> dict[str, np.ndarray]:
        mine = (self.wire["flow_id"] == flow["flow_id"]) & (self.wire["direction"] == direction)
        order = np.argsort(self.wire["bin_start_ns"][mine])
        return {name: column[mine][order] for name, column in self.wire.items()}

    def total(self, flow: dict[str, Any], direction: int, column: str = "payload_bytes") -> int:
        return int(self.rows(flow, direction)[column].sum())


class Collector:
    """Drains a flow probe like the recorder does, on a thread of its own."""

    def __init__(self, probe: FlowProbe) -> None:
        self.probe = probe
        self._flows: list[Mapping[str, Any]] = []
        self._wire: list[dict[str, np.ndarray]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def finish(self) -> Recorded:
        time.sleep(0.05)
        self._ended.set()
        self._thread.join()
        wire = {name: np.concatenate([part[name] for part in self._wire]) for name in self._wire[0]}
        flows = {(row["local_port"], row["remote_port"]): row for part in self._flows for row in as_rows(part)}
        return Recorded(flows, wire, self.probe.describe().losses)

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            self._take(final=False)
        self._take(final=True)

    def _take(self, *, final: bool) -> None:
        drained = self.probe.drain(final=final)
        self._wire.append(dict(drained["wire"]))
        self._flows.append(drained["flows"])


def as_rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a table, one by one."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def assert_exact(recorded: Recorded, finished: dict[str, Any], pid: int) -> None:
    """Compare every flow of a peer's TCP_INFO report with what was recorded, in both directions, to the byte."""
    for sock in finished["flows"]:
        flow = recorded.flows[sock["local_port"], sock["remote_port"]]
        assert flow["pid"] == pid
        assert (flow["local_addr"], flow["remote_addr"]) == (sock["local_addr"], sock["remote_addr"])
        assert recorded.total(flow, TRANSMIT) == sock["tcp"]["bytes_sent"] - sock["tcp"]["bytes_retrans"]
        assert recorded.total(flow, RECEIVE) == sock["tcp"]["bytes_received"]


class Capture:
    """An independent witness: the kernel's own time stamps of the TCP packets that leave a device."""

    def __init__(self, netns: str, device: str) -> None:
        with NetworkNamespace(os.open(NETNS_DIR / netns, os.O_RDONLY)) as namespace:
            self._socket = namespace.run(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.bind((device, 3))
        self._offset_ns = time.monotonic_ns() - time.time_ns()

    def packets(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (monotonic ns, new payload bytes) of every packet that left with new data; ends the capture."""
        found: list[tuple[int, int]] = []
        next_sequence = 0
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                data, extra, _flags, address = self._socket.recvmsg(96, 64, socket.MSG_TRUNC)
                sequence, payload = _tcp_payload(data)
                if address[2] != socket.PACKET_OUTGOING or not payload:
                    continue
                end = sequence + payload
                fresh = (end - next_sequence) % 2**32 if found else payload
                if fresh < 2**31 and fresh:  # not a retransmission
                    next_sequence = end
                    seconds, nanoseconds = struct.unpack("qq", extra[0][2])
                    found.append((seconds * 1_000_000_000 + nanoseconds + self._offset_ns, fresh))
        self._socket.close()
        times, sizes = np.array(found, dtype=np.int64).T
        return times, sizes


_SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 35, 33


def _tcp_payload(frame: bytes) -> tuple[int, int]:
    """Return the sequence number and payload bytes of an Ethernet frame with IPv4 and TCP, (0, 0) for any other."""
    if frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_TCP:
        return 0, 0
    ip_header = (frame[14] & 15) * 4
    tcp_header = (frame[14 + ip_header + 12] >> 4) * 4
    (total,) = struct.unpack_from("!H", frame, 16)
    (sequence,) = struct.unpack_from("!I", frame, 14 + ip_header + 4)
    return sequence, total - ip_header - tcp_header
