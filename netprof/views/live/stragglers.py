"""Who holds the job up in the last seconds: a row each, and the ranks that stand out elsewhere."""

from __future__ import annotations

from rich.text import Text

from netprof.analysis.live.recent import Recent
from netprof.views.live.rows import fitted, row
from netprof.views.safe import safe_text

LATE_STYLE = "bold red"


def straggler_rows(recent: Recent, width: int, most: int) -> list[Text]:
    """Return a row for each that holds the job up, what costs most first."""
    rows = [row(("▶ ", LATE_STYLE), (safe_text(each.sentence), LATE_STYLE)) for each in recent.stragglers[:most]]
    return [fitted(each, width) if each.cell_len > width else each for each in rows]


def late_processes(recent: Recent) -> frozenset[int]:
    """Return the processes that hold the job up."""
    return frozenset(each.who.pid for each in recent.stragglers if each.who.pid is not None)
