"""Digests: thin traces that say what the traces say, in bins as wide as they are asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hidden_ends import ENDS, without
from support.made_alone import apart, digested, of_traces
from support.profiles import examples
from support.synthetic import MS, Job, in_parts, with_late_rank

from netprof.analysis import analyze
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.pieces import PieceSize
from netprof.errors import TraceError, UsageError
from netprof.schema import RECEIVE, TRANSMIT, MarkKind, tables
from netprof.session.digest import write_digests
from netprof.trace import TraceReader
from netprof.trace.digest import NOT_HELD, OLD_FILE, in_wider_bins, made_name
from netprof.trace.named import traces_named
from netprof.views.json_report import to_json

SAYS_OF_ITSELF = ("hosts", "notes", "digest", "host")


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    """Of three hosts with a rank each, of which the last one is late."""
    job = with_late_rank(Job(ranks=3, world_size=3, iterations=20).fill(), 2, 40 * MS)
    return apart(job.write(tmp_path / "whole.netprof"), tmp_path)


def compared(found: dict[str, Any], whole: dict[str, Any]) -> None:
    assert found["digest"]["not_told"] == list(NOT_HELD)
    assert "digest" not in whole
    for name in (found.keys() | whole.keys()) - {*SAYS_OF_ITSELF}:
        assert found[name] == whole[name], name


@pytest.mark.parametrize("kind", ["all marks", "launches", "parts"])
def test_digests_say_what_the_traces_say(kind: str, traces: list[Path], tmp_path: Path) -> None:
    if kind == "launches":
        traces = [without(each, each.with_suffix(".launches.netprof"), ENDS) for each in traces]
    elif kind == "parts":
        job = with_late_rank(Job(ranks=4, world_size=4, iterations=20).fill(), 3, 40 * MS)
        traces = apart(in_parts(job, 2).write(tmp_path / "parts.netprof"), tmp_path)
    compared(digested(traces, tmp_path / "digests"), of_traces(traces))


@pytest.mark.slow
def test_so_do_they_beside_traces_and_in_pieces(traces: list[Path], tmp_path: Path) -> None:
    (digest,) = write_digests(open_job(traces[1:2]), tmp_path / "digests", "job")
    mixed = [traces[0], digest, traces[2]]
    compared(json.loads(json.dumps(to_json(analyze(open_job(mixed))))), of_traces(traces))
    size = PieceSize(rows=1, at_once=1, shortest_ns=200 * MS)
    pieces = [to_json(analyze(open_job(each), size=size)) for each in (mixed, traces)]
    compared(*pieces)


def test_all_hosts_of_a_recording_are_digested_in_one_go(traces: list[Path], tmp_path: Path) -> None:
    folders = write_digests(open_job(traces), tmp_path / "digests", "job")
    assert [folder.name for folder in folders] == ["host=h0", "host=h1", "host=h2"]
    assert traces_named([tmp_path / "digests"]) == traces_named([tmp_path / "digests" / "job=job"]) == folders
    compared(json.loads(json.dumps(to_json(analyze(open_job(folders))))), of_traces(traces))


def test_a_digest_of_a_digest_is_the_same(traces: list[Path], tmp_path: Path) -> None:
    (once,) = write_digests(TraceReader(traces[0]), tmp_path / "a", "job")
    (again,) = write_digests(TraceReader(once), tmp_path / "b", "job")
    assert all((again / each.name).read_bytes() == each.read_bytes() for each in once.iterdir())


def test_gradients_are_not_in_it(tmp_path: Path) -> None:
    job = Job(iterations=5).fill()
    job.marks += [(row[0], row[1], row[2], int(MarkKind.GRADIENT_READY), 1, 1) for row in job.marks[:20]]
    job.marks.sort()
    (digest,) = write_digests(TraceReader(job.write(tmp_path / "t.netprof")), tmp_path / "digests", "job")
    kinds = TraceReader(digest).table("marks").column("kind").to_pylist()
    assert MarkKind.GRADIENT_READY not in kinds
    assert len(kinds) == len(job.marks) - 20
    words = [sys.executable, "-m", "netprof", "whatif", str(digest), "--bandwidth", "10"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "is a digest: it does not hold gradients" in done.stderr


@pytest.mark.parametrize("end", ["damaged", "cut off"])
def test_what_is_wrong_with_a_trace_is_said_of_its_digest(end: str, traces: list[Path], tmp_path: Path) -> None:
    table = traces[0] / "marks.arrows"
    table.write_bytes(table.read_bytes()[:-500])
    said = digested(traces[:1], tmp_path / "digests")["losses"]
    assert said["damage"] == of_traces(traces[:1])["losses"]["damage"] != []


def test_wider_bins_make_it_smaller_and_keep_the_bytes(tmp_path: Path) -> None:
    trace = Job(iterations=20).fill().write(tmp_path / "t.netprof")
    fine, wide = (
        write_digests(TraceReader(trace), tmp_path / f"{bin_ns}", "job", bin_ns=bin_ns)[0] for bin_ns in (None, 10 * MS)
    )
    rows = [TraceReader(each).table("wire") for each in (fine, wide)]
    assert rows[1].num_rows < rows[0].num_rows / 2
    assert TraceReader(wide).meta.bin_ns == 10 * MS
    reports = [to_json(analyze(TraceReader(each))) for each in (fine, wide)]
    assert reports[1]["digest"]["bin_s"] == 0.01
    moved = [[(flow["tx"]["payload_bytes"], flow["rx"]["wire_bytes"]) for flow in each["flows"]] for each in reports]
    assert moved[0] == moved[1]
    waited = [each["waiting"]["exposed_s"] for each in reports]
    assert waited[0] == waited[1], "what marks tell is as exact"


@examples(100)
@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(0, 1), st.integers(0, 50), st.integers(1, 900), st.integers(0, 2000)),
        min_size=1,
        max_size=40,
    )
)
def test_rows_of_wider_bins_are_sums(given_rows: list[tuple[int, int, int, int, int]]) -> None:
    given_rows.sort(key=lambda row: row[2])
    own, wide_ns = 1000, 4000
    columns: dict[str, Any] = {name: [0] * len(given_rows) for name in tables()["wire"].names}
    columns["flow_id"], columns["direction"] = ([row[at] for row in given_rows] for at in (0, 1))
    columns["bin_start_ns"] = [row[2] * own for row in given_rows]
    columns["first_ns"] = [row[2] * own + row[3] // 2 for row in given_rows]
    columns["last_ns"] = [row[2] * own + row[3] // 2 + row[4] for row in given_rows]
    columns["payload_bytes"] = [row[3] for row in given_rows]
    columns["stream_position"] = columns["stream_position_ns"] = [row[2] * own * (row[3] % 2) for row in given_rows]
    batch = pa.RecordBatch.from_pydict(columns, tables()["wire"])
    wide = in_wider_bins(batch, own, wide_ns).to_pydict()
    at = {name: number for number, name in enumerate(columns)}
    for key in ((flow, way) for flow in (1, 2) for way in (TRANSMIT, RECEIVE)):
        rows = [row for row in zip(*columns.values(), strict=True) if row[:2] == key]
        mine = [row for row in zip(*wide.values(), strict=True) if row[:2] == key]
        for name, pick in (("first_ns", min), ("last_ns", max), ("stream_position", max), ("payload_bytes", sum)):
            values = [pick([row[at[name]] for row in each] or [0]) for each in (rows, mine)]
            assert values[0] == values[1], name
        alone = [row for row in rows if row[at["last_ns"]] - row[at["bin_start_ns"]] > own]
        assert sorted(alone) == sorted(row for row in mine if row in alone), "what is of no bin stays as it is"
        starts = [row[at["bin_start_ns"]] for row in mine if row not in alone]
        assert all(start % wide_ns == 0 for start in starts)
        assert len(set(starts)) == len(starts)


def test_a_digest_that_is_in_the_way_stays(traces: list[Path], tmp_path: Path) -> None:
    reader = TraceReader(traces[0])
    (folder,) = write_digests(reader, tmp_path / "digests", "job")
    with pytest.raises(TraceError, match="holds a digest already"):
        write_digests(reader, tmp_path / "digests", "job")
    assert write_digests(reader, tmp_path / "digests", "job", force=True) == [folder]


def test_two_hosts_of_one_name_have_a_folder_each(traces: list[Path], tmp_path: Path) -> None:
    reader = TraceReader(traces[0])
    (first,) = write_digests(reader, tmp_path / "digests", "job")
    reader.meta = replace(reader.meta, boot_id="another boot")
    reader.hosts = (replace(reader.hosts[0], meta=reader.meta),)
    (second,) = write_digests(reader, tmp_path / "digests", "job")
    assert (first.name, second.name) == ("host=h0", "host=h0-another")


def test_digests_of_several_jobs_are_not_read_as_one(traces: list[Path], tmp_path: Path) -> None:
    for job in ("a", "b"):
        write_digests(TraceReader(traces[0]), tmp_path / "digests", job)
    with pytest.raises(UsageError, match="the digests of 2 jobs") as caught:
        traces_named([tmp_path / "digests"])
    assert caught.value.hint.endswith("job=a")


@pytest.mark.parametrize("named", ["digests", "digests/job=old", "digests/job=old/host=h0"])
def test_a_digest_of_an_older_netprof_is_refused_in_a_line(named: str, tmp_path: Path) -> None:
    folder = tmp_path / "digests" / "job=old" / "host=h0"
    folder.mkdir(parents=True)
    (folder / OLD_FILE).write_text("{}")
    with pytest.raises(TraceError, match="is a digest of an older netprof") as caught:
        traces_named([tmp_path / named])
    assert caught.value.hint == "make it again from its traces: netprof digest"


def test_names_are_folders_that_no_program_reads_as_anything_else() -> None:
    assert made_name("../a b=c/") == "a-b-c"
    assert made_name("///") == "unnamed"
    assert len(made_name("x" * 500)) == 100


def test_what_a_trace_of_an_older_schema_lacks_its_digest_lacks(tmp_path: Path) -> None:
    job = Job(iterations=5).fill()
    job.changes["schema_version"] = 2
    trace = job.write(tmp_path / "t.netprof")
    for bin_ns in (None, 10 * MS):
        (digest,) = write_digests(TraceReader(trace), tmp_path / f"{bin_ns}", "job", bin_ns=bin_ns)
        table = TraceReader(digest).table("wire")
        assert table.column("stream_position").null_count == table.num_rows > 0
        assert int(np.sum(table.column("wire_bytes").to_numpy())) == sum(row[4] for row in job.wire)
