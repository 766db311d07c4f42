"""The report by default: at most 30 lines, the verdict first, and what it leaves out is told."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from golden.conclusions import EXPECTED, names, traces
from rich.console import Console

from netprof.analysis import analyze
from netprof.analysis.definitions import ALL
from netprof.analysis.findings.verdict.first_screen import first_screen
from netprof.analysis.form import Grid
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.verdict_pages import PAGES
from netprof.cli.explain import explain
from netprof.errors import UsageError
from netprof.views.console import render
from netprof.views.glossary import entries

ROOT = Path(__file__).parents[3]
MOST_LINES = 30


@pytest.mark.parametrize("name", names())
def test_a_real_report_has_at_most_thirty_lines_of_eighty_columns(name: str) -> None:
    lines = (EXPECTED / name / "console.ansi").read_text().splitlines()
    assert len(lines) <= MOST_LINES


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_first_lines_are_the_verdict_and_what_to_do(width: int) -> None:
    file = io.StringIO()
    render(analyze(open_job(traces("late-rank"))), Console(file=file, width=width))
    lines = file.getvalue().splitlines()
    assert len(lines) <= MOST_LINES
    assert lines[0].startswith("HELD UP BY RANK 1: 119 ms late in every step, waiting as for data")
    assert lines[1].startswith("  without that a step takes 40 ms instead of 158 ms")
    assert any(line.split()[:1] == ["next"] for line in lines)
    assert "--full" in lines[-1]
    assert "LATE" in file.getvalue()


def test_every_verdict_and_every_term_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    known = entries()
    for page in PAGES:
        explain([page.name])
        assert page.title in capsys.readouterr().out
    for term in ALL:
        assert term.term.lower().replace("-", " ") in known
    explain(None)
    assert "late-rank" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["late-rank", "slow-leg", "evaluation"])
def test_every_heading_of_the_first_screen_can_be_explained(name: str) -> None:
    bodies = [body for part in first_screen(analyze(open_job(traces(name)))).parts for body in part.bodies]
    headings = [heading for body in bodies if isinstance(body, Grid) for heading in body.headings]
    words = {re.sub(r" of [\d.]+ ms| \(.*\)|^a ", "", heading).strip() for heading in headings} - {
        "",
        "ms",
        "time",
        "size",
    }
    assert len(words) > 6
    assert words - {"rank"} <= set(entries())


def test_every_family_of_verdicts_that_the_documentation_lists_can_be_explained() -> None:
    families = re.search(r"a family \(([^)]+)\)", (ROOT / "docs/reading.md").read_text())
    assert families is not None
    words = [word.lower() for word in families[1].split(", ")]
    assert "asleep" in words
    assert set(words) <= set(entries())


def test_an_unknown_word_names_those_that_are_close() -> None:
    with pytest.raises(UsageError) as error:
        explain(["late-rnak"])
    assert "late rank" in error.value.hint
