"""A capture beside a recording of the same job: one axis, and each byte once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from scapy.contrib import roce
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import wrpcap
from support.synthetic import Job

from netprof.errors import NetprofError, TraceError
from netprof.model import Target
from netprof.schema import ROCE, UNKNOWN_RANK, recorded_columns
from netprof.session.capture import CaptureOptions, import_capture
from netprof.session.capture_of_job import _place_of, _whole_bins, _without_nulls, import_beside
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


def queue_pairs(source: str = A) -> list[Packet]:
    header = LINK / IP(src=source, dst=B) / UDP(dport=4791)
    return [header / roce.BTH(opcode=4, dqpn=9, psn=number) / Raw(bytes(100)) for number in range(9)]


def as_of_schema(version: int, trace: Path) -> None:
    """Write a trace again as a recorder of that time did."""
    for path in trace.glob("*.arrows"):
        with pa.ipc.open_stream(path.read_bytes()) as stream:
            table = stream.read_all()
        columns = recorded_columns(path.stem, version)
        with pa.ipc.new_stream(str(path), columns) as out:
            out.write_table(table.select(columns.names).cast(columns))
    meta = json.loads((trace / "meta.json").read_text())
    (trace / "meta.json").write_text(json.dumps(meta | {"schema_version": version}))


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


def test_a_recording_is_not_overwritten_by_what_is_made_of_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", [packet(number) for number in range(100)])
    trace = recording(path, tmp_path / "t")
    before = rows(TraceReader(trace))
    with pytest.raises(TraceError, match="it would be lost"):
        beside(path, trace, trace, force=True)
    assert rows(TraceReader(trace)) == before
    (trace / ".ring").touch()
    with pytest.raises(NetprofError, match="is a ring") as caught:
        beside(path, trace, tmp_path / "both")
    assert "netprof save" in caught.value.hint


def test_a_full_disk_is_told_and_nothing_stays_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(stream: Any, batch: Any) -> None:
        raise OSError(28, "No space left on device")

    path = write(tmp_path / "a.pcap", [packet(number) for number in range(9)])
    monkeypatch.setattr("netprof.trace.writer._Stream.append", full)
    with pytest.raises(TraceError, match=r"cannot write the trace to .*/t: No space left on device \(.* left on /"):
        import_capture(path, tmp_path / "t", CaptureOptions(MS), lambda done, total: None)
    assert [each.name for each in tmp_path.iterdir()] == ["a.pcap"]


@pytest.mark.slow
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
    path = write(tmp_path / "a.pcap", [packet(number) for number in range(30)] + queue_pairs())
    trace = recording(path, tmp_path / "t")
    meta = json.loads((trace / "meta.json").read_text())
    (trace / "meta.json").write_text(json.dumps(meta | {"series": []}))
    both = beside(path, trace, tmp_path / "both")
    flows = [flow for flow in both.table("flows").to_pylist() if flow["protocol"] == ROCE]
    assert {(flow["local_addr"], flow["remote_queue_pair"], flow["pid"]) for flow in flows} == {(A, 9, 1)}
    assert {series.name for series in both.meta.series} >= {"cnp_packets", "messages"}


def test_queue_pairs_at_an_address_that_is_only_named_are_the_one_process_s(tmp_path: Path) -> None:
    tcp = [packet(number) for number in range(30)]
    trace = recording(write(tmp_path / "t.pcap", tcp), tmp_path / "t")
    path = write(tmp_path / "a.pcap", tcp + queue_pairs("10.0.9.9"))
    unnamed = beside(path, trace, tmp_path / "unnamed")
    assert any("name its own with --host (10.0.0.2, 10.0.9.9)" in note for note in unnamed.meta.warnings)
    assert not [flow for flow in unnamed.table("flows").to_pylist() if flow["protocol"] == ROCE]
    named = beside(path, trace, tmp_path / "named", host="10.0.9.9", line_rate_bps=5e9)
    (flow,) = [flow for flow in named.table("flows").to_pylist() if flow["protocol"] == ROCE]
    assert (flow["local_addr"], flow["device"], flow["pid"]) == ("10.0.9.9", "10.0.9.9", 1)
    assert [(each.device, each.line_rate.bps) for each in named.meta.devices] == [(A, None), ("10.0.9.9", 5e9)]
    assert not any("--host" in note for note in named.meta.warnings)


def test_series_of_the_capture_have_numbers_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", [packet(number) for number in range(30)] + queue_pairs())
    trace = recording(path, tmp_path / "t")
    own = TraceReader(trace).meta.series
    both = beside(path, trace, tmp_path / "both")
    numbers = [each.id for each in both.meta.series]
    assert own
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > len(own)
    values = both.table("counters").to_pandas().groupby("series").value.max()
    (messages, again) = [each.id for each in both.meta.series if each.name == "messages"]
    assert values[messages] == values[again]


def test_progress_is_told_to_the_end_and_the_description_is_given_back(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", [packet(number) for number in range(100)])
    trace = recording(path, tmp_path / "t")
    told: list[tuple[int, int]] = []
    meta = import_beside(path, trace, tmp_path / "both", CaptureOptions(MS), lambda *each: told.append(each))
    assert meta == TraceReader(tmp_path / "both").meta
    assert told[-1] == (path.stat().st_size,) * 2
    assert len([each for each in told if each[0] == path.stat().st_size]) > 1, "it is read twice"


def test_progress_of_a_capture_alone_is_told_to_the_end(tmp_path: Path) -> None:
    path, told = write(tmp_path / "a.pcap", [packet(number) for number in range(100)]), list[tuple[int, int]]()
    import_capture(path, tmp_path / "t", CaptureOptions(MS), lambda *each: told.append(each))
    assert told[-1] == (path.stat().st_size,) * 2


def rewritten(trace: Path, table: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """Write a table of a trace again, changed."""
    path = trace / f"{table}.arrows"
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        whole = stream.read_all()
    with pa.ipc.new_stream(str(path), whole.schema) as out:
        out.write_table(pa.Table.from_pandas(change(whole.to_pandas()), whole.schema, preserve_index=False))


@pytest.mark.slow
def test_bytes_that_the_recording_lacks_are_the_capture_s_up_to_its_edges(tmp_path: Path) -> None:
    """Of the bins that both saw whole the capture's bytes are taken, of all others those that were recorded."""
    path = write(tmp_path / "a.pcap", [packet(number) for number in range(100)])
    trace = recording(path, tmp_path / "t")
    meta = json.loads((trace / "meta.json").read_text())
    whole = TraceReader(trace).table("wire").to_pandas()
    edges = meta["started_ns"], meta["started_ns"] // MS * MS + 8 * MS
    (trace / "meta.json").write_text(json.dumps(meta | {"stopped_ns": edges[1]}))

    def poorer(wire: pd.DataFrame) -> pd.DataFrame:
        kept: pd.DataFrame = wire[wire.bin_start_ns < edges[1]].assign(payload_bytes=1)
        return kept

    rewritten(trace, "wire", poorer)
    both = beside(path, trace, tmp_path / "both").table("wire").to_pandas()
    expected = whole[whole.bin_start_ns < edges[1]].copy()
    expected.loc[expected.bin_start_ns < edges[0], "payload_bytes"] = 1  # the bin in which the recording begins
    key = ["flow_id", "direction", "bin_start_ns"]
    found = both.sort_values(key)[[*key, "payload_bytes"]].to_numpy().tolist()
    assert found == expected.sort_values(key)[[*key, "payload_bytes"]].to_numpy().tolist()


