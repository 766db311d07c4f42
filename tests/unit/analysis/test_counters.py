"""Counters of any source: growth, rates, the worst second and the worst subject, against arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from netprof.analysis import Analysis, analyze
from netprof.analysis.findings.host.counters import COUNTERS, CounterSummary
from netprof.model import Clock, Meta, Series
from netprof.schema import COUNT, LEVEL
from netprof.trace import TraceReader, TraceWriter
from netprof.views.markdown import render

S = 10**9
HOSTILE = "<b>x</b>|`"


def series(number: int, subject: str, name: str = "drops", unit: str = "packets", kind: str = COUNT) -> Series:
    return Series(number, "host", subject, name, unit, kind, "what it means")


def analysed(path: Path, described: tuple[Series, ...], rows: Sequence[tuple[int, float, int]]) -> Analysis:
    """A trace of ten seconds with rows (series, seconds, value)."""
    meta = Meta("0", "host", "", "", Clock(0, 0), (), 1_000_000, started_ns=0, stopped_ns=10 * S, series=described)
    writer = TraceWriter(path / "t.netprof", meta)
    columns: dict[str, Any] = {
        "series": [row[0] for row in rows],
        "time_ns": [round(row[1] * S) for row in rows],
        "value": [row[2] for row in rows],
    }
    writer.append("counters", columns)
    writer.close(meta)
    return analyze(TraceReader(path / "t.netprof"))


def only(analysis: Analysis) -> CounterSummary:
    (summary,) = analysis.of(COUNTERS).summaries
    return summary


def test_counts_grow_over_all_subjects(tmp_path: Path) -> None:
    rows = [(0, 0, 100), (0, 3, 110), (0, 3.5, 150), (0, 9, 151), (1, 0, 7), (1, 3.9, 17), (1, 10, 17)]
    found = only(analysed(tmp_path, (series(0, "CPU 0"), series(1, "CPU 1")), rows))
    assert (found.subjects, found.total) == (2, 61)
    assert found.per_second == pytest.approx(6.1)
    assert found.busiest_per_second == 60  # 10, 40 and 10 within 0.9 s
    assert (found.worst_subject, found.worst_total) == ("CPU 0", 51)


def test_a_count_that_begins_anew_counts_from_zero(tmp_path: Path) -> None:
    found = only(analysed(tmp_path, (series(0, "port"),), [(0, 0, 1000), (0, 5, 1010), (0, 6, 3)]))
    assert found.total == 13


def test_a_count_that_stands_still_is_zero_not_missing(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, (series(0, "CPU 0"),), [(0, 0, 5), (0, 10, 5)])
    assert (only(analysis).total, only(analysis).per_second, only(analysis).busiest_per_second) == (0, 0, 0)
    assert "| drops | 0 packets |" in render(analysis)


def test_microseconds_a_second_are_a_share_of_the_time(tmp_path: Path) -> None:
    described = (series(0, "host", "some", "us"),)
    text = render(analysed(tmp_path, described, [(0, 0, 0), (0, 5, 2_000_000), (0, 10, 2_000_000)]))
    assert "| some | 2.00 s | 20.0 % | - | 200.0 % |" in text


def test_a_level_has_a_mean_and_no_speed(tmp_path: Path) -> None:
    described = (series(0, "host", "waited", "ns", kind=LEVEL),)
    text = render(analysed(tmp_path, described, [(0, 0, 2_000_000), (0, 5, 4_000_000)]))
    assert "| waited | 4.00 ms | - | 3.00 ms | - |" in text


def test_a_count_that_comes_up_to_date_seldom_is_no_more_than_it_can_be(tmp_path: Path) -> None:
    rows = [(0, 0, 0), *((0, 2 * step, 2_000_000 * step) for step in range(1, 6))]
    assert only(analysed(tmp_path, (series(0, "all", "some", "us"),), rows)).busiest_per_second == 1_000_000


def test_levels_have_a_mean(tmp_path: Path) -> None:
    found = only(analysed(tmp_path, (series(0, "x", kind=LEVEL),), [(0, 0, 10), (0, 5, 20)]))
    assert (found.total, found.per_second, found.busiest_per_second) == (20, 15, None)


def test_a_described_series_without_rows_and_hostile_names(tmp_path: Path) -> None:
    described = (series(0, HOSTILE, HOSTILE), series(1, HOSTILE + "2", HOSTILE), series(2, "y", "never"))
    analysis = analysed(tmp_path, described, [(0, 0, 0), (0, 1, 5), (1, 0, 0), (1, 1, 1)])
    assert only(analysis).name == HOSTILE
    assert "<b>" not in render(analysis).replace("\\<", "")
