"""The flow table of the report, and what it says of the flows beside their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.synthetic import Job

from netprof.analysis import analyze
from netprof.trace import TraceReader


@pytest.mark.parametrize("control", ["bbr", "cubic", ""])
def test_what_holds_flows_back_by_itself_is_said(tmp_path: Path, control: str) -> None:
    """BBR looks at the path now and then; what is not known is no name."""
    job = Job(iterations=2)
    job.flow_changes = {"congestion_control": [control] * job.ranks}
    analysis = analyze(TraceReader(job.fill().write(tmp_path / "t.netprof")))
    assert {flow["congestion_control"] for flow in analysis.document()["flows"]} == {control or None}
    assert any("2 flows under BBR" in note for note in analysis.notes) == (control == "bbr")


def test_nobody_waits_for_a_control_channel(tmp_path: Path) -> None:
    job = Job(iterations=2, flow_changes={"congestion_control": ["cubic", "bbr"]}).fill()
    _, second = sorted({row[0] for row in job.wire})
    job.wire = [(*row[:3], 10, 60) if row[0] == second else row for row in job.wire]
    analysis = analyze(TraceReader(job.write(tmp_path / "t.netprof")))
    assert not any("BBR" in note for note in analysis.notes)


def test_the_largest_flow_comes_first(tmp_path: Path) -> None:
    job = Job(iterations=2).fill()
    first, second = sorted({row[0] for row in job.wire})
    for large, small in ((first, second), (second, first)):
        kept = [(*row[:3], 10, 60) if row[0] == small else row for row in job.wire]
        path = Job(iterations=2, marks=job.marks, wire=kept).write(tmp_path / f"{large}.netprof")
        flows = analyze(TraceReader(path)).document()["flows"]
        moved = [flow["tx"]["wire_bytes"] + flow["rx"]["wire_bytes"] for flow in flows]
        assert moved == sorted(moved, reverse=True)
        assert moved[0] > 10 * moved[1]


def test_a_flow_over_ipv6_is_called_as_one_writes_it_everywhere(tmp_path: Path) -> None:
    job = Job(iterations=2).fill()
    job.flow_changes = {"family": [6, 6], "local_addr": ["fd00::1", "fd00::2"], "remote_addr": ["fd00::2", "fd00::1"]}
    analysis = analyze(TraceReader(job.write(tmp_path / "t.netprof")))
    names = {f"{flow['local']} → {flow['remote']}" for flow in analysis.document()["flows"]}
    assert names == {analysis.evidence.fold.flows.name(row) for row in (0, 1)}
    assert "[fd00::1]:40000 → [fd00::2]:40001" in names
