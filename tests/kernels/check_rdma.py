"""Runs on a kernel with soft-RoCE: what does the RDMA probe say of a real transfer? See `run`.

Lines are as check.py's. The transfer's packets go to the second serial line as a capture, for `netprof capture`.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import struct
import subprocess
import termios
import threading
import time
import tty
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from netprof.model import Target
from netprof.probes.probe import Shared
from netprof.probes.rdma.probe import RdmaProbe

MODULES, CAPTURE_LINE = Path("/modules"), "/dev/ttyS1"
MESSAGES, MESSAGE_BYTES = 3000, 4096
SNAP_BYTES, ROCE_PORT = 80, 4791
WAIT_S = 240
DEVICES = ("rxe0", "rxe1")
ADDRESSES = ("10.9.0.1", "10.9.0.2")
PORTS = [Path(f"/sys/class/infiniband/{name}/ports/1") for name in DEVICES]


class WrongError(Exception):
    """Something is not as it should be."""


def say(name: str, result: str) -> None:
    print(f"check: {name}: {result}", flush=True)


def insist(right: bool, otherwise: str) -> None:
    if not right:
        raise WrongError(otherwise)


def command(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    insist(done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"[-500:])
    return done.stdout


def make_devices() -> str:
    """Load soft-RoCE, and put two devices at the ends of a wire, so that nothing takes a short way past it."""
    Path("/run").mkdir(exist_ok=True)
    for name in (MODULES / "order").read_text().split():
        command("/bin/busybox", "insmod", str(MODULES / f"{name}.ko"))
    command("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
    for number, address in enumerate(ADDRESSES):
        device, other = f"v{number}", ADDRESSES[1 - number]
        Path(f"/proc/sys/net/ipv4/conf/{device}/accept_local").write_text("1")
        command("ip", "address", "add", f"{address}/32", "dev", device)
        command("ip", "link", "set", device, "up")
        command("ip", "rule", "add", "pref", str(1 + number), "iif", device, "lookup", "local")
        command("ip", "rule", "add", "pref", str(3 + number), "from", address, "to", other, "lookup", str(101 + number))
        command("ip", "route", "add", other, "dev", device, "src", address, "table", str(101 + number))
    command("ip", "rule", "add", "pref", "100", "lookup", "local")
    command("ip", "rule", "del", "pref", "0")
    for number, name in enumerate(DEVICES):
        command("rdma", "link", "add", name, "type", "rxe", "netdev", f"v{number}")
    return ", ".join(line.strip() for line in command("rdma", "link", "show").splitlines())


def address_of(number: int) -> list[str]:
    """Return how a program is told which end of the wire it is at."""
    wanted = "".join(f"{int(part):02x}" for part in ADDRESSES[number].split("."))
    gids = {file.name: file.read_text().replace(":", "").strip() for file in (PORTS[number] / "gids").iterdir()}
    (index,) = (name for name, gid in gids.items() if gid.endswith(f"ffff{wanted}"))
    return ["-d", DEVICES[number], "-x", index, "-F", "-p", "18600", "-s", str(MESSAGE_BYTES)]


TRANSFER = ["ib_write_bw", "-n", str(MESSAGES)]
TRANSFER += ["--rate_limit", "1", "--rate_units", "M", "--rate_limit_type", "SW"]
"""A megabyte a second, so that it takes a while."""


class Packets:
    """Captures RoCE's packets as they arrive anywhere, as tcpdump would."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int, bytes]] = []
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
        self._socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        self._socket.settimeout(0.2)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        while True:
            try:
                data, about = self._socket.recvfrom(1 << 16)
            except TimeoutError:
                if self._over.is_set():
                    return
                continue
            is_roce = (
                data[12:14] == b"\x08\0"
                and data[23] == socket.IPPROTO_UDP
                and struct.unpack_from("!H", data, 36)[0] == ROCE_PORT
            )
            if is_roce and about[2] != socket.PACKET_OUTGOING:
                self.found.append((time.time_ns(), len(data), data[:SNAP_BYTES]))

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def send(self) -> None:
        """Hand the capture over."""
        parts = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAP_BYTES, 1)]
        for time_ns, length, data in self.found:
            parts.append(struct.pack("<IIII", *divmod(time_ns, 10**9), len(data), length) + data)
        with open(CAPTURE_LINE, "wb", buffering=0) as line:
            tty.setraw(line.fileno())
            left = memoryview(b"".join(parts))
            while left:
                left = left[line.write(left[:4096]) or 0 :]
            termios.tcdrain(line.fileno())


