"""The overview: a step, the ranks, and the links below them, as far as they fit."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.form import in_a_row
from netprof.analysis.live.forms import rank_detail, ranks_grid, ranks_now
from netprof.analysis.live.now import Recent
from netprof.units import UNKNOWN, count, milliseconds
from netprof.views.colours import LETTERS, terminal_style
from netprof.views.console_form import bars, grid_rows
from netprof.views.live.flows import flow_rows
from netprof.views.live.gpus import gpu_rows
from netprof.views.live.hosts import host_rows
from netprof.views.live.iterations import iterations_view
from netprof.views.live.links import by_traffic, link_rows
from netprof.views.live.text_rows import Part, fitted, heading, row, rule, wrapped
from netprof.views.live.view_state import ViewState
from netprof.views.safe import safe_text

_LINK_ROWS, _BELOW_HOSTS = 4, 6
_SHOWN = 0.005


def overview(recent: Recent, state: ViewState, width: int, height: int, zoom: int) -> list[Text]:
    """Return the rows of the overview, at most `height`: what fits, the most telling parts first."""
    if state.detail:
        return detail(recent, state, width)[:height]
    rows = step_rows(recent, width)
    links = by_traffic(recent)
    room = height - len(rows)
    below = _BELOW_HOSTS if recent.has_many_hosts else 1 + 3 * len(links)
    keep = min(below, room // 2)
    rows += rank_rows(recent, state, width, room - keep)
    extras: tuple[Callable[[int], list[Text]], ...] = (
        lambda room: link_rows(recent, width, min(room, 1 + _LINK_ROWS * max(1, len(links))), zoom),
        lambda room: gpu_rows(recent, width, min(room, 1 + len(recent.gpus))),
        lambda room: flow_rows(recent, width, room),
        lambda room: iterations_view(recent, width, room),
    )
    for extra in extras:
        room = height - len(rows) - 1
        more = extra(room) if room >= 2 else []
        rows += [rule(width), *more] if more else []
    return rows[:height]


def step_rows(recent: Recent, width: int) -> list[Text]:
    """Return the mean step: its parts in milliseconds, and one bar of them; nothing while that is not known."""
    step = recent.analysis.of(VERDICT).step if recent.analysis is not None else None
    if step is None or not step.seconds:
        return []
    shown = [part for part in step.parts if step.share(part.seconds) >= _SHOWN]
    legend: list[Part | str] = [(" a step ", "bold"), (f"{milliseconds(step.seconds)} ", "bold"), " "]
    for part in shown:
        name = part.who or (part.cause.cause.short if part.cause is not None else part.title)
        legend += [
            (LETTERS.get(part.name, "█"), f"{'reverse ' if part.cause else ''}{terminal_style(part.name)}"),
            f" {safe_text(name, 24)} ",
            (f"{part.seconds * 1e3:.0f}  ", "bold"),
        ]
    drawn = in_a_row((part.name, step.share(part.seconds)) for part in shown)
    return [fitted(row(*legend), width), fitted(row(" ", bars(drawn, width - 2)), width)]


def rank_rows(recent: Recent, state: ViewState, width: int, most: int) -> list[Text]:
    """Return the table of ranks in at most `most` rows; by host where there are many."""
    if recent.has_many_hosts and (rows := host_rows(recent, width, max(2, most))):
        return rows
    ranks = ranks_now(recent, state.order, state.find)
    if not ranks:
        about = f"none has '{state.find}' in it" if state.find else "none seen yet: waiting for marks of a framework"
        return [heading("Ranks", safe_text(about))]
    selected = min(state.selected, len(ranks) - 1)
    shown = ranks[: max(1, most - 1)]
    if len(shown) < len(ranks):
        first = max(0, min(selected - max(0, most - 2) // 2, len(ranks) - max(1, most - 2)))
        shown = ranks[first : first + max(1, most - 2)]
        selected -= first
    fallback = [row(f"{rank.name} {rank.state or UNKNOWN}") for rank in shown]
    rows = grid_rows(ranks_grid(recent, shown, selected), width) or fallback
    if len(shown) < len(ranks):
        rows.append(row((f"  {count(len(ranks) - len(shown), 'more rank')}: ↑ ↓", "dim")))
    return [fitted(line, width) for line in rows]


def detail(recent: Recent, state: ViewState, width: int) -> list[Text]:
    """Return all that is known of the selected rank."""
    ranks = ranks_now(recent, state.order, state.find)
    if not ranks:
        return [row("no such rank")]
    rows = []
    for label, value in rank_detail(recent, ranks[min(state.selected, len(ranks) - 1)]).rows:
        lines = wrapped(safe_text(value, 400), width - 19, "", 4)
        rows += [row((f"  {label if not n else '':<16} ", "dim"), line) for n, line in enumerate(lines)]
    return [*rows, row(("  esc, enter: back to all ranks", "dim"))]