@pytest.mark.slow
def test_queue_pairs_at_an_address_of_several_processes_are_of_none(tmp_path: Path) -> None:
    tcp = [packet(number, 80 + number % 2) for number in range(60)]
    trace = recording(write(tmp_path / "t.pcap", tcp), tmp_path / "t")
    path = write(tmp_path / "a.pcap", tcp + queue_pairs())
    rewritten(trace, "flows", lambda flows: flows.assign(pid=range(1, len(flows) + 1), rank=range(len(flows))))
    flows = beside(path, trace, tmp_path / "both").table("flows").to_pandas()
    assert flows.flow_id.is_unique
    (pid,), (rank,) = (flows[flows.protocol == ROCE][name].unique() for name in ("pid", "rank"))
    assert (pid, rank) == (0, UNKNOWN_RANK)


@pytest.mark.parametrize(("pids", "pid", "netns"), [((), 0, 0), ((5,), 5, 77), ((5, 6), 0, 77)])
def test_an_address_that_is_only_named_is_the_one_process_s(pids: tuple[int, ...], pid: int, netns: int) -> None:
    targets = tuple(Target(each, 1, netns=77, rank=3) for each in pids)
    found = _place_of("10.0.9.9", replace(Job().meta(), targets=targets))
    assert found == {"netns": netns, "device": "10.0.9.9", "pid": pid, "rank": 3 if pid else UNKNOWN_RANK}


@pytest.mark.slow
def test_of_many_addresses_that_are_not_the_job_s_four_are_named(tmp_path: Path) -> None:
    tcp = [packet(number) for number in range(30)]
    trace = recording(write(tmp_path / "t.pcap", tcp), tmp_path / "t")
    others = [each for number in range(1, 9) for each in queue_pairs(f"10.0.9.{number}")]
    both = beside(write(tmp_path / "a.pcap", tcp + others), trace, tmp_path / "both")
    assert any(note.endswith("(10.0.0.2, 10.0.9.1, 10.0.9.2, 10.0.9.3)") for note in both.meta.warnings)


@pytest.mark.slow
def test_how_well_the_clocks_agree_is_said(tmp_path: Path) -> None:
    """In the capture some packets pass up to 80 µs later than in the recording."""
    packets = [packet(number) for number in range(100)]
    trace = recording(write(tmp_path / "a.pcap", packets), tmp_path / "t")
    for number, each in enumerate(packets):
        each.time = BEGAN_S + (number * 100_000 + 40_000 * (number % 3)) / 1e9
    wrpcap(str(tmp_path / "b.pcap"), packets)
    said = " ".join(beside(tmp_path / "b.pcap", trace, tmp_path / "both").meta.warnings)
    within = re.search(r"saw: within ([0-9.]+) µs", said)
    assert within is not None, said
    assert 10 < float(within[1]) < 100


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0, 3 * MS - 1, (0, 3 * MS)),
        (1, 3 * MS - 1, (MS, 3 * MS)),
        (MS, 3 * MS - 2, (MS, 2 * MS)),
        (MS + 1, 3 * MS, (2 * MS, 3 * MS)),
    ],
)
def test_bins_that_a_span_covers_whole(first: int, last: int, expected: tuple[int, int]) -> None:
    assert _whole_bins((first, last), MS) == expected


def test_what_an_older_recording_did_not_know_is_zero_or_no_text() -> None:
    batch = pa.RecordBatch.from_pydict({"a": pa.array([1, None], pa.int64()), "b": pa.array(["x", None]), "c": [3, 4]})
    filled = _without_nulls(batch)
    assert filled.to_pydict() == {"a": [1, 0], "b": ["x", ""], "c": [3, 4]}
    assert filled.schema == batch.schema


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
    as_of_schema(3, trace)
    assert beside(path, trace, tmp_path / "young enough").meta.stopped_ns
    as_of_schema(2, trace)
    with pytest.raises(NetprofError, match="too old"):
        beside(path, trace, tmp_path / "both")
