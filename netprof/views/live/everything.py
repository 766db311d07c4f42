"""Everything that the report has to say about the window, part by part: what no other view has a place for."""

from __future__ import annotations

import io
from functools import lru_cache

from rich.console import Console
from rich.text import Text

from netprof.analysis import Analysis
from netprof.analysis.live.now import Recent
from netprof.views.console_form import print_part
from netprof.views.live.text_rows import row
from netprof.views.safe import safe_text


def everything(recent: Recent, width: int, height: int, scrolled: int) -> list[Text]:
    """Return at most `height` rows of the report's parts, from row `scrolled` on, as far as there are any."""
    if recent.analysis is None:
        return [row(("nothing to conclude from yet", "dim"))]
    rows = _rows(recent.analysis, width)
    first = min(scrolled, last_scroll(recent, width, height))
    return list(rows[first : first + height])


def last_scroll(recent: Recent | None, width: int, height: int) -> int:
    """Return how many rows can be scrolled away until the last one is seen."""
    if recent is None or recent.analysis is None:
        return 0
    return max(0, len(_rows(recent.analysis, width)) - height)


@lru_cache(maxsize=4)  # conclusions change less often than the screen
def _rows(analysis: Analysis, width: int) -> tuple[Text, ...]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="standard")
    with console.capture() as captured:
        for part in analysis.brief_parts:
            print_part(part, console)
        console.print()
        for note in analysis.notes:
            console.print(Text("! ", style="yellow") + Text(safe_text(note, 400)))
    return tuple(Text.from_ansi(line) for line in captured.get().splitlines()[1:])
