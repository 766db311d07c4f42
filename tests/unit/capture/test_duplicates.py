"""Packets that a capture holds more than once, and those that only look so: who passed where, in which network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scapy.contrib import roce
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw
from scapy.utils import PcapNgWriter

from netprof.probes.capture.capture import Capture
from netprof.probes.capture.file import CaptureFile
from netprof.probes.capture.flow_book import FlowBook, Hosts
from netprof.schema import TRANSMIT

MS = 1_000_000
BEGAN_US = 1_700_000_000_000_000
LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
OUTER = LINK / IP(src="192.168.0.1", dst="192.168.0.2") / UDP(sport=5555, dport=4789) / VXLAN(vni=7, flags=8) / LINK
A, B = "10.0.0.1", "10.0.0.2"
SIZES = [100, 1 << 20]

Timed = tuple[int, str, Packet]  # microseconds since the capture began, the device, the packet


def conversation(
    *, count: int = 10, isn: int = 1000, identifier: int | None = 1, version: type[Packet] = IP, begin_us: int = 0
) -> list[Timed]:
    """A sends `count` times 1000 bytes, B acknowledges each; identifiers count from one on, or None: all are 1."""
    found: list[Timed] = []

    def add(at_us: int, source: str, destination: str, transport: Packet) -> None:
        network: Packet
        if version is IPv6:
            network = IPv6(src=f"fd00::{source[-1]}", dst=f"fd00::{destination[-1]}")
        else:
            network = IP(src=source, dst=destination, id=1 if identifier is None else identifier + len(found), flags=2)
        found.append((begin_us + at_us, "eth0", network / transport))

    add(0, A, B, TCP(sport=1000, dport=80, seq=isn, flags="S"))
    add(400, B, A, TCP(sport=80, dport=1000, seq=77, ack=isn + 1, flags="SA"))
    for number in range(count):
        begin = isn + 1 + 1000 * number
        data = TCP(sport=1000, dport=80, seq=begin, ack=78, flags="A") / Raw(bytes(1000))
        add(1000 + 1000 * number, A, B, data)
        add(1400 + 1000 * number, B, A, TCP(sport=80, dport=1000, seq=78, ack=begin + 1000, flags="A"))
    return found


def on(device: str, packets: Sequence[Timed], later_us: int = 0, under: Packet = LINK) -> list[Timed]:
    """The same packets, so much later on another device, behind other headers."""
    return [(at_us + later_us, device, under / packet) for at_us, _, packet in packets]


def write(path: Path, *parts: list[Timed]) -> Path:
    """Write a pcapng, each part as a section of its own."""
    data = b""
    for part in parts:
        with PcapNgWriter(str(path)) as writer:
            for at_us, device, packet in sorted(part, key=lambda each: each[0]):
                made: Any = packet.copy()
                made.time, made.sniffed_on = (BEGAN_US + at_us) / 10**6, device
                writer.write(made)
        data += path.read_bytes()
    path.write_bytes(data)
    return path


Sums = dict[tuple[str, str], list[tuple[int, int, int]]]


def sent(path: Path, block_bytes: int = 1 << 20) -> tuple[Sums, int]:
    """Return payload, what was sent again, and packets, by both addresses for each connection; and those seen twice."""
    flows: dict[int, tuple[str, str]] = {}
    sums: dict[int, list[int]] = {}
    with CaptureFile(path, block_bytes) as file:
        capture = Capture(file, FlowBook(Hosts().owner_of), MS, begin_ns=MS)
        for table, columns in capture.tables():
            if table == "flows":
                ends = zip(columns["local_addr"], columns["remote_addr"], strict=True)
                flows |= dict(zip(columns["flow_id"], ends, strict=True))
            elif table == "wire" and columns["direction"][0] == TRANSMIT:
                names = ("payload_bytes", "retransmitted_bytes", "packets")
                for flow, *amounts in zip(columns["flow_id"], *(columns[name] for name in names), strict=True):
                    own = sums.setdefault(int(flow), [0, 0, 0])
                    own[:] = [int(one + other) for one, other in zip(own, amounts, strict=True)]
    found: Sums = {}
    for flow, between in flows.items():
        found.setdefault(between, []).append(tuple(sums.get(flow, (0, 0, 0))))  # type: ignore[arg-type]
    return found, capture.counts.twice


ALONE = {(A, B): [(10_000, 0, 11)], (B, A): [(0, 0, 11)]}
MOVED = {(A, B): [(10_000, 1000, 12)], (B, A): [(0, 0, 11)]}
TWO = {ends: each * 2 for ends, each in ALONE.items()}


def again(packets: list[Timed], number: int, later_us: int, identifier: int) -> list[Timed]:
    """A packet that is sent once more: Linux gives it a new identifier."""
    at_us, device, packet = packets[number]
    made: Any = packet.copy()
    made[IP].id = identifier
    return [(at_us + later_us, device, made)]


@pytest.mark.parametrize("block_bytes", SIZES)
@pytest.mark.parametrize("later_us", [3, 2500])
def test_a_mirror_of_both_ways_on_one_device(later_us: int, block_bytes: int, tmp_path: Path) -> None:
    """As late as a queue lets the packet out, when others have passed: its identifier says that it is the same."""
    packets = conversation()
    mirrored = on("eth0", packets) + on("eth0", packets, later_us)
    assert sent(write(tmp_path / "a.pcapng", mirrored), block_bytes) == (ALONE, 22)


@pytest.mark.slow
@pytest.mark.parametrize("block_bytes", SIZES)
@pytest.mark.parametrize("version", [IP, IPv6])
def test_where_the_identifier_says_nothing_it_must_be_the_same_moment(
    version: type[Packet], block_bytes: int, tmp_path: Path
) -> None:
    packets = conversation(identifier=None, version=version)
    near = write(tmp_path / "a.pcapng", on("eth0", packets) + on("eth0", packets, 3))
    found, twice = sent(near, block_bytes)
    assert (sorted(found.values()), twice) == (sorted(ALONE.values()), 22)
    far = write(tmp_path / "b.pcapng", on("eth0", packets) + on("eth0", packets[2:3], 200))
    found, twice = sent(far, block_bytes)
    assert (sorted(found.values()), twice) == (sorted(MOVED.values()), 0)


@pytest.mark.parametrize("block_bytes", SIZES)
def test_what_is_sent_again_at_once_is_no_copy(block_bytes: int, tmp_path: Path) -> None:
    packets = conversation()
    path = write(tmp_path / "a.pcapng", on("eth0", packets + again(packets, 4, 3, 999)))
    assert sent(path, block_bytes) == (MOVED, 0)


@pytest.mark.slow
@pytest.mark.parametrize("block_bytes", SIZES)
def test_a_mirror_of_roce(block_bytes: int, tmp_path: Path) -> None:
    """Acknowledgements, which no number tells apart, are twice there too."""
    packets: list[Timed] = []
    for number in range(10):
        header = IP(src=A, dst=B, id=number) / UDP(sport=9, dport=4791)
        packets.append((1000 * number, "", header / roce.BTH(opcode=4, dqpn=17, psn=number) / Raw(bytes(260))))
        header = IP(src=B, dst=A, id=number) / UDP(sport=9, dport=4791)
        packets.append((1000 * number + 9, "", header / roce.BTH(opcode=0x11, dqpn=33, psn=number) / Raw(bytes(8))))
    path = write(tmp_path / "a.pcapng", on("eth0", packets) + on("eth0", packets, 2))
    found, twice = sent(path, block_bytes)
    assert twice == 20
    assert (found[A, B], found[B, A]) == ([(2600, 0, 10), (0, 0, 0)], [(0, 0, 0), (0, 0, 10)])


@pytest.mark.parametrize("block_bytes", SIZES)
def test_a_flow_that_moves_to_another_device_goes_on_there(block_bytes: int, tmp_path: Path) -> None:
    """With acknowledgements and what is sent again: nothing of it passed the first device."""
    packets = conversation()
    moved = on("eth0", packets[:12]) + on("eth1", packets[12:] + again(packets, 20, 500, 999))
    assert sent(write(tmp_path / "a.pcapng", moved), block_bytes) == (MOVED, 0)


@pytest.mark.slow
@pytest.mark.parametrize("block_bytes", SIZES)
def test_a_second_section_goes_on_with_the_same_device(block_bytes: int, tmp_path: Path) -> None:
    packets = conversation()
    path = write(tmp_path / "a.pcapng", on("eth0", packets[:12]), on("eth0", packets[12:] + again(packets, 20, 500, 9)))
    with CaptureFile(path, block_bytes) as file:
        (number,) = {each for block in file.blocks() for each in block.interface.tolist()}
        assert [row for row, each in enumerate(file.interfaces) if each.name == "eth0"] == [number]
    assert sent(path, block_bytes) == (MOVED, 0)


@pytest.mark.parametrize("block_bytes", SIZES)
@pytest.mark.parametrize("merged_first", [True, False])
def test_one_device_cuts_what_another_has_in_one_piece(merged_first: bool, block_bytes: int, tmp_path: Path) -> None:
    """A buffer of 10 kB at the tunnel's device is ten packets at the network's, or the other way around."""
    packets = conversation()
    own = TCP(sport=1000, dport=80, seq=1001, ack=78, flags="A")
    at_us = packets[2][0] - 5 if merged_first else packets[-2][0] + 5
    merged: list[Timed] = [(at_us, "", IP(src=A, dst=B, id=3, flags=2) / own / Raw(bytes(10_000)))]
    path = write(tmp_path / "a.pcapng", on("flannel.1", packets[:2] + merged) + on("eth0", packets, 1, OUTER))
    found, twice = sent(path, block_bytes)
    assert ([payload for payload, *_ in found[A, B]], [again for _, again, _ in found[A, B]]) == ([10_000], [0])
    assert twice == 2 + (10 if merged_first else 1)


@pytest.mark.slow
@pytest.mark.parametrize("block_bytes", SIZES)
def test_networks_tell_connections_apart(block_bytes: int, tmp_path: Path) -> None:
    """The same addresses and ports in two VLANs, of one tag or of two, in two overlays."""
    one, other = conversation(), conversation(isn=5_000_000, identifier=500, begin_us=100)
    inner: Any = OUTER.copy()
    inner[VXLAN].vni = 8
    for under in (
        (LINK / Dot1Q(vlan=5), LINK / Dot1Q(vlan=6)),
        (LINK / Dot1AD(vlan=1) / Dot1Q(vlan=5), LINK / Dot1AD(vlan=2) / Dot1Q(vlan=5)),
        (OUTER, inner),
        (OUTER / Dot1Q(vlan=5), OUTER / Dot1Q(vlan=6)),
    ):
        path = write(tmp_path / "a.pcapng", on("eth0", one, 0, under[0]) + on("eth0", other, 0, under[1]))
        assert sent(path, block_bytes) == (TWO, 0)


@pytest.mark.slow
@pytest.mark.parametrize("block_bytes", SIZES)
@pytest.mark.parametrize("device", ["eth0", "eth1"])
@pytest.mark.parametrize("under", [OUTER, LINK / Dot1Q(vlan=5), LINK / Dot1Q(vlan=0, prio=3)])
def test_one_connection_inside_and_outside_is_one(under: Packet, device: str, block_bytes: int, tmp_path: Path) -> None:
    packets = conversation()
    path = write(tmp_path / "a.pcapng", on("eth0", packets) + on(device, packets, 1, under))
    assert sent(path, block_bytes) == (ALONE, 22)
    path = write(tmp_path / "b.pcapng", on("eth0", packets[7:], 1, under) + on(device, packets[7:]))
    found, twice = sent(path, block_bytes)
    assert ([payload for payload, *_ in found[A, B]], twice) == ([7000], 15)


@pytest.mark.parametrize("block_bytes", SIZES)
def test_ways_that_are_in_two_vlans_are_of_one_connection(block_bytes: int, tmp_path: Path) -> None:
    """As a mirror of what a router's port receives has them."""
    packets = conversation()
    forth = [each for each in packets if each[2][IP].src == A]
    back = [each for each in packets if each[2][IP].src == B]
    tagged = on("eth0", forth, 0, LINK / Dot1Q(vlan=5)) + on("eth0", back, 0, LINK / Dot1Q(vlan=6))
    assert sent(write(tmp_path / "a.pcapng", tagged), block_bytes) == (ALONE, 0)
