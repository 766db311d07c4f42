"""From what is going on to the rows of a screen of any size: a pure function."""

from __future__ import annotations

import numpy as np
from rich.text import Text

from netprof.analysis.findings.collectives.collective_sizes import capped
from netprof.analysis.findings.collectives.collectives import COLLECTIVES
from netprof.analysis.findings.verdict.first_screen import lost
from netprof.analysis.live.now import Recent
from netprof.units import brief_rate, count, milliseconds, percent
from netprof.views.live.everything import everything, last_scroll
from netprof.views.live.flows import flow_rows
from netprof.views.live.help import help_rows
from netprof.views.live.iterations import iterations_view
from netprof.views.live.links import LABEL, link_rows
from netprof.views.live.overview import overview
from netprof.views.live.text_rows import Part, fitted, row, rule, wrapped
from netprof.views.live.verdict import verdict_rows
from netprof.views.live.view_state import VIEWS, View, ViewState, choose_zoom
from netprof.views.safe import safe_text

SMALLEST = (40, 8)
_AROUND = 7  # rows: title, verdict of two, rule above and below, footer of two
_NOTICE, _ROOMY = 2, 20  # rows of a notice, at most, where there are so many in all


def draw(recent: Recent | None, state: ViewState, width: int, height: int) -> list[Text]:
    """Return exactly `height` rows of exactly `width` cells. Text from outside is escaped, never read as markup."""
    rows = [_title(recent, state, width), *_notice(state, width, height)]
    footer = _footer(recent, state, width, height)
    if width < SMALLEST[0] or height < SMALLEST[1]:
        rows.append(row(f"too small: {width}x{height}"))
    else:
        rows += _body(recent, state, width, height - len(rows) - len(footer))
    rows = rows[: height - len(footer)] + [row()] * (height - len(footer) - len(rows))
    return [fitted(one, width) for one in [*rows, *footer][:height]]


def shown_zoom(recent: Recent | None, state: ViewState, width: int) -> int:
    """Return the bins in a column of the strips that `draw` shows."""
    bins = float(np.median(recent.past.duration_ns)) / recent.meta.bin_ns if recent and len(recent.past) else 0.0
    return choose_zoom(state, width - LABEL, bins)


def furthest_scroll(recent: Recent | None, state: ViewState, width: int, height: int) -> int:
    """Return how far the view of everything can be scrolled on a screen of this size."""
    return last_scroll(recent, width, max(0, height - _AROUND - len(_notice(state, width, height))))


def _body(recent: Recent | None, state: ViewState, width: int, height: int) -> list[Text]:
    if state.help:
        return help_rows(recent)
    if recent is None:
        return [row((" starting: nothing is known yet …", "dim"))]
    keys = "↵ detail" if state.view is View.OVERVIEW and not state.detail and width >= 60 else ""
    top = [*verdict_rows(recent, width, keys=keys, few_colours=state.few_colours), rule(width)]
    room, zoom = height - len(top), shown_zoom(recent, state, width)
    if state.view is View.LINKS:
        return top + link_rows(recent, width, room, zoom)
    if state.view is View.FLOWS:
        return top + flow_rows(recent, width, room, everything=True)
    if state.view is View.EVERYTHING:
        return top + everything(recent, width, room, state.scrolled)
    if state.view is View.STEPS:
        return top + iterations_view(recent, width, room)
    return top + overview(recent, state, width, room, zoom)


def _title(recent: Recent | None, state: ViewState, width: int) -> Text:
    """Return who and for how long; PAUSED and that it records are never cut."""
    elapsed_s = (recent.through_ns - recent.meta.started_ns) // 10**9 if recent is not None else 0
    titled = row(
        (" netprof ", "bold reverse"),
        (" PAUSED ", "bold reverse yellow") if state.paused else (" ● ", "bold red"),
        (f"{elapsed_s // 60}:{elapsed_s % 60:02}  ", "bold"),
        *_about(recent),
        (safe_text(state.source, 60), "dim"),
    )
    keys = row((" ? ", "bold"), ("help  ", "dim"), ("q ", "bold"), ("stop ", "dim"))
    return row(fitted(titled, width - keys.cell_len), keys) if width - keys.cell_len > 24 else titled


def _about(recent: Recent | None) -> list[Part | str]:
    if recent is None:
        return []
    ranks = count(len(np.unique(recent.past.pid)), "rank") if len(recent.past) else ""
    step = f"{milliseconds(float(np.median(recent.past.duration_ns)) / 1e9)} a step" if len(recent.past) else ""
    host = safe_text(recent.meta.host, 20) if len(recent.hosts) < 2 else count(len(recent.hosts), "host")
    return [f"{ranks} on {host}  " if ranks else f"on {host}  ", (f"{step}  ", "bold") if step else ""]


def _notice(state: ViewState, width: int, height: int) -> list[Text]:
    """Return the rows of what is wrong with what is shown: in full, for it is not seen by anything else."""
    if not state.notice or width < SMALLEST[0] or height < SMALLEST[1]:
        return []
    return wrapped(f"! {safe_text(state.notice)}", width, "bold yellow", _NOTICE if height >= _ROOMY else 1)


def _footer(recent: Recent | None, state: ViewState, width: int, height: int) -> list[Text]:
    """Return how fast collectives are, what was lost and what recording costs; and the keys."""
    if state.typing:
        asked = row((" find: ", "bold"), safe_text(state.find, 60), ("▏", "blink"), ("  enter, esc", "dim"))
        return [fitted(asked, width)]
    tabs: list[Part | str] = []
    for number, view in enumerate(VIEWS, 1):
        chosen = view is state.view and not state.help
        tabs.append((f" {number} {view.value} ", "reverse" if chosen else "dim"))
    order = f" sort: {state.order.value} " if width >= 100 else " sort "
    keys = [(" ↑↓", "bold"), (" select ", "dim"), ("s", "bold"), (order, "dim"), ("/", "bold")]
    keys += [(f" find{f': {safe_text(state.find, 20)}' if state.find else ''} ", "dim")]
    keys += [("p", "bold"), (" go on" if state.paused else " pause", "dim")]
    rows = [fitted(row(*tabs, *keys), width)]
    if recent is not None and height >= 12:
        rows.insert(0, fitted(_losses_and_cost(recent), width))
        rows.insert(0, rule(width))
    return rows


def _losses_and_cost(recent: Recent) -> Text:
    losses, cost = recent.meta.losses, recent.meta.cost
    all_reduces = recent.analysis.of(COLLECTIVES).summary if recent.analysis is not None else None
    speed = ""
    if all_reduces is not None and all_reduces.bus_bandwidth_bps is not None:
        speed = f" all-reduce {brief_rate(all_reduces.bus_bandwidth_bps)}"
        if all_reduces.line_rate_share is not None:
            speed += f" = {percent(capped(all_reduces.line_rate_share))} of line rate"
    cpu = f"  recorder {percent(cost.cpu_share)} of a core" if cost.cpu_share is not None else ""
    lost_text = lost(losses) + (f", {count(losses.late_flows, 'flow')} found late" if losses.late_flows else "")
    style = "green" if lost_text == "nothing lost" else "bold yellow"
    return row((f"{speed}  ", ""), (lost_text, style), (cpu, "dim"))
