"""What the job waits for, in every view: the same shares, names and colours, at any width, and nothing to obey."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from support.synthetic import ITERATION_NS, START_NS, Job, trace_of, with_findings
from support.waiting import account

from netprof.analysis import Analysis, analyze
from netprof.analysis.account.causes import WAIT_CAUSES, Cause
from netprof.analysis.events.phases import PHASES
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.findings.waiting.waiting_by_iteration import NOBODY_LATE, waiting_by_iteration
from netprof.analysis.findings.waiting.waiting_finding import WaitingFinding
from netprof.analysis.form import Bar
from netprof.schema import MarkKind
from netprof.session.live_follow import FollowedTraceSource
from netprof.trace import TraceReader
from netprof.views import console, markdown, notebook
from netprof.views.colours import COLOURS, LETTERS, style_sheet
from netprof.views.console_form import bars
from netprof.views.html import render
from netprof.views.live.draw import draw
from netprof.views.live.view_state import ViewState

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


@pytest.fixture
def analysis(tmp_path: Path) -> Analysis:
    return analyze(TraceReader(trace_of()))


def of(analysis: Analysis, finding: WaitingFinding | None = None) -> Analysis:
    return with_findings(analysis, {WAITING: finding or account()})


def printed(analysis: Analysis, width: int, **options: object) -> str:
    file = io.StringIO()
    console.render(analysis, Console(file=file, width=width, **options), full=True)  # type: ignore[arg-type]
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


@pytest.mark.parametrize(
    ("before", "part", "cells"),
    [
        (0.25, 0.5, (5, 15)),
        (0.9, 1e18, (18, 20)),
        (-1e18, 1e18 + 0.5, (0, 0)),
        (0.5, -1.0, (10, 10)),
        (float("nan"), 0.5, (0, 0)),
    ],
)
def test_a_bar_never_leaves_its_room(before: float, part: float, cells: tuple[int, int]) -> None:
    assert Bar(before, part, "loss").edges(20) == cells


@pytest.mark.slow
def test_causes_come_largest_first_with_who_and_what_it_would_save(analysis: Analysis) -> None:
    text = printed(of(analysis), 80)
    assert "Waiting for communication  25.0 % of all time, 2 ranks together" in text
    assert re.search(r"a late rank +60\.0 % +300\.0 ms +rank 1 +l█+\n", text)
    assert re.search(r"a full link +30\.0 % +150\.0 ms +eth0 of ranks 0, 1 +f█+\n", text)
    assert re.search(r"a busy host +10\.0 % +50\.0 ms +rank 1 +h█+\n", text)
    assert "late rank  a late rank cost 600 ms → do something about a late rank\n" in text
    assert "link full  a full link cost 300 ms → do something about a full link\n" in text
    assert re.search(r"  0 +45\.0 % +l█+f█+·+ ", text)
    assert re.search(r"  1 +5\.0 % +h█*·+ ", text)
    assert re.search(r"5 +200\.0 ms +90\.0 ms +a late rank: rank 1 +l█+", text)


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 57, 80, 200])
def test_no_line_is_wider_than_the_terminal(analysis: Analysis, width: int) -> None:
    lines = printed(of(analysis, account(ranks=40)), width).splitlines()
    assert max(map(len, lines)) <= width
    assert any("16 of 40" in line for line in lines)


def test_bars_fill_their_row_and_are_known_without_colours() -> None:
    stacked = [Bar(0.0, 0.3, "late_rank"), Bar(0.3, 0.004, "loss"), Bar(0.304, 0.196, "host"), Bar(0.7, 0.1, "unseen")]
    assert bars(stacked, 20).plain == "l█████h███····u█····"
    for room in range(1, 60):
        assert len(bars(stacked, room)) == room


@pytest.mark.slow
def test_nothing_is_said_of_a_job_that_never_waits(analysis: Analysis) -> None:
    idle = replace(account(), exposed_ns=0, exposed_share=0.0, causes=(), worst=())
    assert "Waiting" not in printed(of(analysis, idle), 80)
    assert "What the ranks wait for" not in render(of(analysis, idle))


def test_markdown_draws_the_same_bars(analysis: Analysis) -> None:
    text = markdown.render(of(analysis))
    assert re.search(r"\| 0 \| 45\.0 % \| `l████████f███·+` \| 30\.0 % \| 15\.0 % \| 0\.0 % \|", text)
    assert "### Worst iterations" in text


def test_a_notebook_draws_the_same_bars(analysis: Analysis) -> None:
    text = notebook.render(of(analysis))
    late = COLOURS["late_rank"].light
    assert f'left:0.00%;width:30.00%;height:100%;background:{late}" title="late rank 30.0 %"' in text


@pytest.mark.slow
def test_the_page_says_at_once_what_to_do_and_goes_to_the_worst(analysis: Analysis) -> None:
    page = render(of(analysis))
    top = page[page.index('id="verdict"') : page.index('id="waiting"')]
    assert "<dt>next</dt><dd>" in top
    assert "a late rank: rank 1" not in top.split("</h1>")[0]
    assert '<span class="phase link_full"' in top, "the step is one bar, in which causes have their colours"
    assert page.index('id="tracks"') < page.index('id="waiting"')
    begin_us = (START_NS + 4 * ITERATION_NS - analysis.meta.started_ns) / 1000
    assert f'class="jump" data-begin="{begin_us}" data-length="{ITERATION_NS / 1000}"' in page
    assert '<i class="phase late_rank" style="left:0.000%;width:30.000%" title="a late rank 30.0 %"></i>' in page


@pytest.mark.slow
def test_names_stay_text_in_every_view(analysis: Analysis) -> None:
    found = of(analysis, account(link=HOSTILE))
    pages = (render(found), notebook.render(found), markdown.render(found))
    assert not any("<script>alert" in page for page in pages)
    for text in (*pages, printed(found, 80, force_terminal=True, color_system=None)):
        assert "\x1b" not in text
        assert "\u202e" not in text


@pytest.mark.slow
def test_the_live_view_has_a_bar_for_each_rank(tmp_path: Path) -> None:
    recent = FollowedTraceSource(trace_of(ranks=4, world_size=4)).look()
    assert recent.analysis is not None
    shown = replace(recent, analysis=of(recent.analysis, account(ranks=4)))
    for width, height in ((80, 24), (120, 40), (200, 60)):
        rows = [row.plain.rstrip() for row in draw(shown, ViewState("t"), width, height)]
        assert sum(bool(re.search(r" 0 .* 45 % +l█*f█*·+", row)) for row in rows) == 1
        assert sum(bool(re.search(r" [123] .* 5 % +h█*·+", row)) for row in rows) == 3
        assert len(rows) == height


def test_every_cause_has_a_colour_and_a_letter_of_its_own() -> None:
    names = [cause.name for cause in WAIT_CAUSES]
    assert len({COLOURS[name] for name in (*names, *(phase.name for phase in PHASES))}) == len(names) + len(PHASES)
    assert len(set(LETTERS.values())) == len(names)
    assert all(style_sheet().count(f"--{name}:") == 2 for name in names)


@pytest.mark.slow
def test_the_account_by_iteration_is_the_whole_account(tmp_path: Path) -> None:
    """Rank 1 begins its collectives late in two iterations, and in a third one rank 0 does."""
    job = Job(ranks=2)
    for step in range(11):
        late = {3: 1, 6: 1, 8: 0}.get(step)
        for rank in (0, 1):
            job.step(rank, START_NS + step * ITERATION_NS)
            if rank == late:
                delay(job, rank, START_NS + step * ITERATION_NS)
    evidence = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).evidence
    found = waiting_by_iteration(evidence)
    assert len(found) == 10
    waited_ns = found.mean_s.sum() * 2e9
    assert waited_ns == pytest.approx(evidence.account.waiting.length_ns.sum(), rel=1e-12)
    assert waited_ns == pytest.approx(evidence.iterations.exposed_phase_ns.sum(), rel=1e-12)
    assert np.flatnonzero(found.latest_pid != NOBODY_LATE).tolist() == [3, 6, 8]
    assert found.latest_pid[[3, 6, 8]].tolist() == [101, 101, 100]


def delay(job: Job, rank: int, at: int) -> None:
    """Let a rank ask for its buckets 60 ms later than it did, and wait for them from then on."""
    late = {MarkKind.BUCKET_LAUNCH, MarkKind.COLLECTIVE_BEGIN, MarkKind.COLLECTIVE_SIZE, MarkKind.DDP_WAIT}
    own = [m for m in job.marks if m[1] == 100 + rank and at <= m[0] < at + ITERATION_NS and m[3] in late]
    job.marks = [m for m in job.marks if m not in own]
    job.marks += [(m[0] + 45_000_000, *m[1:]) for m in own]


@pytest.mark.parametrize("cause", WAIT_CAUSES)
def test_the_page_has_a_colour_and_a_texture_for_every_cause(cause: Cause) -> None:
    folder = resources.files("netprof.views.html")
    assert f".phase.{cause.name} {{" in folder.joinpath("style.css").read_text()
    lanes = folder.joinpath("lanes.js").read_text()
    assert f'"{cause.name}"' in lanes, "its colour is read"
    assert re.search(rf'\b{cause.name}: "(plain|rising|falling|dots)"', lanes)
