"""A command that is advised can be pasted: it names how netprof was started, and what it read."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.synthetic import Job
from typer.testing import CliRunner

from netprof.analysis.findings.advice import Advice
from netprof.cli.main import app

ASK = Advice("a faster link", "netprof whatif TRACE --bandwidth 10gbit")


@pytest.mark.parametrize(
    ("program", "traces", "typed"),
    [
        ("", (), "netprof whatif TRACE --bandwidth 10gbit"),
        (".venv/bin/netprof", ("run.netprof",), ".venv/bin/netprof whatif run.netprof --bandwidth 10gbit"),
        ("netprof", ("h 0.netprof", "$(id)"), "netprof whatif 'h 0.netprof' '$(id)' --bandwidth 10gbit"),
    ],
)
def test_a_command_of_netprof_is_filled_in(program: str, traces: tuple[str, ...], typed: str) -> None:
    assert ASK.typed(program, traces) == typed


def test_other_commands_stay_as_they_are() -> None:
    assert Advice("", "ethtool TRACE").typed(".venv/bin/netprof", ("run.netprof",)) == "ethtool TRACE"


def test_the_report_names_the_trace_that_it_read(tmp_path: Path) -> None:
    trace = Job().fill().write(tmp_path / "run.netprof")
    printed = CliRunner().invoke(app, ["report", str(trace)], env={"COLUMNS": "1000"}).stdout
    assert f"-m netprof whatif {trace} --bandwidth 10gbit" in printed
