"""The framings that are parsed a block at once say what scapy says, packet for packet."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib import roce
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, GRE, CookedLinux, CookedLinuxV2, Dot1AD, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw
from support.profiles import examples

from netprof.probes.capture.dissect import dissect
from netprof.probes.capture.framing import parse
from netprof.probes.capture.packets import Interface, Packets, number
from netprof.probes.capture.segments import Segments

ETHERNET, RAW, COOKED, COOKED2 = 1, 101, 113, 276

ports = st.integers(1, 65535).filter(lambda port: port not in (4789, 4791, 6081))
words = st.integers(0, 2**32 - 1)
LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")  # else scapy asks the network for the addresses
payloads = st.integers(0, 3000).map(bytes)


@st.composite
def tcp(draw: st.DrawFn) -> Packet:
    options = draw(
        st.lists(st.sampled_from([("MSS", 1460), ("NOP", None), ("WScale", 7), ("Timestamp", (1, 2))]), max_size=4)
    )
    flags = draw(st.sampled_from(["S", "SA", "A", "PA", "FA", "R", "A"]))
    own = TCP(sport=draw(ports), dport=draw(ports), seq=draw(words), ack=draw(words), flags=flags, options=options)
    return own / Raw(draw(payloads))


@st.composite
def rdma(draw: st.DrawFn) -> Packet:
    opcode = draw(st.sampled_from([*roce._bth_opcodes, 0x16, 0x17]))
    header = roce.BTH(opcode=opcode, dqpn=draw(st.integers(0, 2**24 - 1)), psn=draw(st.integers(0, 2**24 - 1)))
    header.padcount = draw(st.integers(0, 3))
    if opcode == roce.CNP_OPCODE:
        return UDP(sport=draw(ports), dport=4791) / roce.cnp(draw(st.integers(0, 2**24 - 1)))
    body = Raw(bytes(draw(st.integers(0, 255)) for _ in range(4)) + bytes(draw(st.integers(40, 2000))))
    return UDP(sport=draw(ports), dport=4791) / header / body


@st.composite
def network(draw: st.DrawFn, inner: st.SearchStrategy[Packet]) -> Packet:
    if draw(st.booleans()):
        address = st.integers(1, 2**32 - 2).map(
            lambda number: ".".join(str(each) for each in number.to_bytes(4, "big"))
        )
        options = draw(st.lists(st.just(IPOption_NOP()), max_size=3))
        return IP(src=draw(address), dst=draw(address), tos=draw(st.integers(0, 255)), options=options) / draw(inner)
    wide = st.integers(1, 0xFFFF).map(lambda number: f"fd00::{number:x}:1")
    header = IPv6(src=draw(wide), dst=draw(wide), tc=draw(st.integers(0, 255)))
    for extension in draw(st.lists(st.sampled_from([IPv6ExtHdrHopByHop, IPv6ExtHdrDestOpt]), max_size=2)):
        header = header / extension()
    return header / draw(inner)


@st.composite
def frame(draw: st.DrawFn) -> Packet:
    packet: Packet = LINK
    for tag in draw(st.lists(st.sampled_from([Dot1Q, Dot1AD]), max_size=3)):
        packet = packet / tag(vlan=draw(st.integers(0, 4095)))
    inner: Packet = draw(network(st.one_of(tcp(), rdma())))
    return packet / inner


@st.composite
def overlay(draw: st.DrawFn) -> Packet:
    outer: Packet = UDP(sport=draw(ports), dport=4789) / VXLAN(vni=draw(st.integers(0, 2**24 - 1)), flags=8)
    return LINK / draw(network(st.just(outer))) / draw(frame())


@st.composite
def others(draw: st.DrawFn) -> Packet:
    plain: Packet = UDP(sport=draw(ports), dport=draw(ports)) / Raw(b"x" * 40)
    packets: list[Packet] = [LINK / ARP(), LINK / IP() / plain, LINK / IP(proto=1) / Raw(b"ping" * 9)]
    chosen: Packet = draw(st.sampled_from(packets))
    return chosen


def block(datas: list[bytes], lengths: list[int], link_types: list[int]) -> tuple[Packets, list[Interface]]:
    begins = np.cumsum([0, *(len(each) for each in datas)])
    return Packets(
        data=np.frombuffer(b"".join(datas), np.uint8),
        at=begins[:-1].astype(np.int64),
        captured=np.diff(begins),
        length=np.array(lengths, np.int64),
        time_ns=np.arange(len(datas)),
        interface=np.arange(len(datas)),
    ), [Interface(each) for each in link_types]


def rows(found: Segments) -> list[dict[str, int]]:
    return [{each.name: int(getattr(found, each.name)[row]) for each in fields(found)} for row in range(len(found))]


def told(datas: list[bytes], lengths: list[int], link_types: list[int]) -> list[dict[str, int]]:
    """Return what scapy says."""
    packets, interfaces = block(datas, lengths, link_types)
    return rows(dissect(packets, np.arange(len(datas)), interfaces))


@pytest.mark.slow
@examples(40)
@given(st.lists(st.one_of(frame(), overlay(), others()), min_size=1, max_size=12))
def test_frames_are_what_scapy_says(frames: list[Packet]) -> None:
    datas = [bytes(each) for each in frames]
    lengths, links = [len(each) for each in datas], [ETHERNET] * len(datas)
    found, left = parse(*block(datas, lengths, links))
    assert rows(found) == told(datas, lengths, links)
    assert not left.odd
    assert left.cut == left.fragments == 0


@pytest.mark.slow
@examples(40)
@given(st.lists(st.one_of(frame(), overlay()), min_size=1, max_size=8), st.integers(96, 250))
def test_lengths_come_from_the_headers_of_packets_that_are_cut(frames: list[Packet], snap: int) -> None:
    whole = [bytes(each) for each in frames]
    lengths, links = [len(each) for each in whole], [ETHERNET] * len(whole)
    complete, _ = parse(*block(whole, lengths, links))
    cut, left = parse(*block([each[:snap] for each in whole], lengths, links))
    assert len(cut) + left.cut >= len(complete)  # what cannot be read is counted
    by_packet = {row["packet"]: row for row in rows(complete)}
    for row in rows(cut):
        expected = by_packet[row["packet"]]
        assert {name: row[name] for name in row if name not in ("mss", "syndrome")} == {
            name: expected[name] for name in row if name not in ("mss", "syndrome")
        }


@pytest.mark.slow
@examples(40)
@given(network(st.one_of(tcp(), rdma())), st.sampled_from([RAW, COOKED, COOKED2]))
def test_other_links(packet: Packet, link_type: int) -> None:
    kind = 0x0800 if isinstance(packet, IP) else 0x86DD
    wrapped = {
        RAW: packet,
        COOKED: CookedLinux(proto=kind) / packet,
        COOKED2: CookedLinuxV2(proto=kind, ifindex=3) / packet,
    }[link_type]
    data = bytes(wrapped)
    found, _ = parse(*block([data], [len(data)], [link_type]))
    assert rows(found) == told([data], [len(data)], [link_type])
    assert len(found) == 1


@pytest.mark.slow
@examples(40)
@given(st.lists(st.one_of(frame(), overlay()), min_size=1, max_size=4), st.data())
def test_damaged_packets_stop_nothing(frames: list[Packet], data: st.DataObject) -> None:
    """Whatever bytes are wrong, packets are read or left out, and lengths stay believable."""
    broken = []
    for each in frames:
        raw = bytearray(bytes(each))
        for place in data.draw(st.lists(st.integers(0, min(len(raw), 120) - 1), max_size=6)):
            raw[place] = data.draw(st.integers(0, 255))
        broken.append(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    found, left = parse(*block(broken, [len(each) for each in broken], [ETHERNET] * len(broken)))
    assert (found.payload >= 0).all()
    assert (found.packet < len(broken)).all()
    odd = np.unique(np.concatenate(left.odd)) if left.odd else np.zeros(0, np.int64)
    packets, interfaces = block(broken, [len(each) for each in broken], [ETHERNET] * len(broken))
    assert (dissect(packets, odd, interfaces).payload >= 0).all()


@pytest.mark.parametrize(
    "packet",
    [
        LINK / MPLS(label=7, s=1) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=9, dport=80) / Raw(b"x" * 100),
        Ether()
        / IP(src="1.1.1.1", dst="2.2.2.2")
        / GRE()
        / IP(src="10.0.0.1", dst="10.0.0.2")
        / TCP(sport=9, dport=80)
        / Raw(b"x" * 100),
        Ether()
        / IP(src="1.1.1.1", dst="2.2.2.2")
        / IP(src="10.0.0.1", dst="10.0.0.2")
        / TCP(sport=9, dport=80)
        / Raw(b"x" * 100),
    ],
    ids=["mpls", "gre", "ip in ip"],
)
def test_what_is_rare_is_left_to_scapy(packet: Packet) -> None:
    data = bytes(packet)
    packets, interfaces = block([data], [len(data)], [ETHERNET])
    found, left = parse(packets, interfaces)
    assert len(found) == 0
    (row,) = rows(dissect(packets, np.concatenate(left.odd), interfaces))
    assert (row["source_low"], row["destination_low"]) == (0x0A000001, 0x0A000002)
    assert (row["source_port"], row["destination_port"], row["payload"]) == (9, 80, 100)
    assert row["header_bytes"] == len(data) - 100


INNER: Any = LINK / IP(src="10.0.0.1", dst="10.0.0.2", id=7) / TCP(sport=9, dport=80) / Raw(b"x" * 100)
BETWEEN = LINK / IP(src="1.1.1.1", dst="2.2.2.2")
ROCE_V1 = bytes.fromhex("0200000000010200000000028915") + bytes(
    IPv6(src="fd00::1", dst="fd00::2", nh=27, plen=116) / roce.BTH(opcode=4, dqpn=5) / Raw(bytes(100))
)


def test_rare_packets_of_both_protocols_in_one_block() -> None:
    datas = [bytes(BETWEEN / GRE() / INNER[IP]), ROCE_V1, bytes(BETWEEN / GRE() / INNER[IP])]
    packets, interfaces = block(datas, [len(each) for each in datas], [ETHERNET] * 3)
    found = dissect(packets, np.arange(3), interfaces)
    assert [
        (row["protocol"], row["destination_port"], row["queue_pair"], row["identifier"]) for row in rows(found)
    ] == [
        (6, 80, 0, 7),
        (17, 0, 5, 0),
        (6, 80, 0, 7),
    ]


@pytest.mark.parametrize("link", [LINK, Ether(src="02:00:00:00:00:01", dst="10:70:fd:00:00:02")])
@pytest.mark.parametrize(
    "header", ["", "1001000000000000", "200100000000000000000000", "2001" + "00" * 9 + "01" + "00" * 8]
)
def test_mirrors_of_a_switch(header: str, link: Packet) -> None:
    """ERSPAN of types I, II and III, this without and with what the platform adds."""
    kind = 0x22EB if header.startswith("2") else 0x88BE
    gre = GRE(proto=kind, seqnum_present=1, sequence_number=1) if header else GRE(proto=kind)
    data = bytes(BETWEEN / gre / Raw(bytes.fromhex(header)) / link / INNER.payload)
    packets, interfaces = block([data], [len(data)], [ETHERNET])
    found, left = parse(packets, interfaces)
    assert len(found) == 0
    (row,) = rows(dissect(packets, np.concatenate(left.odd), interfaces))
    assert (row["source_low"], row["destination_port"], row["payload"], row["header_bytes"]) == (
        0x0A000001,
        80,
        100,
        len(data) - 100,
    )


@pytest.mark.parametrize("port", [4789, 4790, 8472, 65330])
@pytest.mark.parametrize("flags", [0x08, 0x0C])
def test_overlays_on_any_port(flags: int, port: int) -> None:
    """The port is the standard's or Linux's own, or any where all else is as in a VXLAN; a kind, if told, Ethernet."""
    header = bytes([flags, 0, 0, 3 if flags & 4 else 0, 0, 0, 7, 0])
    data = bytes(BETWEEN / UDP(sport=5555, dport=port) / Raw(header) / INNER)
    found, left = parse(*block([data], [len(data)], [ETHERNET]))
    assert [(row["destination_port"], row["payload"]) for row in rows(found)] == (
        [(80, 100)] if port != 65330 or flags == 8 else []
    )
    assert not left.odd


def test_an_overlay_of_packets_is_left_to_scapy() -> None:
    header = bytes([0x0C, 0, 0, 1, 0, 0, 7, 0])
    data = bytes(BETWEEN / UDP(sport=5555, dport=4790) / Raw(header) / INNER[IP])
    packets, interfaces = block([data], [len(data)], [ETHERNET])
    found, left = parse(packets, interfaces)
    (row,) = rows(dissect(packets, np.concatenate(left.odd), interfaces))
    assert (len(found), row["payload"], row["network"]) == (0, 100, 8 << 24)


@pytest.mark.parametrize(
    ("packet", "kind"),
    [
        (LINK / IP(src="1.1.1.1", dst="2.2.2.2", proto=50) / Raw(bytes(100)), "IPsec"),
        (BETWEEN / UDP(sport=9, dport=51820) / Raw(b"\x04\0\0\0" + bytes(80)), "WireGuard"),
        (BETWEEN / UDP(sport=53, dport=51820) / Raw(b"\x81\x80\0\1" + bytes(80)), ""),
        (BETWEEN / UDP(sport=9, dport=2152) / Raw(b"\x30\xff" + bytes(80)), "GTP-U"),
        (Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", type=0x88E5) / Raw(bytes(80)), "MACsec"),
        (BETWEEN / GRE(proto=0x1234) / Raw(bytes(80)), "GRE of protocol 0x1234"),
        (BETWEEN / IP(src="3.3.3.3", dst="4.4.4.4", proto=50) / Raw(bytes(80)), "IPsec"),
        (BETWEEN / GRE() / IP(src="3.3.3.3", dst="4.4.4.4") / UDP(sport=1, dport=2) / Raw(bytes(80)), ""),
        (BETWEEN / UDP(sport=1, dport=2) / Raw(bytes(80)), ""),
    ],
)
def test_tunnels_that_hide_what_is_in_them_are_counted(packet: Packet, kind: str) -> None:
    data = bytes(packet)
    packets, interfaces = block([data], [len(data)], [ETHERNET])
    _, left = parse(packets, interfaces)
    dissect(packets, np.concatenate([np.zeros(0, np.int64), *left.odd]), interfaces, left.unread)
    assert left.unread == (Counter({kind: 1}) if kind else Counter())


def test_fragments_and_cut_headers_are_counted() -> None:
    later = bytes(LINK / IP(src="10.0.0.1", dst="10.0.0.2", frag=100, proto=6) / Raw(b"x" * 100))
    later6 = bytes(LINK / IPv6(src="::1", dst="::2") / IPv6ExtHdrFragment(offset=100, nh=6) / Raw(b"x" * 100))
    short = bytes(LINK / IP(src="10.0.0.1", dst="10.0.0.2") / TCP())[:40]
    found, left = parse(*block([later, later6, later6, short], [len(later), *[len(later6)] * 2, 54], [ETHERNET] * 4))
    assert (len(found), left.fragments, left.cut) == (0, 3, 1)


def test_buffers_beyond_64_kb_have_no_length_of_their_own() -> None:
    data = bytearray(bytes(LINK / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=9, dport=80)))
    data[16:18] = b"\0\0"
    found, _ = parse(*block([bytes(data)], [54 + 100_000], [ETHERNET]))
    assert found.payload.tolist() == [100_000]


@pytest.mark.parametrize("little", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("length", [3, 8, 40])
def test_numbers_anywhere_in_the_data(length: int, size: int, little: bool) -> None:
    """To its very end, where no whole word is left; beyond it they may be anything, and nothing fails."""
    data = np.random.default_rng(length).integers(0, 256, length).astype(np.uint8)
    at = np.arange(0, length + 20)
    inside = max(0, length - size + 1)
    order: Literal["little", "big"] = "little" if little else "big"
    expected = [int.from_bytes(data[place : place + size].tobytes(), order) for place in range(inside)]
    assert number(data, at, size, little=little)[:inside].tolist() == expected
