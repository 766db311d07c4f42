"""A TCP peer made of raw packets, mostly ones that no proper peer would send: python raw_peer.py DEVICE ... (below).

It opens a connection from an address that is no host's, sends packets of random kinds, then what is missing of its
stream, takes what comes, and resets. Prints a line of JSON when done: what it sent, by kind.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import struct
import time
from collections import Counter
from ipaddress import IPv4Address

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
_MASK = (1 << 32) - 1
_MOST_BYTES = 400


class RawPeer:
    """One end of a connection; `taken` is the number of the byte that it awaits, `sent` of the next one of its own."""

    def __init__(self, device: str, macs: tuple[bytes, bytes], ends: tuple[str, int, str, int], seed: int) -> None:
        self._wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self._wire.bind((device, 0))
        self._wire.settimeout(0.002)
        self._ethernet = macs[1] + macs[0] + b"\x08\x00"
        self.local, self.port, self.remote, self.remote_port = ends
        self.random = random.Random(seed)
        self.first = self.sent = self.random.choice((self.random.getrandbits(32), _MASK - 3_000_000, 1 << 31))
        self.taken, self.acked, self.window, self.kinds = 0, 0, 65535, Counter[str]()

    def put(self, flags: int, sequence: int, acknowledged: int, payload: bytes = b"", window: int = 60_000) -> None:
        """Send a packet."""
        ends = IPv4Address(self.local).packed + IPv4Address(self.remote).packed
        header = struct.pack(
            "!HHIIBBHHH",
            self.port,
            self.remote_port,
            sequence & _MASK,
            acknowledged & _MASK,
            5 << 4,
            flags,
            window,
            0,
            0,
        )
        whole = header + payload
        check = _checksum(ends + struct.pack("!BBH", 0, 6, len(whole)) + whole)
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(whole), 0, 0, 64, 6, 0) + ends
        ip = ip[:10] + struct.pack("!H", _checksum(ip)) + ip[12:]
        self._wire.send(self._ethernet + ip + whole[:16] + struct.pack("!H", check) + whole[18:])

    def listen(self, seconds: float) -> None:
        """Take what comes: the highest acknowledgement is trusted, the stream is taken in order."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                frame, about = self._wire.recvfrom(65536)
            except TimeoutError:
                continue
            if about[2] == socket.PACKET_OUTGOING or frame[23] != 6 or frame[26:30] != IPv4Address(self.remote).packed:
                continue
            start = 14 + (frame[14] & 15) * 4
            source, port, sequence, acknowledged, offset, flags, window = struct.unpack_from("!HHIIBBH", frame, start)
            if (source, port) != (self.remote_port, self.port):
                continue
            length = 14 + struct.unpack_from("!H", frame, 16)[0] - start - (offset >> 4) * 4
            if flags & SYN:
                self.taken = sequence + 1
            elif sequence <= self.taken < sequence + length:
                self.taken = (sequence + length) & _MASK
            self.window = window
            self.acked = acknowledged if flags & ACK else self.acked

    def connect(self) -> None:
        """Shake hands."""
        while not self.taken:
            self.put(SYN, self.sent, 0)
            self.listen(0.05)
        self.sent += 1
        self.put(ACK, self.sent, self.taken)

    def do(self, kind: str) -> None:
        """Send a packet of a kind."""
        r, data = self.random, self.random.randbytes(self.random.randint(1, _MOST_BYTES))
        anywhere, ahead, long_ago = r.getrandbits(32), r.randint(70_000, 1 << 30), r.randint(70_000, 1 << 30)
        new = min(self.sent + r.choice((0, 0, 0, r.randint(1, 3 * _MOST_BYTES))), self._edge - len(data))
        self.kinds[kind] += 1
        match kind:
            case "data" | "hole":
                at = self.sent if kind == "data" else new
                if at + len(data) > self._edge:
                    return
                self.put(ACK | PSH, at, self.taken, data)
                self._reached(at + len(data))
            case "again":
                self.put(ACK, max(self.first + 1, self.sent - r.randint(1, 3 * _MOST_BYTES)), self.taken, data[:1])
            case "keep-alive":
                self.put(
                    ACK, self.sent - 1, self.taken, data[:1] if r.random() < 0.5 and self.sent > self.first + 1 else b""
                )
            case "reset without ACK":
                self.put(
                    RST,
                    r.choice((anywhere, self.sent + 500)),
                    r.choice((0, anywhere, self.taken + 5000)),
                    r.choice((b"", data)),
                )
            case "reset":
                self.put(
                    RST | ACK, r.choice((self.sent - long_ago, self.sent + ahead)), self.taken + r.randint(0, 9), data
                )
            case "SYN":
                self.put(
                    r.choice((SYN, SYN | ACK)), r.choice((self.sent, anywhere)), r.choice((0, self.taken, anywhere))
                )
            case "beyond the window":
                self.put(ACK, self.sent + ahead, self.taken, data)
            case "before the window":
                self.put(ACK, self.sent - long_ago, self.taken, data)
            case "never sent":
                self.put(ACK, self.sent, self.taken + r.randint(1 << 20, 1 << 30), r.choice((b"", data)))
            case "long ago":
                self.put(ACK, self.sent, self.taken - r.randint(1 << 20, 1 << 30), r.choice((b"", data)))
            case "without ACK":
                self.put(r.choice((0, PSH, 32)), self.sent, anywhere, data)
            case "no room":
                at = self._at(self.acked or self.sent) + self.window - r.choice((0, 0, len(data) // 2))
                data = data[: r.choice((1, len(data)))]
                self.put(ACK, at, self.taken, data)
                self._reached(at + len(data))
            case "FIN elsewhere":
                self.put(FIN | ACK, self.sent + ahead, self.taken, data)

    @property
    def _edge(self) -> int:
        """Where the window ends, at least, as it was last said; no packet that is meant crosses it."""
        return self.sent + max(0, self.window - 4 * _MOST_BYTES)

    def _reached(self, end: int) -> None:
        self.sent = max(self.sent, end)

    def fill(self) -> None:
        """Send the whole stream again as there is room, so that no hole is left, take all that comes, and reset."""
        self.put(ACK, self.sent, self.taken)
        self.listen(0.02)
        for _ in range(200):
            begin, room = self._at(self.acked), max(self.window, 1)
            if begin >= self.sent:
                break
            for at in range(begin, min(self.sent, begin + room), _MOST_BYTES):
                self.put(ACK, at, self.taken, bytes(min(_MOST_BYTES, self.sent - at, begin + room - at)))
            self.listen(0.02)
        for _ in range(20):
            self.listen(0.01)
            self.put(ACK, self.sent, self.taken)
        for _ in range(20):
            self.put(RST | ACK, self.acked, self.taken)  # what TCP took, of odd packets too

    def _at(self, sequence: int) -> int:
        """Return a sequence number as one that does not wrap, near what was sent."""
        return self.sent + ((sequence - self.sent + (1 << 31)) & _MASK) - (1 << 31)


KINDS = (
    "data",
    "hole",
    "again",
    "keep-alive",
    "reset without ACK",
    "reset",
    "SYN",
    "beyond the window",
    "before the window",
    "never sent",
    "long ago",
    "without ACK",
    "no room",
    "FIN elsewhere",
)


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device")
    parser.add_argument("local_mac")
    parser.add_argument("remote_mac")
    parser.add_argument("local")
    parser.add_argument("remote")
    parser.add_argument("remote_port", type=int)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--packets", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    macs = tuple(bytes.fromhex(each.replace(":", "")) for each in (options.local_mac, options.remote_mac))
    kinds: Counter[str] = Counter()
    for number in range(options.connections):
        ends = options.local, 20_000 + options.seed % 1000 * 40 + number, options.remote, options.remote_port
        peer = RawPeer(options.device, (macs[0], macs[1]), ends, options.seed * 1000 + number)
        peer.connect()
        for _ in range(options.packets):
            peer.do(peer.random.choice(options.kinds.split(",")))
            if peer.random.random() < 0.1:
                peer.listen(0.003)
        peer.fill()
        kinds += peer.kinds
    print(json.dumps(kinds), flush=True)


if __name__ == "__main__":
    main()
