"""What the ranks wait for: the account over the window, a bar for each rank, stacked by cause."""

from __future__ import annotations

from rich.text import Text

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.findings.bounds import BOUNDS
from netprof.analysis.findings.waiting import WAITING
from netprof.analysis.findings.waiting_finding import CauseShare, RankWaiting, WaitingFinding
from netprof.analysis.findings.waiting_form import stack, who
from netprof.analysis.live.recent import Recent
from netprof.units import count
from netprof.views.colours import terminal_style
from netprof.views.console_form import bars
from netprof.views.live.rows import fitted, percent, right, row
from netprof.views.live.stragglers import LATE_STYLE, late_processes
from netprof.views.safe import safe_text

_NUMBERS = 9  # cells between the rank and the bar
_SHOWN = 0.005  # of the waiting: less would round to nothing


def waiting_rows(recent: Recent, width: int, most: int) -> list[Text]:
    """Return a heading with the causes, and a row for each rank, `most` rows in all; nothing where none waits.

    Where only launches are seen, the bars are what is waited at most, and both bounds are told.
    """
    if recent.analysis is None or most < 2:
        return []
    found, bounds = recent.analysis.of(WAITING), recent.analysis.of(BOUNDS)
    if found is None and bounds is not None and bounds.is_known:
        heading = _heading(bounds.most, width, f"{bounds.said} (bounds; causes at most)")
        return [fitted(heading, width), *_ranks(recent, bounds.most, width, most)]
    if found is None or not found.exposed_ns:
        return []
    return [_heading(found, width, percent(found.exposed_share)), *_ranks(recent, found, width, most)]


def _ranks(recent: Recent, found: WaitingFinding, width: int, most: int) -> list[Text]:
    late = late_processes(recent)
    first = sorted(found.by_rank, key=lambda each: each.pid not in late)  # which keeps the order of the others
    shown = found.by_rank if len(found.by_rank) < most else first[: max(0, most - 2)]
    names = [f"{recent.name_of(each.pid):>4}" for each in shown]
    longest = max(map(len, names), default=0)
    rows = [
        _rank(name.rjust(longest), each, width, is_late=each.pid in late)
        for name, each in zip(names, shown, strict=True)
    ]
    if len(shown) < len(found.by_rank):
        rows.append(row((f"  … and {count(len(found.by_rank) - len(shown), 'more rank')} (view 4)", "dim")))
    return rows


def _heading(found: WaitingFinding, width: int, waited: str) -> Text:
    """Return the share of all time, and the causes with what each names, as far as they fit."""
    made = row(("Waiting", "bold"), (f"  {waited} of all time:", "dim"))
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


def _rank(name: str, each: RankWaiting, width: int, *, is_late: bool) -> Text:
    waits = percent(each.exposed_ns / each.window_ns if each.window_ns else None)
    bar = bars(stack(each.causes_ns, each.window_ns).bars, max(8, width - _NUMBERS - len(name) - 1))
    return row((name, f"reverse {LATE_STYLE}" if is_late else "bold"), " ", right(waits, 7), " ", bar)


LEGEND = [(cause.letter, cause.title, f"reverse {terminal_style(cause.name)}") for cause in WAIT_CAUSES]
"""Letter, meaning and style of every cause, for the help."""
