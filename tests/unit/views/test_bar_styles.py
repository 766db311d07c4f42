"""Bars are visible: a full block in reverse is drawn in the background's colour, which no test of plain text sees."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pytest
from golden.conclusions import traces
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.text import Text

from netprof.analysis import analyze
from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.form import Bar, Cell, Grid, Stack
from netprof.analysis.hosts.open_job import open_job
from netprof.session.live_follow import FollowedTraceSource
from netprof.views.colours import LETTERS
from netprof.views.console import render
from netprof.views.console_form import bars, show
from netprof.views.live.draw import draw
from netprof.views.live.view_state import ViewState

_FULL = "█"
STACK = Stack(tuple(Bar(n / 7, 1 / 7, cause.name) for n, cause in enumerate(WAIT_CAUSES)))


def _console(**options: object) -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=True, color_system="256", record=True, **options)  # type: ignore[arg-type]


def _invisible(segments: list[Segment]) -> Iterator[str]:
    """Yield what is drawn in the colour of the background."""
    for text, style, control in segments:
        if not control and style is not None and _FULL in text and style.reverse:
            yield text


def _segments(draw_it: Callable[[Console], None], console: Console) -> list[Segment]:
    draw_it(console)
    return list(console._record_buffer)


@pytest.mark.parametrize("no_color", [False, True])
@pytest.mark.parametrize("thing", [bars(STACK.bars, 40), Text("x ").append_text(bars(STACK.bars, 40))])
def test_only_the_letters_of_a_stack_are_reversed(thing: RenderableType, no_color: bool) -> None:
    segments = _segments(lambda console: console.print(thing), _console(no_color=no_color))
    assert list(_invisible(segments)) == []
    reversed_text = "".join(text for text, style, _ in segments if style is not None and style.reverse)
    assert reversed_text == "".join(LETTERS[cause.name] for cause in WAIT_CAUSES)


def test_no_bar_of_a_table_is_invisible() -> None:
    rows: list[tuple[Cell, ...]] = [("a", STACK), ("b", Bar(0.2, 0.5, "late_rank")), ("c", Bar(0.2, 0.5, "forward"))]
    segments = _segments(lambda console: show(console, Grid(("name", ""), rows)), _console())
    assert sum(_FULL in text for text, _, _ in segments) >= 3
    assert list(_invisible(segments)) == []


def test_no_bar_of_a_real_report_is_invisible() -> None:
    analysis = analyze(open_job(traces("late-rank")))
    segments = _segments(lambda console: render(analysis, console), _console())
    assert any(_FULL in text for text, _, _ in segments)
    assert list(_invisible(segments)) == []


def test_no_bar_of_the_live_view_is_invisible() -> None:
    rows = draw(FollowedTraceSource(traces("late-rank")[0]).look(), ViewState("golden"), 120, 40)
    segments = _segments(lambda console: console.print(*rows, sep="\n"), _console())
    assert any(_FULL in text for text, _, _ in segments)
    assert list(_invisible(segments)) == []
