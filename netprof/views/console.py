"""The report on a terminal of any width from 40 columns: the first screen, and everything else on request."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from netprof.analysis import Analysis
from netprof.analysis.findings.verdict.first_screen import FIRST_SCREEN, FirstScreen
from netprof.views.colours import headline_style
from netprof.views.console_form import bullets, pairs, print_bodies, print_part, title
from netprof.views.safe import safe_text

_LONGEST_NOTE = 400
_MORE = (
    ("everything", "--full"),
    ("pictures", "--html run.html"),
    ("a word", "netprof explain WORD"),
    ("compare", "netprof diff A B"),
    ("predict", "netprof whatif"),
)


def render(analysis: Analysis, console: Console, *, full: bool = False) -> None:
    """Print the report of `analysis`, `full` or its first screen. Text from the trace is escaped, never markup."""
    first = analysis.of(FIRST_SCREEN)
    _verdict(first, console)
    if not full:
        for part in first.parts:
            console.print()
            print_bodies([body.shortened() for body in part.bodies], console)
        _more(console)
        return
    for part in analysis.brief_parts:
        print_part(part, console)
    notes = [Text(safe_text(note, _LONGEST_NOTE)) for note in analysis.notes]
    bullets(console, [(Text("!", style="yellow"), note) for note in notes])
    if analysis.definitions:
        title(console, "Definitions", "in full: netprof explain WORD")
    meanings = [Text(f"{d.term}: ", style="bold dim") + Text(d.footnote, style="dim") for d in analysis.definitions]
    bullets(console, [(Text("·", style="dim"), meaning) for meaning in meanings])


def _verdict(first: FirstScreen, console: Console) -> None:
    style = headline_style(first.case, few=console.color_system == "standard")
    console.print(Text(safe_text(first.headline, 200), style=style))
    if first.sentence:
        console.print(Padding(Text(safe_text(first.sentence, 400)), (0, 0, 0, 2)))
    pairs(console, first.advice)


def _more(console: Console) -> None:
    console.print()
    line = Text()
    for name, how in _MORE:
        added = Text(f"{name}: ", style="dim") + Text(how)
        if line and line.cell_len + 3 + added.cell_len > console.width:
            break
        line = line + Text("   " if line else "") + added
    console.print(line)
