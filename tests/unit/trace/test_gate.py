"""The one way in: files that are none, columns and entries that no recorder writes, tables that unpack without end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.synthetic import MS, START_NS, Job

from netprof.analysis import analyze
from netprof.analysis.findings.stalls.stall import STALLED_AT_END
from netprof.analysis.findings.verdict.first_screen import FIRST_SCREEN
from netprof.cli.whatif import read_source as read_log
from netprof.domains import LONGEST_TEXT_BYTES, domain
from netprof.errors import NetprofError, TraceError
from netprof.probes.imported.horovod_timeline import read_timeline
from netprof.schema import MarkKind, recorded_columns, tables
from netprof.session.live_follow import FollowedTraceSource
from netprof.trace import TraceReader
from netprof.trace.unpacked import ALLOWANCE_BYTES, budget_bytes
from netprof.views.json_report import to_json

Damaged = Callable[..., Path]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return Job().fill().write(tmp_path / "t.netprof")


@pytest.fixture
def damaged(trace: Path) -> Damaged:
    """Writes a table anew: two batches of it, of which the second holds one cell that no recorder writes."""

    def write(table: str, **cells: Any) -> Path:
        rows = TraceReader(trace).table(table)
        if not rows.num_rows:
            rows = pa.Table.from_pylist([ROWS[table]], tables()[table])
        bad = rows.slice(0, 1).to_pylist()[0] | cells
        with pa.ipc.new_stream(str(trace / f"{table}.arrows"), tables()[table]) as stream:
            stream.write_table(rows)
            stream.write_table(pa.Table.from_pylist([bad], tables()[table]))
        return trace

    return write


ROWS: dict[str, dict[str, Any]] = {
    "gpu": {"gpu": 0, "pid": 0, "metric": 1, "time_ns": START_NS, "period_ns": MS, "value": 50.0},
    "counters": {"series": 1, "time_ns": START_NS, "value": 3},
    "nccl_posted": {
        **{"pid": 100, "connection": 7, "direction": 0, "network": 1, "bin_start_ns": START_NS, "posted_bytes": 9},
        **{"posts": 1, "refused": 0, "first_ns": START_NS, "last_ns": START_NS},
    },
    "nccl_ranks": {
        **{"time_ns": START_NS, "communicator": "0x1", "size": 2, "rank": 0, "host": "10.0.0.1", "pid": 100},
        **{"process": 100, "state": 1, "collectives": 5},
    },
    "link_changes": {
        **{"device": "eth0", "netns": 7, "since_ns": START_NS, "name": "eth0", "state": 2, "line_rate_bps": 1e9},
        **{"line_rate_source": "tbf", "qdisc": "tbf", "mtu_bytes": 1500},
        **{"receive_rate_bps": 0.0, "receive_rate_source": "unknown"},
    },
    "settings": {"netns": 7, "device": "eth0", "name": "addresses", "since_ns": START_NS, "value": "10.0.0.1/24"},
    "flow_devices": {"flow_id": 1, "direction": 1, "since_ns": START_NS, "device": "eth0"},
    "flow_paths": {
        **{"netns": 7, "device": "eth0", "direction": 0, "remote_addr": "10.0.0.2", "since_ns": START_NS, "hop": 1},
        **{"kind": 1, "hop_netns": 8, "hop_device": "h0", "hop_direction": 1, "header_bytes": 0, "about": "other end"},
    },
}

CELLS: list[tuple[str, dict[str, Any]]] = [
    ("marks", {"kind": 200}),
    ("marks", {"kind": 0}),
    ("marks", {"time_ns": -1}),
    ("marks", {"time_ns": (1 << 63) - 1}),
    ("marks", {"pid": -7}),
    ("marks", {"kind": int(MarkKind.COLLECTIVE_SIZE), "arg2": 99}),
    ("marks", {"kind": int(MarkKind.COLLECTIVE_BEGIN), "arg1": 1 << 63}),
    ("wire", {"direction": 2}),
    ("wire", {"wire_bytes": 1 << 63}),
    ("wire", {"bin_start_ns": START_NS + 10**15}),
    ("wire", {"last_ns": -(1 << 63)}),
    ("flows", {"family": 5}),
    ("flows", {"rank": -2}),
    ("flows", {"rank": (1 << 31) - 1}),
    ("flows", {"device": "x" * 70_000}),
    ("tcp", {"busy_us": (1 << 64) - 1}),
    ("totals", {"closed": 7}),
    ("nic", {"tx_bytes": (1 << 64) - 1}),
    ("link_changes", {"state": 9}),
    ("link_changes", {"line_rate_bps": float("nan")}),
    ("link_changes", {"line_rate_bps": float("inf")}),
    ("link_changes", {"line_rate_bps": -1.0}),
    ("link_changes", {"line_rate_bps": 1e-300}),
    ("link_changes", {"receive_rate_bps": float("nan")}),
    ("flow_devices", {"direction": 2}),
    ("flow_devices", {"device": "x" * 70_000}),
    ("wire", {"unsent": 9}),
    ("settings", {"value": "x" * 70_000}),
    ("flow_paths", {"kind": 99}),
    ("flow_paths", {"hop_direction": 7}),
    ("flow_paths", {"remote_addr": "x" * 70_000}),
    ("gpu", {"metric": 99}),
    ("gpu", {"value": float("-inf")}),
    ("gpu", {"period_ns": -5}),
    ("counters", {"value": -(1 << 63)}),
    ("nccl_posted", {"direction": 2}),
    ("nccl_posted", {"network": 0}),
    ("nccl_posted", {"posted_bytes": 1 << 60}),
    ("nccl_posted", {"bin_start_ns": START_NS + 10**15}),
    ("nccl_ranks", {"state": 99}),
    ("nccl_ranks", {"size": 1 << 30}),
    ("nccl_ranks", {"rank": -2}),
    ("nccl_ranks", {"communicator": "x" * 70_000}),
]


@pytest.mark.parametrize(
    ("table", "cells"),
    [
        pytest.param(*case, marks=[] if case[0] not in dict(CELLS[:place]) else pytest.mark.slow)
        for place, case in enumerate(CELLS)
    ],
    ids=lambda each: str(each)[:50],
)
def test_what_no_recorder_writes_ends_its_table_and_is_said(
    table: str, cells: dict[str, Any], trace: Path, damaged: Damaged
) -> None:
    before = TraceReader(trace).table(table).num_rows or 1
    damaged(table, **cells)
    analysis = analyze(reader := TraceReader(trace))
    assert reader.table(table).num_rows == before, "the rows before are used"
    (said,) = reader.damage
    assert re.match(rf"{table}\.arrows is damaged: column {list(cells)[-1]} holds .+: record again", said)
    assert said in analysis.notes
    assert to_json(analysis)["losses"]["damage"] == [said]
    with pytest.raises(TraceError, match=f"column {list(cells)[-1]}"):
        FollowedTraceSource(trace).look()


def test_a_text_that_is_none_ends_its_table(trace: Path, damaged: Damaged) -> None:
    damaged("flows", device="eth\0\0\0\0\0")
    path = trace / "flows.arrows"
    path.write_bytes(path.read_bytes().replace(b"eth\0\0\0\0\0", b"eth\xff\xfe\xff\xfe\xff"))
    reader = TraceReader(trace)
    assert reader.table("flows").num_rows == 2
    assert reader.damage[0].startswith("flows.arrows is damaged: it is cut off, or holds what cannot be read; ")


@pytest.fixture
def with_bad_end(trace: Path) -> Path:
    """A trace whose second batch of marks has a last column that cannot be unpacked."""
    rows, path = TraceReader(trace).table("marks"), trace / "marks.arrows"
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(str(path), tables()["marks"], options=options) as stream:
        for _ in range(3):
            stream.write_table(rows)
    data, frame = path.read_bytes(), bytes.fromhex("28b52ffd")  # how what is packed begins
    _, second, third = [offset for offset, _ in TraceReader(trace).places("marks", ["time_ns"])]
    last = data.rindex(frame, second, third)
    path.write_bytes(data[:last] + b"damage!!" + data[last + 8 :])
    return trace


def test_marks_that_are_missing_are_no_stall(tmp_path: Path) -> None:
    """A recording that ended well and was cut off when it was copied, say: no rank is stalled where marks end."""
    trace = Job(iterations=40).fill().write(tmp_path / "t.netprof")
    rows, path = TraceReader(trace).table("marks"), trace / "marks.arrows"
    with pa.ipc.new_stream(str(path), tables()["marks"]) as stream:
        stream.write_table(rows.sort_by("time_ns"), max_chunksize=50)
    offsets = [offset for offset, _ in TraceReader(trace).places("marks", ["time_ns"])]
    os.truncate(path, offsets[len(offsets) // 2])
    analysis = analyze(TraceReader(trace))
    assert analysis.evidence.marks.time_ns[-1] - START_NS < 5 * 10**9
    assert analysis.evidence.recording.end_ns[-1] == analysis.evidence.marks.time_ns[-1]
    assert (analysis.of(STALLED_AT_END), analysis.evidence.unfinished) == (None, {})
    (said,) = [value for label, value in analysis.of(FIRST_SCREEN).advice.rows if label == "but"]
    assert said == "1 table is damaged: its last rows are missing, so this may be wrong"


SAID = (
    "marks.arrows is damaged: it {}holds what cannot be read; these rows and all that follow are left out: record again"
)


def test_a_batch_that_cannot_be_read_ends_its_table_and_is_said(with_bad_end: Path) -> None:
    reader = TraceReader(with_bad_end)
    assert len(list(reader.batches("marks"))) == 1
    assert reader.damage == (SAID.format("is cut off, or "),)
    assert not reader.truncated, "the recorder had finished"
    analysis = analyze(TraceReader(with_bad_end))
    assert [note for note in analysis.notes if "damaged" in note or "did not finish" in note] == list(reader.damage)


def test_so_does_damage_in_columns_that_are_only_read_in_a_second_pass(with_bad_end: Path) -> None:
    reader = TraceReader(with_bad_end)
    offsets = [offset for offset, _ in reader.places("marks", ["time_ns"])]
    assert len(offsets) == 3
    assert len(list(reader.batches_at("marks", offsets))) == 1
    assert reader.damage == (SAID.format(""),)
    assert len(list(reader.places("marks", ["time_ns"]))) == 1


def test_a_table_that_became_shorter_meanwhile_was_changed(with_bad_end: Path) -> None:
    reader = TraceReader(with_bad_end)
    offsets = [offset for offset, _ in reader.places("marks", ["time_ns"])]
    os.truncate(with_bad_end / "marks.arrows", offsets[0])
    with pytest.raises(TraceError, match=r"marks\.arrows changed while it was read"):
        list(reader.batches_at("marks", offsets))


def test_a_column_of_a_later_schema_is_unknown_and_not_damaged(trace: Path) -> None:
    meta = json.loads((trace / "meta.json").read_text()) | {"schema_version": 1}
    (trace / "meta.json").write_text(json.dumps(meta))
    old = recorded_columns("tcp", 1)
    with pa.ipc.new_stream(str(trace / "tcp.arrows"), old) as stream:
        stream.write_batch(_row(old))
    reader = TraceReader(trace)
    assert reader.table("tcp").num_rows == 1
    assert reader.damage == ()


def _row(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{name: START_NS if name == "time_ns" else 1 for name in schema.names}], schema)


META: list[tuple[str, Any]] = [
    ("bin_ns", 10**30),
    ("bin_ns", 0),
    ("bin_ns", -1),
    ("bin_ns", 1e6),
    ("started_ns", 10**400),
    ("started_ns", -1),
    ("stopped_ns", 1),
    ("host", 7),
    ("warnings", [7]),
    ("warnings", "text"),
    ("warnings", {"0": "text"}),
    ("clock", {"monotonic_ns": 1, "realtime_ns": 10**30}),
    ("cost", {"cpu_s": float("nan")}),
    ("cost", {"wall_s": float("inf")}),
    ("cost", {"wall_s": True}),
    ("losses", {"late_bytes": -1}),
    ("targets", [{"pid": -5, "start_ticks": 1}]),
    ("targets", [{"pid": 5, "start_ticks": 1, "world_size": -3}]),
    ("targets", [{"pid": 5, "start_ticks": 1, "world_size": 1 << 40}]),
    ("targets", [{"pid": 5, "start_ticks": 1, "rank": 1 << 40}]),
    ("targets", [{"pid": 5, "start_ticks": 1, "command": "x" * 70_000}]),
    ("targets", [{"pid": 5, "start_ticks": 1, "command": "\ud800"}]),
    *[
        ("devices", [{"device": "eth0", "netns": 7, "line_rate": {"bps": bps, "source": "x"}}])
        for bps in (-1.0, 0, float("inf"), 1e-300, 10**400)
    ],
]


@pytest.mark.parametrize(("entry", "value"), META, ids=lambda each: str(each)[:50])
def test_what_no_recorder_describes_is_one_line(entry: str, value: Any, trace: Path) -> None:
    document = asdict(TraceReader(trace).meta) | {entry: value}
    (trace / "meta.json").write_text(json.dumps(document))
    for way in (TraceReader, FollowedTraceSource):
        with pytest.raises(TraceError, match=r"meta\.json is (damaged|not readable)") as caught:
            way(trace)
        assert len(caught.value.message) < 300
        assert "\n" not in caught.value.message
        assert caught.value.hint


@pytest.mark.parametrize(
    "described", [{"stopped_ns": START_NS, "started_ns": START_NS}, {"warnings": ["é" * (LONGEST_TEXT_BYTES // 2)]}]
)
def test_the_most_that_a_recorder_describes(described: dict[str, Any], trace: Path) -> None:
    document = asdict(TraceReader(trace).meta) | described
    (trace / "meta.json").write_text(json.dumps(document))
    read = asdict(TraceReader(trace).meta)
    assert {key: [*read[key]] if key == "warnings" else read[key] for key in described} == described


def test_a_whole_number_is_one_where_others_may_be(trace: Path) -> None:
    document = asdict(TraceReader(trace).meta) | {"cost": {"wall_s": 2}}
    (trace / "meta.json").write_text(json.dumps(document))
    wall_s = TraceReader(trace).meta.cost.wall_s
    assert (wall_s, type(wall_s)) == (2.0, float)


def test_every_limit_is_one_that_the_recorder_keeps(trace: Path) -> None:
    """The synthetic traces of all other tests are read as well; here: no unit is left without a limit."""
    for table, schema in tables().items():
        for field in schema:
            if not pa.types.is_string(field.type):
                assert domain(field.name, table).high > 0
    reader = TraceReader(trace)
    assert sum(len(list(reader.batches(table))) for table in tables()) > 5
    assert reader.damage == ()


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_link_out(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_link_to_file(path: Path) -> None:
    outside = path.parent.parent / "outside"
    outside.write_bytes(b"")
    path.symlink_to(outside)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [make_fifo, make_loop, make_link_out, make_link_to_file, Path.mkdir])
@pytest.mark.parametrize("name", ["meta.json", "wire.arrows", "gpu.arrows"])
def test_what_is_no_file_of_the_trace_is_refused_at_once(make: Callable[[Path], None], name: str, trace: Path) -> None:
    (trace / name).unlink(missing_ok=True)
    make(trace / name)
    for way in (lambda: analyze(TraceReader(trace)).document(), lambda: FollowedTraceSource(trace).look()):
        with pytest.raises(TraceError, match=rf"{name} is a .*, not a file"):
            way()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [make_fifo, make_loop, make_link_out])
def test_logs_and_timelines_go_the_same_way(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "log")
    with pytest.raises(NetprofError, match="log"):
        read_log(tmp_path / "log", 0.1, None)
    with pytest.raises(NetprofError, match="log"):
        read_timeline(tmp_path / "log")


@pytest.fixture
def endless(trace: Path) -> Path:
    """A trace with a table of 20 batches, all alike, that unpack to more than they may."""
    schema, rows = tables()["tcp"], 400_000
    columns = [np.full(rows, START_NS if field.name == "time_ns" else 1) for field in schema]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 9))
    with pa.ipc.new_stream(str(trace / "tcp.arrows"), schema, options=options) as stream:
        for _ in range(20):
            stream.write_batch(batch)
    assert 20 * batch.nbytes > 5 * ALLOWANCE_BYTES
    return trace


@pytest.mark.slow
def test_a_table_that_unpacks_without_end_is_left_where_it_begins_to(endless: Path) -> None:
    reader, may_be = TraceReader(endless), budget_bytes((endless / "tcp.arrows").stat().st_size)
    for _ in range(2):  # what was counted once is not counted again
        batches = list(reader.batches("tcp"))
        assert may_be - batches[0].nbytes < sum(batch.nbytes for batch in batches) <= may_be
    (said,) = reader.damage
    assert "tcp.arrows" in said
    assert "unpack to more than" in said


@pytest.mark.slow
def test_so_it_is_where_its_batches_are_asked_for_by_their_places(endless: Path) -> None:
    table = endless / "tcp.arrows"
    with pa.OSFile(str(table), mode="r") as file:
        pa.ipc.read_message(file)
        first = file.tell()
        pa.ipc.read_message(file)
        size = file.tell() - first
    reader, may_be = TraceReader(endless), budget_bytes(table.stat().st_size)
    batches = list(reader.batches_at("tcp", range(first, first + 20 * size, size)))
    assert may_be - batches[0].nbytes < sum(batch.nbytes for batch in batches) <= may_be
    assert "unpack to more than" in reader.damage[0]


@pytest.mark.slow
def test_a_trace_is_read_without_pandas(tmp_path: Path) -> None:
    """Arrow's own conversion to numpy imports it, which takes half of the time of a short report."""
    Job(iterations=2).fill().write(tmp_path / "t")
    script = f"""
import sys, pathlib
from netprof.analysis import analyze
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.pieces import PieceSize
from netprof.trace import TraceReader
path = pathlib.Path({str(tmp_path / "t")!r})
pieces = []
analyze(TraceReader(path)).document()
size = PieceSize(rows=100, at_once=1, shortest_ns=1)
analyze(TraceReader(path), size=size, on_piece=lambda done, count: pieces.append(done)).document()
assert 1 < len(pieces) < 20, pieces
analyze(open_job([path])).document()
sys.exit('pandas' in sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == 0


def test_a_connection_may_be_paced_at_any_speed_there_is() -> None:
    """TCP under BBR paces at what it estimates: on loopback at many gigabytes a second."""
    assert domain("pacing_bytes_per_s", "tcp").holds(5_000_000_000)
    assert domain("pacing_limit_bytes_per_s", "tcp").holds(200_000_000_000)
