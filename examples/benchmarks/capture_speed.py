"""How fast a packet capture is read: a capture's packets again and again, at later times and on other ports.

    python examples/benchmarks/capture_speed.py [CAPTURE.pcap] [--packets 10000000] [--place DIR]

CAPTURE is a pcap file of Ethernet, as tcpdump -w writes it; without one, tcpdump captures some seconds of a connection
between two network namespaces, which takes root. Prints packets, size, time and peak memory of
`netprof capture`, the report not included; the target is 10 million packets in 60 s and 1 GB.
"""

from __future__ import annotations

import argparse
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _places  # noqa: F401 - finds lab
import numpy as np
from lab import NETNS_DIR, Lab

from netprof.probes.capture.file import CaptureFile
from netprof.probes.capture.packets import Packets
from netprof.session.capture import CaptureOptions, import_capture

_TCP_PORTS_AT = 34  # behind Ethernet and IPv4 without options


_OWN_PACKETS = 20_000
_RECEIVE = """
import socket
server = socket.create_server(("", 9000))
print(flush=True)
peer = server.accept()[0]
while peer.recv(9000):
    pass
"""
_SEND = "import socket, sys; c = socket.create_connection((sys.argv[1], 9000))\nwhile True: c.send(bytes(9000))"


def captured(path: Path) -> Path:
    """Capture packets of a connection that is as fast as it can be; returns the path."""
    with Lab(2) as lab:
        receiver = lab[1].popen([sys.executable, "-c", _RECEIVE], stdout=subprocess.PIPE, text=True)
        assert receiver.stdout is not None
        receiver.stdout.readline()
        sender = lab[0].popen([sys.executable, "-c", _SEND, lab[1].ipv4])
        command = ["nsenter", f"--net={NETNS_DIR / lab[0].netns}", "--", "tcpdump", "-i", lab[0].device, "-Z", "root"]
        subprocess.run([*command, "-s", "96", "-c", str(_OWN_PACKETS), "-w", str(path), "tcp"], check=True)
        for each in (sender, receiver):
            each.kill()
            each.wait()
    return path


def repeat(capture: Path, packets: int, out: Path) -> int:
    """Write a pcap with at least so many packets: rounds of a capture, each later and from other ports."""
    with CaptureFile(capture) as file:
        blocks = [_records(block) for block in file.blocks()]
    first_s = struct.unpack_from("<I", blocks[0][0])[0]
    last_s = max(struct.unpack_from("<I", data, int(places[-1]))[0] for data, places in blocks)
    written = 0
    with out.open("wb") as target:
        target.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        for turn in range(10**6):
            for data, places in blocks:
                target.write(_changed(data, places, turn, turn * (last_s - first_s + 1)))
                written += len(places)
            if written >= packets:
                return written
    return written


def _records(packets: Packets) -> tuple[bytes, np.ndarray]:
    """Return the packets of a block as records of a pcap file in nanoseconds, and where each begins."""
    parts = []
    for row in range(len(packets)):
        seconds, part_ns = divmod(int(packets.time_ns[row]), 10**9)
        data = packets.bytes_of(row)
        parts.append(struct.pack("<IIII", seconds, part_ns, len(data), int(packets.length[row])) + data)
    return b"".join(parts), np.cumsum([0, *(len(part) for part in parts)])[:-1]


def _changed(data: bytes, places: np.ndarray, turn: int, later_s: int) -> bytes:
    """Return the same records so much later, on ports that depend on the turn."""
    fresh = np.frombuffer(data, np.uint8).copy()
    seconds = fresh[places[:, None] + np.arange(4)].copy().view("<u4")[:, 0] + np.uint32(later_s)
    fresh[places[:, None] + np.arange(4)] = seconds.astype("<u4")[:, None].view(np.uint8)
    ports_at = places + 16 + _TCP_PORTS_AT
    enough = ports_at + 4 <= len(fresh)
    for high in (ports_at[enough], ports_at[enough] + 2):
        fresh[high] ^= np.uint8(turn % 64)
        fresh[high + 1] ^= np.uint8(turn // 64 % 256)
    return bytes(fresh.data)


def main() -> None:
    """Make the capture, read it, print how long that took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("capture", type=Path, nargs="?")
    parser.add_argument("--packets", type=int, default=10_000_000)
    parser.add_argument("--place", type=Path, help="where the files go, with room for them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.place) as folder:
        large = Path(folder) / "large.pcap"
        packets = repeat(options.capture or captured(Path(folder) / "own.pcap"), options.packets, large)
        before = time.monotonic()
        child = os.fork()
        if child == 0:
            import_capture(large, Path(folder) / "t", CaptureOptions(1_000_000), lambda done, total: None)
            os._exit(0)
        _, status, usage = os.wait4(child, 0)
        wall_s = time.monotonic() - before
        size = large.stat().st_size
    if status:
        sys.exit("the capture could not be read")
    print(f"{packets} packets, {size / 1e9:.2f} GB: {wall_s:.1f} s, {usage.ru_utime + usage.ru_stime:.1f} s of CPU,")
    print(f"{packets / wall_s / 1e6:.2f} million packets a second, {usage.ru_maxrss / 1024:.0f} MB at most")
    print(f"this process before it: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