class SlowMachineProbe(RdmaProbe):
    """What takes a thousandth of a real core takes a tenth of this one."""

    budget = look_budget = 1.0


class Recording:
    """What the probe says of some processes."""

    def __init__(self) -> None:
        about = SimpleNamespace(rank_of=lambda pid: -1, series_ids=count(), line_rate_bps=None, devices=())
        self.probe = SlowMachineProbe.open(cast(Shared, about))
        self.flows: dict[int, dict[str, Any]] = {}
        self.values: dict[int, int] = {}

    def drain(self, *, final: bool = False) -> None:
        found = self.probe.drain(final=final)
        for row in zip(*found.get("flows", {}).values(), strict=True):
            flow = dict(zip(found["flows"], row, strict=True))
            self.flows[flow["flow_id"]] = flow
        counters = found["counters"]
        self.values |= dict(zip(counters["series"], counters["value"], strict=True))

    def reported(self, name: str) -> int:
        """Return what all ports together counted."""
        return sum(self.values[each.id] for each in self.probe.describe().series if each.name == name)


def start(*words: str) -> subprocess.Popen[str]:
    """Start one end of a transfer, behind all others: it looks for messages all the time."""
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=lambda: os.nice(19)
    )


def transfer(packets: Packets | None = None) -> tuple[Recording, list[int]]:
    """Move messages, and watch who does it."""
    recording = Recording()
    server = start(*TRANSFER, *address_of(1))
    try:
        time.sleep(1)
        recording.probe.follow([Target(server.pid, 1)])
        client = start(*TRANSFER, *address_of(0), "127.0.0.1")
        recording.probe.follow([Target(server.pid, 1), Target(client.pid, 1)])
        deadline_s = time.monotonic() + WAIT_S
        while client.poll() is None:
            insist(time.monotonic() < deadline_s, "the transfer does not end")
            time.sleep(0.1)
            recording.drain()
        said = client.communicate()[0]
        insist(client.returncode == 0, said[-500:])
        server.wait(20)
    finally:
        server.kill()
        if packets is not None:
            packets.stop()
    return recording, [server.pid, client.pid]


def is_seen(recording: Recording, packets: Packets, pids: list[int]) -> None:
    """Compare what the probe said with the packets on the wire."""
    flows = list(recording.flows.values())
    ends = {flow["pid"]: (flow["local_queue_pair"], flow["remote_queue_pair"]) for flow in flows}
    insist(set(ends) == set(pids), f"queue pairs of {sorted(ends)}, not of {pids}: {recording.probe.describe()}")
    insist(ends[pids[0]] == ends[pids[1]][::-1], f"queue pairs that are not each other's: {ends}")
    say("queue pairs", f"{ends[pids[0]][0]} and {ends[pids[0]][1]}, of both processes")
    sent = recording.reported("packets_sent")
    insist(sent == len(packets.found), f"{sent} packets counted, {len(packets.found)} on the wire")
    say("packets", f"{sent}, as on the wire")
    say("capture", f"{ADDRESSES[1]} QP {ends[pids[1]][1]}, {MESSAGES * MESSAGE_BYTES}")  # the server's


def period_of(recording: Recording) -> float:
    (started,) = recording.probe.describe().started
    found = re.search(r"values change every ([0-9.]+) ms", started.detail)
    insist(found is not None, f"not measured: {started.detail}")
    say("read", started.detail)
    return float(found[1]) if found else 0.0


def judge() -> None:
    say("device", make_devices())
    packets = Packets()
    watched, pids = transfer(packets)
    watched.drain(final=True)
    is_seen(watched, packets, pids)
    watched.probe.close()
    packets.send()
    usual, _ = transfer()
    usual.drain(final=True)
    held_ms = [int((port / "hw_counters" / "lifespan").read_text()) for port in PORTS]
    say("period", f"{period_of(usual)} ms, the kernel says {held_ms[0]}")
    usual.probe.close()
    insist(threading.active_count() == 1, f"threads are left: {threading.enumerate()}")
    say("detach", "nothing is left")


def main() -> None:
    say("kernel", f"{platform.release()} {platform.machine()}")
    os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    try:
        judge()
        say("done", "yes")
    except WrongError as error:
        say("rdma", f"WRONG: {error}")
    except Exception as error:
        say("rdma", f"WRONG: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
