"""What RoCE's sequence numbers say: what is new, what is sent again, and what passed without being captured."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from scapy.contrib import roce
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import wrpcap
from support.training import netprof

from netprof.analysis import analyze
from netprof.probes.capture.capture import Capture
from netprof.probes.capture.file import CaptureFile
from netprof.probes.capture.flow_book import MOST_HOSTS, FlowBook, Hosts
from netprof.probes.capture.roce import EVENTS
from netprof.probes.capture.roce_events import MOST_SERIES, RoceEvents
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


def packet(operation: int, number: int) -> Any:
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


@pytest.mark.slow
def test_the_report_says_what_is_missing(tmp_path: Path) -> None:
    """300 of 1000 packets were captured."""
    path = write(tmp_path / "a.pcap", sends(*(number for number in range(1000) if number % 10 < 3)))
    import_capture(path, tmp_path / "t", CaptureOptions(MS), lambda done, total: None)
    analysis = analyze(TraceReader(tmp_path / "t"))
    document = to_json(analysis)
    assert document["losses"]["unseen_packets"] == 693  # the last seven have none after them
    assert any(note.startswith("about 693 packets of RoCE passed without being captured") for note in document["notes"])
    printed = netprof("report", str(tmp_path / "t")).stdout
    assert "lost about 693 packets of RoCE" in " ".join(printed.split()), printed


def queue_pairs(pairs: list[int]) -> list[Any]:
    """A message to each of some queue pairs, one after the other, and for the last one a mark of congestion."""
    found = [packet(SEND, 7) for _ in pairs]
    for pair, each in zip(pairs, found, strict=True):
        each[roce.BTH].dqpn = pair
    found[-1][IP].tos = 3
    return found


def events(path: Path, most: int, block_bytes: int) -> tuple[dict[tuple[str, str], list[int]], int]:
    """Return the values of every series, by its subject and kind, and how many streams are counted together."""
    values: dict[int, list[int]] = {}
    with CaptureFile(path, block_bytes) as file:
        capture = Capture(file, FlowBook(Hosts().owner_of), MS, begin_ns=MS, first_series=5)
        capture.events = RoceEvents(5, most)
        for table, columns in capture.tables():
            if table == "counters":
                for number, value in zip(columns["series"], columns["value"], strict=True):
                    values.setdefault(number, []).append(value)
    assert [each.id for each in capture.series] == sorted(values)
    return {(each.subject, each.name): values[each.id] for each in capture.series}, capture.events.together


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_series_are_of_what_was_counted(block_bytes: int, tmp_path: Path) -> None:
    """The first queue pair has all, so that what was never counted is known to be nothing."""
    packets = queue_pairs([1, 2, 2, 3, 4])
    for number, each in enumerate(packets):
        each[roce.BTH].psn, each.time = number, 1_700_000_000 + number / 1000
    wrpcap(str(tmp_path / "a.pcap"), packets)
    name = "10.0.0.1 to 10.0.0.2 queue pair"
    none = {(f"{name} 1", kind): [0] for kind in EVENTS}
    found, together = events(tmp_path / "a.pcap", 100, block_bytes)
    counts = {1: [0, 1], 2: [0, 1, 2], 3: [0, 1], 4: [0, 1]}
    own = {(f"{name} {pair}", "messages"): values for pair, values in counts.items()}
    marks = {(f"{name} 4", "ecn_marked_packets"): [0, 1]}
    assert (found, together) == (none | own | marks, 0)
    found, together = events(tmp_path / "a.pcap", 6, block_bytes)
    del own[f"{name} 3", "messages"], own[f"{name} 4", "messages"]
    others = {("other queue pairs", "messages"): [0, 1, 2], ("other queue pairs", "ecn_marked_packets"): [0, 1]}
    assert (found, together) == (none | own | others, 2)


@pytest.mark.slow
def test_a_capture_of_a_large_job_is_a_trace(tmp_path: Path) -> None:
    """More queue pairs and addresses than a trace can describe one by one: all bytes are there."""
    header = bytes(packet(SEND, 7))
    with (tmp_path / "a.pcap").open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for number in range(MOST_SERIES + 100):
            data = bytearray(header)
            data[26:30] = (0x0A000000 + number % (MOST_HOSTS + 50)).to_bytes(4, "big")
            data[30:34] = (0x0B000001).to_bytes(4, "big")
            data[47:50] = number.to_bytes(3, "big")
            file.write(struct.pack("<IIII", 1_700_000_000, number, len(data), len(data)) + data)
    meta = import_capture(tmp_path / "a.pcap", tmp_path / "t", CaptureOptions(MS), lambda done, total: None)
    reader = TraceReader(tmp_path / "t")
    assert reader.meta == meta
    assert len(meta.devices) == len(meta.targets) == MOST_HOSTS + 1
    notes = " ".join(meta.warnings)
    assert "51 addresses are put together as 'other addresses'" in notes
    assert "events of 104 queue pairs are counted together" in notes
    wire = reader.table("wire").to_pandas()
    assert wire[wire.direction == TRANSMIT].payload_bytes.sum() == 100 * (MOST_SERIES + 100)
