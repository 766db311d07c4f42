"""CSV and Parquet, read back: every table is there, every row, and a spreadsheet runs nothing."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.synthetic import Job

from netprof.analysis import analyze
from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.result_tables import result_tables
from netprof.files import Directory
from netprof.schema import LinkState, NcclRankState, tables
from netprof.trace import TraceReader
from netprof.views import csv_tables, parquet_tables
from netprof.views.every_table import _words_of
from netprof.views.reporter import Report
from netprof.views.safe import safe_text


def report_on(job: Job, path: Path) -> Report:
    reader = TraceReader(job.write(path / "t.netprof"))
    return Report(analyze(reader), reader)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return report_on(Job().fill(), tmp_path)


@pytest.mark.slow
def test_every_recorded_table_and_every_result_is_written(report: Report, tmp_path: Path) -> None:
    for write, suffix in ((csv_tables.fill, "csv"), (parquet_tables.fill, "parquet")):
        folder = tmp_path / suffix
        folder.mkdir()
        write(report, Directory(folder))
        expected = {*tables(), *result_tables()}
        assert {file.stem for file in folder.glob(f"*.{suffix}")} == expected
        assert (folder / "report.json").stat().st_size > 1000
        assert len(list(folder.iterdir())) == len(expected) + 2  # report.json, schema.json


@pytest.mark.slow
def test_csv_holds_what_was_recorded(report: Report, tmp_path: Path) -> None:
    csv_tables.fill(report, Directory(tmp_path))
    assert report.trace is not None
    for name, schema in tables().items():
        recorded = report.trace.table(name).to_pylist()
        found = rows_of(tmp_path / f"{name}.csv")
        assert len(found) == len(recorded)
        if found:
            assert list(found[0]) == schema.names
            assert found[-1] == {column: str(worded(schema, column, v)) for column, v in recorded[-1].items()}


def worded(schema: pa.Schema, column: str, value: object) -> object:
    """Return what an export writes for a value: the word for a number of an enumeration."""
    words = _words_of(schema).get(column)
    return value if words is None or not isinstance(value, int) else words.get(value, str(value))


def test_a_state_is_called_as_its_table_means_it() -> None:
    assert _words_of(tables()["nccl_ranks"])["state"][NcclRankState.RUNNING] == "running"
    assert _words_of(tables()["link_changes"])["state"][LinkState.DOWN] == "down"


@pytest.mark.slow
def test_csv_results_agree_with_the_analysis(report: Report, tmp_path: Path) -> None:
    csv_tables.fill(report, Directory(tmp_path))
    analysis = report.analysis
    iterations = rows_of(tmp_path / "iterations.csv")
    assert [int(row["begin_ns"]) for row in iterations] == analysis.evidence.iterations.begin_ns.tolist()
    summary = rows_of(tmp_path / "iteration_summary.csv")
    assert len(summary) == len(iterations)
    assert float(summary[0]["exposed_communication_s"]) == pytest.approx(0.098, abs=1e-5)
    idle = rows_of(tmp_path / "idle.csv")
    waited = sum(int(r["end_ns"]) - int(r["begin_ns"]) for r in idle if r["cause"] == "gradients_waiting")
    assert waited == sum(link.idle.gradients_waiting_ns or 0 for link in analysis.of(LINKS))
    bins = rows_of(tmp_path / "utilization.csv")
    assert sum(int(row["wire_bytes"]) for row in bins) == sum(
        int(r["wire_bytes"]) for r in rows_of(tmp_path / "wire.csv")
    )
    assert {row["utilization"] for row in bins} == {"1"}
    links = rows_of(tmp_path / "links.csv")
    assert float(links[1]["idle_s.no_gradient"]) == (analysis.of(LINKS)[1].idle.no_gradient_ns or 0) / 1e9


@pytest.mark.slow
def test_parquet_keeps_types_and_rows(report: Report, tmp_path: Path) -> None:
    parquet_tables.fill(report, Directory(tmp_path))
    assert report.trace is not None
    for name, schema in tables().items():
        table = pq.read_table(tmp_path / f"{name}.parquet")
        assert table.schema.names == schema.names
        in_words = _words_of(schema)
        kept = [each for each in schema.names if each not in in_words]
        assert table.select(kept).schema.types == [schema.field(each).type for each in kept]
        assert table.select(kept).to_pylist() == report.trace.table(name).select(kept).to_pylist()
        for column in in_words:
            recorded = report.trace.table(name)[column].to_pylist()
            assert table[column].to_pylist() == [worded(schema, column, value) for value in recorded]


@pytest.mark.slow
def test_numbers_of_enumerations_are_words_and_the_schema_says_what_there_is(report: Report, tmp_path: Path) -> None:
    csv_tables.fill(report, Directory(tmp_path))
    assert {row["direction"] for row in rows_of(tmp_path / "wire.csv")} == {"tx", "rx"}
    assert "ddp_forward" in {row["kind"] for row in rows_of(tmp_path / "marks.csv")}
    assert {row["kind"] for row in rows_of(tmp_path / "collectives.csv")} == {"all_reduce"}
    known = json.loads((tmp_path / "schema.json").read_text())["tables"]
    for name, described in known.items():
        rows = rows_of(tmp_path / f"{name}.csv")
        assert not rows or list(rows[0]) == list(described["columns"])
    assert "how long a process waits" in known["waiting"]["row"]


@pytest.mark.slow
def test_the_table_of_waiting_is_the_account(report: Report, tmp_path: Path) -> None:
    csv_tables.fill(report, Directory(tmp_path))
    found = report.analysis.of(WAITING)
    assert found is not None
    rows = rows_of(tmp_path / "waiting.csv")
    for each in found.by_rank:
        own = sum(int(row["waited_ns"]) for row in rows if int(row["pid"]) == each.pid)
        assert own == pytest.approx(each.exposed_ns, rel=0.02)
    assert {row["cause"] for row in rows} <= {cause.name for cause in WAIT_CAUSES}


@pytest.mark.slow
@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2", "@SUM(A1)"])
def test_a_formula_in_a_name_stays_text_in_csv(text: str, tmp_path: Path) -> None:
    job = Job().fill()
    job.flow_changes["device"] = [text, "eth1"]
    report = report_on(job, tmp_path)
    csv_tables.fill(report, Directory(tmp_path))
    assert rows_of(tmp_path / "flows.csv")[0]["device"] == "'" + text
    parquet_tables.fill(report, Directory(tmp_path))
    assert pq.read_table(tmp_path / "flows.parquet")["device"][0].as_py() == text


@pytest.mark.slow
def test_a_long_text_is_whole_in_csv(tmp_path: Path) -> None:
    job = Job().fill()
    job.flow_changes["device"] = ["x" * 3000, "eth1"]
    csv_tables.fill(report_on(job, tmp_path), Directory(tmp_path))
    assert rows_of(tmp_path / "flows.csv")[0]["device"] == "x" * 3000


@pytest.mark.slow
def test_a_name_that_many_rows_repeat_is_made_harmless_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for iterations in (10, 40):
        folder = tmp_path / f"{iterations}"
        folder.mkdir()
        safe = Mock(side_effect=safe_text)
        with monkeypatch.context() as patched:
            patched.setattr(csv_tables, "safe_text", safe)
            csv_tables.fill(report_on(Job(iterations=iterations).fill(), folder), Directory(folder))
        counts.append(safe.call_count)
    assert 0 < counts[0] == counts[1]


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["marks", "wire"])
def test_empty_tables_are_written_too(lost: str, tmp_path: Path) -> None:
    job = Job(rate_bps=None, world_size=None).fill()
    getattr(job, lost).clear()
    report = report_on(job, tmp_path)
    csv_tables.fill(report, Directory(tmp_path))
    parquet_tables.fill(report, Directory(tmp_path))
    assert rows_of(tmp_path / "links.csv")[0]["line_rate_bps"] == ""
    assert rows_of(tmp_path / f"{lost}.csv") == []
