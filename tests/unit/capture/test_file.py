"""Capture files of every kind, whole and damaged: the same packets as scapy's readers give, up to the damage."""

from __future__ import annotations

import gzip
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.utils import PcapNgWriter, RawPcapNgReader, RawPcapReader
from support.profiles import examples

from netprof.errors import NetprofError
from netprof.probes.capture.file import CaptureFile

BEGAN_S = 1_700_000_000
LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")  # else scapy asks the network for the addresses
PACKET = bytes(LINK / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=9, dport=80))
DATAS = [PACKET + bytes(size) for size in range(20)]
Found = list[tuple[bytes, int, int]]  # bytes, length on the link, nanoseconds


def pcap(order: str = "<", magic: int = 0xA1B2C3D4, snap: int = 0, link_type: int = 1, longer: int = 0) -> bytes:
    file = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snap, link_type)
    for number, data in enumerate(DATAS):
        kept = data[: snap or len(data)]
        file += struct.pack(order + "IIII", BEGAN_S + number, 1000 * number, len(kept), len(data) + longer) + kept
    return file


def section(order: str, links: list[tuple[int, bytes]]) -> bytes:
    file = struct.pack(order + "IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    for link_type, options in links:
        size = 20 + len(options)
        file += struct.pack(order + "IIHHI", 1, size, link_type, 0, 0) + options + struct.pack(order + "I", size)
    return file


def packet(order: str, interface: int, ticks: int, data: bytes, length: int | None = None) -> bytes:
    padded = data + bytes(-len(data) % 4)
    size = 32 + len(padded)
    header = struct.pack(
        order + "IIIIIII", 6, size, interface, ticks >> 32, ticks & 0xFFFFFFFF, len(data), length or len(data)
    )
    return header + padded + struct.pack(order + "I", size)


def option(order: str, code: int, value: bytes) -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def read(path: Path, block_bytes: int = 16 << 20) -> tuple[Found, str]:
    """Return the packets of a file and what is wrong with it."""
    with CaptureFile(path, block_bytes) as file:
        found = [
            (block.bytes_of(row), int(block.length[row]), int(block.time_ns[row]))
            for block in file.blocks()
            for row in range(len(block))
        ]
        return found, file.damage


@pytest.mark.parametrize("block_bytes", [64, 1000, 1 << 20])
@pytest.mark.parametrize("magic", [0xA1B2C3D4, 0xA1B23C4D])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("zipped", [False, True])
def test_pcap_as_scapy_reads_it(order: str, magic: int, zipped: bool, block_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    data = pcap(order, magic, snap=60, longer=7)
    path.write_bytes(gzip.compress(data) if zipped else data)
    found, damage = read(path, block_bytes)
    unit = 1000 if magic == 0xA1B2C3D4 else 1
    with RawPcapReader(str(path)) as reader:
        assert found == [(data, about.wirelen, about.sec * 10**9 + about.usec * unit) for data, about in reader]
    assert (len(found), damage) == (len(DATAS), "")


@pytest.mark.parametrize("block_bytes", [64, 1000, 1 << 20])
@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_with_several_interfaces_and_sections(order: str, block_bytes: int, tmp_path: Path) -> None:
    """Each interface has its own clock; a second section, in the other byte order, its own interfaces."""
    other = ">" if order == "<" else "<"
    links = [(1, b""), (113, option(order, 2, b"eth1") + option(order, 9, b"\x09")), (1, option(order, 9, b"\x94"))]
    links.append((1, option(order, 9, b"\xa0")))
    file = section(order, links)
    file += packet(order, 0, BEGAN_S * 10**6 + 1, DATAS[0]) + packet(order, 1, BEGAN_S * 10**9 + 2, DATAS[1], 999)
    file += packet(order, 2, (BEGAN_S << 20) + (1 << 19), DATAS[2])
    file += packet(order, 3, (BEGAN_S << 32) + (1 << 30), DATAS[4])
    statistics = struct.pack(order + "III", 0, 0, 0) + option(order, 5, struct.pack(order + "Q", 12))
    file += (
        struct.pack(order + "II", 5, 12 + len(statistics)) + statistics + struct.pack(order + "I", 12 + len(statistics))
    )
    file += section(other, [(1, option(other, 14, struct.pack(other + "q", 5)))])
    file += packet(other, 0, BEGAN_S * 10**6, DATAS[3])
    path = tmp_path / "a.pcapng"
    path.write_bytes(file)
    with CaptureFile(path, block_bytes) as opened:
        rows = [
            (block.bytes_of(row), int(block.length[row]), int(block.time_ns[row]), int(block.interface[row]))
            for block in opened.blocks()
            for row in range(len(block))
        ]
        assert [each.link_type for each in opened.interfaces] == [1, 113, 1, 1, 1]
        assert (opened.interfaces[1].name, opened.dropped, opened.damage) == ("eth1", 12, "")
    assert rows == [
        (DATAS[0], len(DATAS[0]), BEGAN_S * 10**9 + 1000, 0),
        (DATAS[1], 999, BEGAN_S * 10**9 + 2, 1),
        (DATAS[2], len(DATAS[2]), BEGAN_S * 10**9 + 500_000_000, 2),
        (DATAS[4], len(DATAS[4]), BEGAN_S * 10**9 + 250_000_000, 3),
        (DATAS[3], len(DATAS[3]), (BEGAN_S + 5) * 10**9, 4),
    ]


def test_a_device_is_the_same_in_every_section(tmp_path: Path) -> None:
    """As in files that follow one another. Two of one name in one section are two, one of another kind is another."""

    def part(*links: tuple[int, bytes]) -> bytes:
        data = section("<", [(link_type, option("<", 2, name) if name else b"") for link_type, name in links])
        return data + b"".join(packet("<", row, BEGAN_S * 10**6, DATAS[row]) for row in range(len(links)))

    path = tmp_path / "a.pcapng"
    path.write_bytes(
        part((1, b"eth0"), (1, b"eth1"), (1, b"eth0"))
        + part((1, b"eth1"), (1, b"eth0"))
        + part((113, b"eth0"), (1, b""), (1, b"eth0"), (1, b"eth0"))
        + part((1, b""), (113, b"eth0"))
    )
    with CaptureFile(path) as file:
        rows = [number for block in file.blocks() for number in block.interface.tolist()]
    assert rows == [0, 1, 2, 1, 0, 3, 4, 0, 2, 5, 3]


def test_thousands_of_devices_take_no_minutes(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    path.write_bytes(section("<", [(1, option("<", 2, b"eth0"))] * 4000) + packet("<", 3999, BEGAN_S * 10**6, DATAS[0]))
    with CaptureFile(path) as file:
        rows = [number for block in file.blocks() for number in block.interface.tolist()]
    assert rows == [3999]


@pytest.mark.parametrize("order", ["<", ">"])
def test_what_was_dropped_is_a_total_of_its_capture(order: str, tmp_path: Path) -> None:
    """The last total of each interface; in another section it goes on where that is of the same beginning."""

    def dropped(interface: int, packets: int, began: int | None = None, code: int = 5) -> bytes:
        options = option(order, code, struct.pack(order + "Q", packets))
        options += b"" if began is None else option(order, 2, struct.pack(order + "II", 0, began))
        body = struct.pack(order + "III", interface, 0, 0) + options
        return struct.pack(order + "II", 5, 12 + len(body)) + body + struct.pack(order + "I", 12 + len(body))

    def total(*blocks: bytes) -> int:
        path = tmp_path / "a.pcapng"
        path.write_bytes(b"".join(blocks))
        with CaptureFile(path) as file:
            assert not list(file.blocks())
            assert not file.damage
            return file.dropped

    head = section(order, [(1, option(order, 2, b"eth0")), (1, option(order, 2, b"eth1"))])
    assert total(head, *[dropped(0, 7)] * 10) == 7
    assert total(head, dropped(0, 3), dropped(1, 4), dropped(0, 5), dropped(0, 100, code=7)) == 109
    assert total(head, dropped(0, 3), head, dropped(0, 5)) == 8
    assert total(head, dropped(0, 3, 77), head, dropped(0, 5, 77), head, dropped(0, 2, 78)) == 7


def test_pcapng_as_scapy_writes_and_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    with PcapNgWriter(str(path)) as writer:
        for number, data in enumerate(DATAS):
            made = Ether(data)
            made.time = BEGAN_S + number
            writer.write(made)
    found, damage = read(path)
    with RawPcapNgReader(str(path)) as reader:
        told: list[tuple[bytes, Any]] = list(reader)
    expected = [(data, about.wirelen, ((about.tshigh << 32) + about.tslow) * 1000) for data, about in told]
    assert (found, damage) == (expected, "")


HEADS = [b"", pcap()[:24], section("<", [(1, b"")]), gzip.compress(pcap())[:60]]


@examples(60)
@given(st.integers(60, len(pcap()) - 1), st.sampled_from(["plain", "gzip"]))
def test_a_cut_file_is_read_up_to_there(tmp_path_factory: pytest.TempPathFactory, end: int, kind: str) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.pcap"
    whole = pcap() if kind == "plain" else gzip.compress(pcap(), 0)
    path.write_bytes(whole[: min(end, len(whole) - 1)])
    found, damage = read(path)
    assert [data for data, _, _ in found] == DATAS[: len(found)]
    begins = [24]
    for data in DATAS:
        begins.append(begins[-1] + 16 + len(data))
    if kind == "plain":
        assert len(found) == sum(each <= end for each in begins[1:])
        assert bool(damage) == (end not in begins)
    else:
        assert damage == "the compressed data ends too early"


@pytest.mark.parametrize(
    ("at", "value", "damage"),
    [
        (8, b"\xff\xff\xff\x7f", "a packet has an impossible length"),
        (4, b"\xff\xff\xff\x7f", "a packet has an impossible time"),
        (0, b"\xff\xff\xff\xff", "a packet has an impossible time"),
    ],
)
def test_damage_is_not_read_past(at: int, value: bytes, damage: str, tmp_path: Path) -> None:
    file = bytearray(pcap())
    place = 24 + sum(16 + len(data) for data in DATAS[:5]) + at
    file[place : place + 4] = value
    path = tmp_path / "a.pcap"
    path.write_bytes(bytes(file))
    found, said = read(path)
    assert ([data for data, _, _ in found], said) == (DATAS[:5], damage)


def timed(*times: int) -> bytes:
    """A pcap of packets at these seconds."""
    records = (struct.pack("<IIII", each, 0, len(PACKET), len(PACKET)) + PACKET for each in times)
    return pcap()[:24] + b"".join(records)


@pytest.mark.parametrize(
    ("times", "expected", "untimed"),
    [
        ([0, BEGAN_S, BEGAN_S + 1], [BEGAN_S, BEGAN_S + 1], 1),
        ([BEGAN_S, 0, BEGAN_S + 1, 0], [BEGAN_S, BEGAN_S + 1], 2),
        ([0, 0], [], 2),
        ([0, 1, 2], [0, 1, 2], 0),
    ],
)
def test_a_time_of_zero_is_none_where_the_clock_is_far_from_it(
    times: list[int], expected: list[int], untimed: int, tmp_path: Path
) -> None:
    """And what has a time is read, wherever in the file the others are."""
    path = tmp_path / "a.pcap"
    path.write_bytes(timed(*times))
    with CaptureFile(path) as file:
        found = [time_ns // 10**9 for block in file.blocks() for time_ns in block.time_ns.tolist()]
        assert (found, file.untimed, file.damage) == (expected, untimed, "")


@examples(60)
@given(
    st.binary(max_size=300), st.sampled_from([b"", pcap()[:24], section("<", [(1, b"")]), gzip.compress(pcap())[:60]])
)
def test_anything_may_be_in_a_file(tmp_path_factory: pytest.TempPathFactory, data: bytes, head: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "a.pcap"
    path.write_bytes(head + data)
    with suppress(NetprofError):
        read(path, 100)


@pytest.mark.parametrize(("data", "message"), [(b"", "is empty"), (b"GIF89a...", "is no packet capture")])
def test_what_is_no_capture(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(data)
    with pytest.raises(NetprofError, match=message):
        read(path)


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_is_no_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(NetprofError):
        read(tmp_path / name)
