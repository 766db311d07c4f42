"""The Python API: tables as DataFrames with the names of the CSV files, and the examples of docs/python.md."""

from __future__ import annotations

import re
import subprocess
import sys
from html import escape
from pathlib import Path

import pandas as pd
import pytest
from support.synthetic import Job

import netprof
from netprof.analysis.result_tables import result_tables
from netprof.api import Recording
from netprof.errors import TraceError
from netprof.schema import tables

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202e"


@pytest.fixture
def run(tmp_path: Path) -> Recording:
    return netprof.load(Job().fill().write(tmp_path / "run.netprof"))


@pytest.mark.slow
def test_every_table_is_a_frame_with_the_columns_of_the_csv_file(run: Recording, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "netprof", "report", str(run.path), "--csv", str(tmp_path / "csv")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(run.table_names) == {*tables(), *result_tables()} == {f.stem for f in (tmp_path / "csv").glob("*.csv")}
    for name in run.table_names:
        frame, written = getattr(run, name), pd.read_csv(tmp_path / "csv" / f"{name}.csv")
        assert isinstance(frame, pd.DataFrame)
        assert list(frame.columns) == list(written.columns)
        assert len(frame) == len(written)
        assert name in dir(run)


@pytest.mark.slow
def test_frames_hold_what_was_recorded_and_concluded(run: Recording) -> None:
    assert len(run.iterations) == 20
    assert run.iteration_summary["exposed_communication_s"].median() == pytest.approx(0.098, abs=1e-5)
    assert run.wire["wire_bytes"].sum() == run.utilization["wire_bytes"].sum()
    assert run.links["line_rate_bps"].tolist() == [1e9, 1e9]
    assert run.flows is run.flows, "made once"


def test_the_report_is_that_of_the_command_line(run: Recording) -> None:
    document = run.report()
    assert document["verdict"] == run.verdict
    assert document["iterations"]["count"] == 10


def test_a_notebook_shows_it(tmp_path: Path) -> None:
    job = Job().fill()
    job.changes["warnings"] = (HOSTILE,)
    run = netprof.load(job.write(tmp_path / "t"))
    shown = run._repr_html_()
    assert escape(run.verdict) in shown
    assert "Idle link time" in shown
    assert "<img" not in shown
    assert not re.search("[\x1b\u202e]", shown)
    assert run.verdict in repr(run)


def test_what_there_is_not_is_said(run: Recording, tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="no table 'iteration', but flows, wire"):
        run.iteration  # noqa: B018 - asking is the test
    with pytest.raises(KeyError):
        run.table("nothing")
    with pytest.raises(TraceError, match="is not a netprof trace"):
        netprof.load(tmp_path / "nothing")


@pytest.mark.parametrize("module", ["pandas", "pyarrow", "numpy"])
def test_importing_netprof_imports_nothing_large(module: str) -> None:
    code = f"import sys, netprof; sys.exit('{module}' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_the_examples_of_the_documentation_run(
    run: Recording, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run.path.parent)
    examples = re.findall(r"```python\n(.*?)```", (checkout / "docs" / "python.md").read_text(), re.DOTALL)
    assert len(examples) >= 5
    names: dict[str, object] = {}
    for example in examples:
        exec(example, names)
    printed = capsys.readouterr().out
    assert run.verdict in printed
    assert "link_full" in printed
