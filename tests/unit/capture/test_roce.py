"""What RoCE's sequence numbers say: what is new, what is sent again, and what passed without being captured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scapy.contrib import roce
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import wrpcap
from training import netprof

from netprof.analysis import analyze
from netprof.probes.capture.capture import Capture
from netprof.probes.capture.file import CaptureFile
from netprof.probes.capture.flows import FlowBook, Hosts
from netprof.schema import TRANSMIT
from netprof.session.capture import CaptureOptions, import_capture
from netprof.trace import TraceReader
from netprof.views.json_report import to_json

MS = 1_000_000
SEND, FIRST, MIDDLE, LAST, READ, ATOMIC = 0x04, 0x06, 0x07, 0x08, 0x0C, 0x14
READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY = 0x0D, 0x0E, 0x0F, 0x10
HEADERS = {SEND: 0, FIRST: 16, MIDDLE: 0, LAST: 0, READ: 16, ATOMIC: 28} | dict.fromkeys(range(0x0D, 0x11), 4)
HEADERS[READ_MIDDLE] = 0
Ops = list[tuple[int, int]]  # operations and sequence numbers


def packet(operation: int, number: int) -> Packet:
    """A packet of 100 bytes, if it carries any, to queue pair 17."""
    header = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2")
    body = bytes(HEADERS[operation] + (0 if operation in (READ, ATOMIC) else 100))
    return header / UDP(sport=9, dport=4791) / roce.BTH(opcode=operation, dqpn=17, psn=number % 2**24) / Raw(body)


def write(path: Path, operations: Ops) -> Path:
    packets = [packet(*each) for each in operations]
    for number, each in enumerate(packets):
        each.time = 1_700_000_000 + number / 1000
    wrpcap(str(path), packets)
    return path


def counted(path: Path, block_bytes: int) -> tuple[int, int, int]:
    """Return payload, payload that is sent again, and packets that are missing."""
    payload = again = 0
    with CaptureFile(path, block_bytes) as file:
        capture = Capture(file, FlowBook(Hosts().owner_of), MS, begin_ns=MS)
        for table, columns in capture.tables():
            if table == "wire" and columns["direction"][0] == TRANSMIT:
                payload += int(sum(columns["payload_bytes"]))
                again += int(sum(columns["retransmitted_bytes"]))
    return payload, again, capture.counts.unseen_packets


def sends(*numbers: int) -> Ops:
    return [(SEND, number) for number in numbers]


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        (sends(5, 6, 9, 10), (400, 0, 2)),
        (sends(2**24 - 2, 2**24 + 1, 2**24 + 2), (300, 0, 2)),
        (sends(5, 8, 5, 6, 7, 8, 9), (300, 400, 2)),
        (sends(*range(0, 1000, 10)), (10_000, 0, 9 * 99)),
        ([(FIRST, 0), (MIDDLE, 1), (LAST, 5), (SEND, 7)], (400, 0, 4)),
        ([(READ, 0), (SEND, 4), (READ, 6), (READ, 10), (SEND, 11)], (200, 0, 1)),
        ([(ATOMIC, 0), (SEND, 2)], (100, 0, 1)),
        ([(READ_FIRST, 0), (READ_MIDDLE, 2), (READ_LAST, 4), (READ_FIRST, 9), (READ_LAST, 10)], (500, 0, 2)),
        ([(READ_ONLY, 0), (READ_ONLY, 5), (READ_LAST, 9)], (300, 0, 0)),
        ([(SEND, 0), (READ_ONLY, 900), (SEND, 1), (READ_ONLY, 950), (SEND, 2)], (500, 0, 0)),
        ([(READ, 100), (SEND, 98), (SEND, 104), (SEND, 106)], (200, 100, 1)),
    ],
)
def test_what_is_missing_by_the_numbers(
    operations: Ops, expected: tuple[int, int, int], block_bytes: int, tmp_path: Path
) -> None:
    """Requests to read leave numbers for the responses, which these have: what is not captured of those is unknown."""
    assert counted(write(tmp_path / "a.pcap", operations), block_bytes) == expected


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
@pytest.mark.parametrize("second", [1000, 5_000_000 + 300_000])
def test_a_queue_pair_that_is_used_again_begins_anew(second: int, block_bytes: int, tmp_path: Path) -> None:
    """Nothing is sent again, or missing, only because it begins at another number."""
    both = sends(*range(5_000_000, 5_000_010)) + sends(second, second + 1, second + 3, second + 1)
    assert counted(write(tmp_path / "a.pcap", both), block_bytes) == (1300, 100, 1)


def test_the_report_says_what_is_missing(tmp_path: Path) -> None:
    """300 of 1000 packets were captured."""
    path = write(tmp_path / "a.pcap", sends(*(number for number in range(1000) if number % 10 < 3)))
    import_capture(path, tmp_path / "t", CaptureOptions(MS), lambda done, total: None)
    analysis = analyze(TraceReader(tmp_path / "t"))
    document = to_json(analysis)
    assert document["losses"]["unseen_packets"] == 693  # the last seven have none after them
    assert any(note.startswith("about 693 packets of RoCE passed without being captured") for note in document["notes"])
    printed = netprof("report", str(tmp_path / "t")).stdout
    assert re.search(r"lost +about 693 packets of RoCE", printed), printed
