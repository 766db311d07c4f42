"""A report takes work in proportion to what a job has many of: calls and rows are counted, not seconds."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from support.counted_work import Work, work_of
from support.synthetic import Job, in_parts

from netprof.analysis import analyze
from netprof.analysis.tables.columns import int64_column
from netprof.trace import TraceReader
from netprof.views.console import render
from netprof.views.json_report import to_json

pytestmark = pytest.mark.slow
TIMES = 3
MORE = 1.4
"""By so much more than in proportion: sorting is n log n, and what is drawn at most is not reached at first."""


def _reported(trace: Path) -> Work:
    def report() -> None:
        analysis = analyze(TraceReader(trace))
        render(analysis, Console(file=io.StringIO(), width=100), full=True)
        to_json(analysis)

    return work_of(report)


def _check(few: Path, many: Path) -> None:
    _reported(few)  # what is imported and kept by the first report is no work of the second
    one, other = _reported(few), _reported(many)
    assert one.rows > 1_000_000, "rows are counted"
    assert other.calls <= TIMES * MORE * one.calls
    assert other.rows <= TIMES * MORE * one.rows


@pytest.mark.parametrize(
    "many",
    [
        ("connections",),
        ("connections", "servers"),
        ("connections", "children"),
        ("processes",),
        ("processes", "devices"),
        ("buckets",),
        ("steps",),
    ],
    ids="-".join,
)
def test_work_grows_with_counts(
    many: tuple[str, ...], tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(checkout / "examples" / "benchmarks"))
    from report_counts import Counts, write_counts

    least = {"connections": 200, "servers": 200, "children": 200, "processes": 20, "devices": 20}
    few = replace(Counts(connections=0, steps=4), **{name: least.get(name, 20) for name in many})
    write_counts(tmp_path / "few", few)
    write_counts(tmp_path / "many", replace(few, **{name: getattr(few, name) * TIMES for name in many}))
    _check(tmp_path / "few", tmp_path / "many")


def test_work_grows_with_communicators(tmp_path: Path) -> None:
    few, many = (in_parts(Job(ranks=ranks, world_size=ranks, iterations=4).fill(), 2) for ranks in (8, 8 * TIMES))
    _check(few.write(tmp_path / "few"), many.write(tmp_path / "many"))


def test_work_that_grows_faster_is_noticed() -> None:
    """For each row all rows are looked at: calls grow with rows, and what numpy touches with their square."""

    def look(rows: int) -> Work:
        def act() -> None:
            numbers = int64_column({"n": np.arange(rows)}, "n")
            for number in range(rows):
                np.flatnonzero(numbers == number)

        return work_of(act)

    few, many = look(100), look(300)
    assert many.calls < 3.2 * few.calls
    assert many.rows > 8 * few.rows
