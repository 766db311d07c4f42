"""Hostile packet captures: pcap and pcapng with lengths, times, headers and options that no program wrote."""

from __future__ import annotations

import gzip
import random
import struct
from functools import lru_cache
from pathlib import Path

from scapy.contrib import roce
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Dot1Q, Ether
from scapy.packet import Packet, Raw

from fuzz.values import flip

CAPTURE = "a.capture"
BEGAN_NS = 1_700_000_000_000_000_000  # as the recording that may lie beside it: `synthetic`
_LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
_ENDS = (("10.0.0.1", 40_000), ("10.0.0.2", 40_001))
_EDGES_32 = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_ORDERS = ("<", ">")


def make_capture(rng: random.Random, place: Path) -> None:
    """Write a capture of which some packets, their headers or the file are damaged."""
    datas = [_damaged(rng, data) if rng.random() < 0.1 else data for data in packets()]
    for _ in range(rng.choice((0, 1, 3))):
        how, at = rng.randrange(3), rng.randrange(len(datas) + 1)
        if how == 0:
            rng.shuffle(datas)
        elif how == 1:
            datas[at:at] = datas[at : at + 1] * rng.choice((1, 5, 100))
        else:
            del datas[at:]
    order = rng.choice(_ORDERS)
    file = _pcap(rng, order, datas) if rng.random() < 0.5 else _pcapng(rng, order, datas)
    (place / CAPTURE).write_bytes(gzip.compress(file, 1) if rng.random() < 0.1 else file)
    if rng.random() < 0.3:
        flip(rng, place / CAPTURE)


@lru_cache(maxsize=1)
def packets() -> tuple[bytes, ...]:
    """Return what is damaged: a TCP stream each way, IPv6, VLAN, a tunnel, RDMA, what is of no stream."""
    made: list[Packet] = []
    for number in range(12):
        for near, far in (_ENDS, _ENDS[::-1]):
            ip = _LINK / IP(src=near[0], dst=far[0])
            flags = "S" if number == 0 else "PA"
            options = [("MSS", 1460), ("WScale", 7)] if number == 0 else []
            tcp = TCP(sport=near[1], dport=far[1], seq=1000 * number, ack=1000 * number, flags=flags, options=options)
            made.append(ip / tcp / Raw(bytes(1000)))
    for number in range(4):
        made.append(_LINK / IPv6(src="fd00::1", dst="fd00::2") / TCP(sport=1, dport=2, seq=number) / Raw(bytes(50)))
        made.append(_LINK / Dot1Q(vlan=5) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=3, dport=4) / Raw(bytes(9)))
        inner = IP(src="10.9.0.1", dst="10.9.0.2") / TCP(sport=5, dport=6) / Raw(bytes(9))
        made.append(_LINK / IP(src="10.0.0.1", dst="10.0.0.2") / GRE() / inner)
        rdma = UDP(sport=49152, dport=4791) / roce.BTH(opcode=4, dqpn=17, psn=number) / Raw(bytes(100))
        made.append(_LINK / IP(src="10.0.0.1", dst="10.0.0.2") / rdma)
        made.append(_LINK / IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / Raw(bytes(9)))
    return tuple(bytes(each) for each in made)


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Change a byte or a number of a packet's headers, or cut it."""
    changed, at = bytearray(data), rng.randrange(min(80, len(data) - 4))
    how = rng.randrange(4)
    if how == 0:
        changed[at] = rng.choice((0, 1, 4, 0x45, 0x4F, 0x60, 127, 255))
    elif how == 1:
        changed[at : at + 2] = struct.pack(">H", rng.choice((0, 1, 20, 0x0800, 0x8100, 0x86DD, 0x8847, 4791, 65535)))
    elif how == 2:
        changed[at : at + 4] = struct.pack(">I", rng.choice(_EDGES_32))
    else:
        del changed[at:]
    return bytes(changed)


def _time_ns(rng: random.Random, number: int) -> int:
    usual = BEGAN_NS + number * rng.choice((0, 1, 100_000))
    return usual if rng.random() < 0.98 else rng.choice((0, 1, usual - 10**9, usual + 10**18, (1 << 62) - 1))


def _pcap(rng: random.Random, order: str, datas: list[bytes]) -> bytes:
    magic, unit_ns = rng.choice(((0xA1B2C3D4, 1000), (0xA1B23C4D, 1)))
    snap, link = rng.choice((0, 65535, 0xFFFFFFFF)), rng.choice((1, 1, 1, 1, 0, 12, 101, 113, 276, 250))
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snap, link)]
    for number, data in enumerate(datas):
        seconds, rest_ns = divmod(_time_ns(rng, number), 10**9)
        sizes = [len(data), len(data)]
        if rng.random() < 0.02:
            sizes[rng.randrange(2)] = rng.choice((0, 1, max(0, len(data) - 1), len(data) + 1, 65536, *_EDGES_32))
        fraction = rest_ns // unit_ns if rng.random() < 0.99 else rng.choice(_EDGES_32)
        parts += [struct.pack(order + "IIII", seconds & 0xFFFFFFFF, fraction, *sizes), data]
    return b"".join(parts)


def _pcapng(rng: random.Random, order: str, datas: list[bytes]) -> bytes:
    resolution = rng.choice((6, 6, 9, 0, 0x80, 0x94, 0xA0, 0x7F, 0xFF, 19, 20))
    options = _option(order, 9, bytes([resolution])) + _option(
        order, 2, rng.choice((b"eth0", b"\x1b[31m", b"\xff" * 9))
    )
    if rng.random() < 0.3:
        options += _option(
            order, 14, struct.pack(order + "q", rng.choice((0, 5, -5, 1 << 40, -(1 << 63), (1 << 63) - 1)))
        )
    link = rng.choice((1, 1, 1, 113, 250))
    parts = [_block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))]
    parts.append(_block(order, 1, struct.pack(order + "HHI", link, 0, 0) + options))
    ticks_a_second = 2 ** (resolution & 0x7F) if resolution & 0x80 else 10**resolution
    for number, data in enumerate(datas):
        ticks = _time_ns(rng, number) * min(ticks_a_second, 1 << 64) // 10**9 & 0xFFFFFFFFFFFFFFFF
        sizes = [len(data), len(data)]
        if rng.random() < 0.02:
            sizes[rng.randrange(2)] = rng.choice((0, 1, len(data) + 1, *_EDGES_32))
        interface = 0 if rng.random() < 0.99 else rng.choice((1, *_EDGES_32))
        header = struct.pack(order + "IIIII", interface, ticks >> 32, ticks & 0xFFFFFFFF, *sizes)
        parts.append(_block(order, rng.choice((6, 6, 6, 6, 3)) if rng.random() < 0.05 else 6, header + data))
    statistics = struct.pack(order + "III", 0, 0, 0) + _option(order, 5, struct.pack(order + "Q", rng.getrandbits(64)))
    return b"".join([*parts, _block(order, 5, statistics)])


def _block(order: str, kind: int, body: bytes) -> bytes:
    padded = body + bytes(-len(body) % 4)
    size = struct.pack(order + "I", 12 + len(padded))
    return struct.pack(order + "I", kind) + size + padded + size


def _option(order: str, code: int, value: bytes) -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)
