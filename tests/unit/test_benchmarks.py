"""The benchmarks' own tools: a column that is new to the trace's format must not end them."""

from __future__ import annotations

from pathlib import Path

import pytest

from netprof.analysis import analyze
from netprof.trace import TraceReader


def test_the_trace_that_grows_is_one_that_a_report_understands(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(checkout / "examples" / "benchmarks"))
    from report_growth import RATE_BPS, write_trace

    write_trace(tmp_path / "t.netprof", rows=16_000, flows=4)
    document = analyze(TraceReader(tmp_path / "t.netprof")).document()
    assert document["iterations"]["count"] == 9
    assert document["links"][0]["line_rate_bps"] == RATE_BPS


def test_the_long_trace_is_one_that_a_report_understands(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(checkout / "examples" / "benchmarks"))
    from report_length import write_trace

    write_trace(tmp_path / "t.netprof", ranks=3, iterations=9)
    document = analyze(TraceReader(tmp_path / "t.netprof")).document()
    assert document["iterations"]["count"] == 8
    assert len(document["links"]) == 3
