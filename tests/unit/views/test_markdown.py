"""The report as Markdown, read back by a parser of it: whole, and with nothing from outside in it but text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from support.synthetic import Job

from netprof.analysis import Analysis, analyze
from netprof.analysis.findings.verdict.first_screen import FIRST_SCREEN
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.form import Pairs
from netprof.model import Device, LineRate
from netprof.trace import TraceReader
from netprof.views.markdown import escaped, render

HOSTILE = "<img src=x onerror=alert(1)>|`x`*b*[l](http://evil)\x1b[31m\u202e http://evil www.evil.com @root #1 **b**"


def analysed(job: Job, path: Path) -> Analysis:
    return analyze(TraceReader(job.write(path / "t.netprof")))


def drawn(text: str) -> str:
    """What a person sees of the Markdown, as HTML."""
    return str(MarkdownIt("commonmark").enable("table").render(text))


def seen(text: str) -> str:
    """The text in it, without elements and comments."""
    shown = re.sub(r"<[^>]*>", "", drawn(text))
    return shown.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")


@pytest.mark.slow
def test_it_says_what_the_terminal_says_and_folds_the_rest(tmp_path: Path) -> None:
    analysis = analysed(Job().fill(), tmp_path)
    text = render(analysis)
    assert text.startswith("**")
    assert analysis.of(VERDICT).sentence in seen(text)
    parts = [part for section in analysis.sections for part in analysis.parts(section)]
    head, _, folded = text.partition("<details>")
    assert len(head.splitlines()) <= 25
    assert analysis.of(VERDICT).headline in seen(head)
    for part in parts:
        assert f"### {part.title}" in folded
    for term in analysis.definitions:
        assert term.footnote[:-1] in seen(folded)
    assert drawn(text).count("<table>") == drawn(text).count("</table>") >= 5


def test_tables_have_their_cells(tmp_path: Path) -> None:
    page = drawn(render(analysed(Job().fill(), tmp_path)))
    rows = re.findall(r"<tr>\n<td>0</td>\n(.*?)</tr>", page, re.DOTALL)
    assert ["100", "10", "200.0 ms"] in [re.findall(r">([^<]*)</td>", row)[:3] for row in rows]


@pytest.mark.parametrize("place", ["host", "device", "warning", "command"])
def test_names_are_text(place: str, tmp_path: Path) -> None:
    job = Job(ranks=1).fill()
    target = replace(job.meta().targets[0], command=HOSTILE)
    changes: dict[str, dict[str, Any]] = {
        "host": {"host": HOSTILE},
        "device": {"devices": (Device(HOSTILE, 7, LineRate(1e9, HOSTILE)),)},
        "warning": {"warnings": (HOSTILE,)},
        "command": {"targets": (target,)},
    }
    job.changes |= changes[place]
    if place == "device":
        job.flow_changes["device"] = [HOSTILE]
    text = render(analysed(job, tmp_path))
    page = drawn(text)
    assert not re.search("[\x1b\u202e]", text)
    assert "<img" not in page
    assert "<a " not in page
    assert "<em>" not in page
    assert not re.search(r"[@#]\w", re.sub(r"&#\d+;", "", text)), "nobody is mentioned"
    assert not re.search(r"(?<!\\)://|www\.", text), "nothing links itself"
    assert "<img src=x onerror=alert(1)>|`x`*b*[l](http://evil)\\x1b[31m\\u202e" in seen(text)


def test_a_command_does_not_leave_its_line(tmp_path: Path) -> None:
    analysis = analysed(Job(ranks=1).fill(), tmp_path)
    first = replace(analysis.of(FIRST_SCREEN), advice=Pairs([("next", "$ ethtool 'a`\n# owned\x1b'")]))
    text = render(Analysis(analysis.evidence, analysis.sections, {FIRST_SCREEN: first}))
    assert r"- `ethtool 'a\x0a# owned\x1b'`" in text.splitlines()


@pytest.mark.parametrize("text", ["1.5 ms", "all-reduce", "(p10 3 %)", "eth0: 1 Gbit/s", "a, b; c + d = e!"])
def test_what_needs_no_escape_has_none(text: str) -> None:
    assert escaped(text) == text
