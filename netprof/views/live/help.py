"""What the keys do, and what is seen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from netprof.analysis.account.causes import CAUSES, WAIT_CAUSES
from netprof.analysis.live.now import Recent
from netprof.analysis.live.past_iterations import HISTORY
from netprof.units import duration
from netprof.views.colours import terminal_style
from netprof.views.live.iterations import legend
from netprof.views.live.links import CAUSE_STYLES
from netprof.views.live.text_rows import Part, row

_KEYS = (
    ("q", "stop and print the report (ctrl-C stops too)"),
    ("w", "save what --keep holds, and go on"),
    ("p", "let the display stand still; recording goes on"),
    ("↑ ↓ enter", "select a rank; all that is known of it"),
    ("s  /", "sort the ranks by rank, waiting or step; find a rank, pid or state"),
    ("1 2 3 4, tab", "overview, links, steps, flows"),
    ("5", "all that the report says, of the last seconds; ↑ ↓ space scroll"),
    ("+ - 0", "finer or coarser columns in the strips; 0 chooses by the iteration"),
    ("? esc", "this help"),
)


LEGEND = [(cause.letter, cause.title, f"reverse {terminal_style(cause.name)}") for cause in WAIT_CAUSES]
"""Letter, meaning and style of every cause of waiting."""
_IDLE = list(zip(CAUSES, CAUSE_STYLES, strict=True))
_FIRST = 4  # causes of waiting in the first of two rows


def help_rows(recent: Recent | None) -> list[Text]:
    """Return the help."""
    bin_width = duration(recent.meta.bin_ns / 1e9) if recent is not None else "a bin"
    rows = [row((f"  {keys:<14}", "bold"), text) for keys, text in _KEYS]
    rows += [row(), row("  bar of an iteration: ", legend())]
    rows.append(row(f"  trend: the last {HISTORY} iterations, the slowest that share a cell; ↑ an outlier"))
    rows.append(row("  now: the time since the last whole iteration ended"))
    rows.append(row(f"  strips: bins of {bin_width}; height: a column's mean, colour: its fullest bin"))
    of_line_rate = (("▅", "green"), " 80 % of line rate or more  ", ("▅", "yellow"), " 30 %  ", ("▅", "blue"), " less")
    rows.append(row("    ", *of_line_rate, "  ? not known when"))
    rows.append(_listed("  link idle (·):", [(cause.letter, cause.short, style) for cause, style in _IDLE]))
    rows.append(row("  what the ranks wait for, in a bar as long as all of a rank's time:"))
    rows += [_listed("   ", LEGEND[:_FIRST]), _listed("   ", LEGEND[_FIRST:])]
    rows.append(row("  verdict, shares, flows: of the last seconds; the report is over all"))
    return rows


def _listed(about: str, entries: Sequence[tuple[str, str, str]]) -> Text:
    """Return letters with their meanings in one row."""
    parts: list[Part | str] = [about]
    for letter, meaning, style in entries:
        parts += [" ", (letter, style), f" {meaning} "]
    return row(*parts)
