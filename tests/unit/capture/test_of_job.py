"""A capture beside a recording of the same job: one axis, and each byte once."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from scapy.contrib import roce
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import wrpcap

from netprof.errors import NetprofError
from netprof.schema import ROCE
from netprof.session.capture import CaptureOptions, import_capture
from netprof.session.capture_of_job import import_beside
from netprof.trace import TraceReader

MS = 1_000_000
BEGAN_S = 1_700_000_000
LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
A, B = "10.0.0.1", "10.0.0.2"


def packet(number: int, port: int = 80) -> Packet:
    header = TCP(sport=1000, dport=port, seq=1000 * number, ack=1, flags="A")
    return LINK / IP(src=A, dst=B) / header / Raw(bytes(1000))


def write(path: Path, packets: list[Packet], began_ns: int = 0) -> Path:
    """One packet every 100 µs."""
    for number, each in enumerate(packets):
        each.time = BEGAN_S + (began_ns + number * 100_000) / 1e9
    wrpcap(str(path), packets)
    return path


def recording(path: Path, out: Path, *, late_ns: int = 0) -> Path:
    """A recording of A's end, whose pair of clocks is wrong by so much."""
    import_capture(path, out, CaptureOptions(MS, host=A), lambda done, total: None)
    meta = json.loads((out / "meta.json").read_text())
    meta["clock"]["realtime_ns"] -= late_ns
    (out / "meta.json").write_text(json.dumps(meta))
    return out


def beside(path: Path, trace: Path, out: Path, **options: Any) -> TraceReader:
    import_beside(path, trace, out, CaptureOptions(MS, **options), lambda done, total: None)
    return TraceReader(out)


def rows(reader: TraceReader) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = reader.table("wire").to_pylist()
    return sorted(found, key=lambda row: (row["flow_id"], row["direction"], row["bin_start_ns"]))


@pytest.mark.parametrize("late_ns", [0, 7_300_000])
def test_streams_tell_the_clock(late_ns: int, tmp_path: Path) -> None:
    """Whatever the pair of clocks says: the same packets at the same times, in every row."""
    path = write(tmp_path / "a.pcap", [packet(number) for number in range(100)])
    trace = recording(path, tmp_path / "t", late_ns=late_ns)
    both = beside(path, trace, tmp_path / "both")
    assert rows(both) == rows(TraceReader(trace))
    said = next(note for note in both.meta.warnings if "clock is put on the recording's" in note)
    assert "within 0 ms" in said
    assert ("7.30 ms apart" in said) == (late_ns > 0)


def test_what_the_capture_does_not_cover_stays_as_recorded(tmp_path: Path) -> None:
    """A part of the job was captured, and another connection of it not at all; one of the capture is a stranger's."""
    job = [packet(number) for number in range(100)]
    elsewhere = [packet(number, 81) for number in range(100)]
    whole = write(tmp_path / "whole.pcap", [each for pair in zip(job, elsewhere, strict=True) for each in pair])
    trace = recording(whole, tmp_path / "t")
    part = write(
        tmp_path / "part.pcap",
        [packet(number // 2, 82 if number % 2 else 80) for number in range(83, 161)],
        83 * 100_000,
    )
    both = beside(part, trace, tmp_path / "both")
    sums = both.table("wire").to_pandas().groupby("flow_id").payload_bytes.sum().tolist()
    assert sums == [100_000, 100_000]
    assert any("1 connection of the capture" in note for note in both.meta.warnings)


def test_queue_pairs_at_the_job_s_address_are_the_job_s(tmp_path: Path) -> None:
    header = LINK / IP(src=A, dst=B) / UDP(dport=4791)
    rdma = [header / roce.BTH(opcode=4, dqpn=9, psn=number) / Raw(bytes(100)) for number in range(9)]
    path = write(tmp_path / "a.pcap", [packet(number) for number in range(30)] + rdma)
    trace = recording(path, tmp_path / "t")
    meta = json.loads((trace / "meta.json").read_text())
    (trace / "meta.json").write_text(json.dumps(meta | {"series": []}))
    both = beside(path, trace, tmp_path / "both")
    flows = [flow for flow in both.table("flows").to_pylist() if flow["protocol"] == ROCE]
    assert {(flow["local_addr"], flow["remote_queue_pair"], flow["pid"]) for flow in flows} == {(A, 9, 1)}
    assert {series.name for series in both.meta.series} >= {"cnp_packets", "messages"}


@pytest.mark.parametrize(
    ("port", "later_ns", "message"), [(99, 0, "none of the recording's flows"), (80, 10**12, "another time")]
)
def test_a_capture_of_something_else(port: int, later_ns: int, message: str, tmp_path: Path) -> None:
    trace = recording(write(tmp_path / "a.pcap", [packet(number) for number in range(30)]), tmp_path / "t")
    other = write(tmp_path / "b.pcap", [packet(100 + number, port) for number in range(30)], later_ns)
    with pytest.raises(NetprofError, match=message):
        beside(other, trace, tmp_path / "both")
    assert not (tmp_path / "both").exists()


def test_a_recording_that_is_too_old(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", [packet(number) for number in range(30)])
    trace = recording(path, tmp_path / "t")
    old = dataclasses.asdict(TraceReader(trace).meta) | {"schema_version": 2}
    (trace / "meta.json").write_text(json.dumps(old))
    with pytest.raises(NetprofError, match="too old"):
        beside(path, trace, tmp_path / "both")
