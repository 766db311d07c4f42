"""What the ranks wait for: the account over the window, a bar for each rank, stacked by cause."""

from __future__ import annotations

from rich.text import Text

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.findings.waiting import WAITING
from netprof.analysis.findings.waiting_finding import CauseShare, RankWaiting, WaitingFinding
from netprof.analysis.findings.waiting_form import stack, who
from netprof.analysis.live.recent import Recent
from netprof.units import count
from netprof.views.colours import terminal_style
from netprof.views.console_form import bars
from netprof.views.live.rows import percent, right, row
from netprof.views.safe import safe_text

_NUMBERS = 13  # cells before the bar
_SHOWN = 0.005  # of the waiting: less would round to nothing


def waiting_rows(recent: Recent, width: int, most: int) -> list[Text]:
    """Return a heading with the causes, and a row for each rank, `most` rows in all; nothing where none waits."""
    found = recent.analysis.of(WAITING) if recent.analysis is not None else None
    if found is None or not found.exposed_ns or most < 2:
        return []
    shown = found.by_rank if len(found.by_rank) < most else found.by_rank[: max(0, most - 2)]
    rows = [_heading(found, width), *(_rank(each, width) for each in shown)]
    if len(shown) < len(found.by_rank):
        rows.append(row((f"  … and {count(len(found.by_rank) - len(shown), 'more rank')} (view 4)", "dim")))
    return rows


def _heading(found: WaitingFinding, width: int) -> Text:
    """Return the share of all time, and the causes with what each names, as far as they fit."""
    made = row(("Waiting", "bold"), (f"  {percent(found.exposed_share)} of all time:", "dim"))
    for each in found.causes:
        if each.share < _SHOWN:
            break
        room = width - made.cell_len
        fitting = next((one for one in (_cause(each), _cause(each, short=True)) if one.cell_len <= room), None)
        if fitting is None:
            break
        made.append_text(fitting)
    return made


def _cause(each: CauseShare, *, short: bool = False) -> Text:
    named = "" if short else safe_text(who(each), 40)
    return row(
        "  ",
        (each.cause.letter, f"reverse {terminal_style(each.cause.name)}"),
        f" {each.cause.short} ",
        (percent(each.share), "bold"),
        (f" {named}" if named else "", "dim"),
    )


def _rank(each: RankWaiting, width: int) -> Text:
    name = "?" if each.rank is None else str(each.rank)
    waits = percent(each.exposed_ns / each.window_ns if each.window_ns else None)
    bar = bars(stack(each.causes_ns, each.window_ns).bars, max(8, width - _NUMBERS - 1))
    return row((f"{name:>4}", "bold"), " ", right(waits, 7), " ", bar)


LEGEND = [(cause.letter, cause.title, f"reverse {terminal_style(cause.name)}") for cause in WAIT_CAUSES]
"""Letter, meaning and style of every cause, for the help."""
