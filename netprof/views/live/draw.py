"""From what is going on to the rows of a screen of any size: a pure function."""

from __future__ import annotations

import numpy as np
from rich.text import Text

from netprof.analysis.live.recent import Recent
from netprof.units import count, share, size
from netprof.views.live.everything import everything, last_scroll
from netprof.views.live.flows import flow_rows
from netprof.views.live.help import help_rows
from netprof.views.live.iterations import iterations_view
from netprof.views.live.links import LABEL
from netprof.views.live.overview import overview, verdict_rows
from netprof.views.live.rows import Part, fitted, row, wrapped
from netprof.views.live.state import VIEWS, View, ViewState, choose_zoom
from netprof.views.safe import safe_text

SMALLEST = (40, 8)
_AROUND_EVERYTHING = 5  # rows: title, footer, verdict
_NOTICE, _ROOMY = 2, 20  # rows of a notice, at most, where there are so many in all


def draw(recent: Recent | None, state: ViewState, width: int, height: int) -> list[Text]:
    """Return exactly `height` rows of exactly `width` cells. Text from outside is escaped, never read as markup."""
    rows = [_title(recent, state, width), *_notice(state, width, height)]
    if width < SMALLEST[0] or height < SMALLEST[1]:
        rows.append(row(f"too small: {width}x{height}"))
    else:
        rows += _body(recent, state, width, height - len(rows) - 1)
    rows = rows[: height - 1] + [row()] * (height - 1 - len(rows))
    rows.append(_footer(recent, state, width))
    return [fitted(one, width) for one in rows[:height]]


def shown_zoom(recent: Recent | None, state: ViewState, width: int) -> int:
    """Return the bins in a column of the strips that `draw` shows."""
    bins = float(np.median(recent.past.duration_ns)) / recent.meta.bin_ns if recent and len(recent.past) else 0.0
    return choose_zoom(state, width - LABEL, bins)


def furthest_scroll(recent: Recent | None, state: ViewState, width: int, height: int) -> int:
    """Return how far the view of everything can be scrolled on a screen of this size."""
    around = _AROUND_EVERYTHING + len(_notice(state, width, height))
    return last_scroll(recent, width, max(0, height - around))


def _body(recent: Recent | None, state: ViewState, width: int, height: int) -> list[Text]:
    if state.help:
        return help_rows(recent)
    if recent is None:
        return [row(("nothing is known yet …", "dim"))]
    if state.view is View.OVERVIEW:
        return overview(recent, width, height, shown_zoom(recent, state, width))
    top = [*verdict_rows(recent, width, 2), row()]
    if state.view is View.FLOWS:
        return top + flow_rows(recent, width, height - len(top), everything=True)
    if state.view is View.EVERYTHING:
        return top + everything(recent, width, height - len(top), state.scrolled)
    return top + iterations_view(recent, width, height - len(top))


def _title(recent: Recent | None, state: ViewState, width: int) -> Text:
    elapsed_s = (recent.through_ns - recent.meta.started_ns) // 10**9 if recent is not None else 0
    clock = (f" {elapsed_s // 60}:{elapsed_s % 60:02}  ", "bold")
    parts: list[Part | Text | str] = [(" netprof ", "bold reverse"), clock, safe_text(state.source, 60)]
    if state.paused:
        parts.append((" PAUSED, recording goes on ", "bold reverse yellow"))
    tabs: list[Part | str] = []
    for number, view in enumerate(VIEWS, 1):
        chosen = view is state.view and not state.help
        tabs.append((f" {number} {view.value} ", "reverse" if chosen else "dim"))
    tabs.append((" ? help ", "reverse" if state.help else "dim"))
    titled, menu = row(*parts), row(*tabs)
    room = width - menu.cell_len
    return row(fitted(titled, room), menu) if room > 24 else titled


def _notice(state: ViewState, width: int, height: int) -> list[Text]:
    """Return the rows of what is wrong with what is shown: in full, for it is not seen by anything else."""
    if not state.notice or width < SMALLEST[0] or height < SMALLEST[1]:
        return []
    return wrapped(f"! {safe_text(state.notice)}", width, "bold yellow", _NOTICE if height >= _ROOMY else 1)


def _footer(recent: Recent | None, state: ViewState, width: int) -> Text:
    keys = row(
        (" q", "bold"), (" stop  ", "dim"), ("p", "bold"), (" pause  ", "dim"), ("tab", "bold"), (" view ", "dim")
    )
    if recent is None or width - keys.cell_len < 24:
        return keys
    return row(fitted(_losses_and_cost(recent), width - keys.cell_len), keys)


def _losses_and_cost(recent: Recent) -> Text:
    losses, cost = recent.meta.losses, recent.meta.cost
    lost = [
        count(losses.lost_marks, "mark") if losses.lost_marks else "",
        count(losses.merged_bins, "merged bin") if losses.merged_bins else "",
        count(losses.untracked_flows, "untracked flow") if losses.untracked_flows else "",
        count(losses.late_flows, "flow found late", "flows found late") if losses.late_flows else "",
    ]
    said = ", ".join(part for part in lost if part)
    cpu = f"{share(cost.cpu_share)} of a core, " if cost.cpu_share is not None else ""
    return row(
        (" lost ", "dim"),
        (said or "nothing", "bold yellow" if said else "green"),
        (f"  cost {cpu}{size(cost.peak_memory_bytes)} memory, {size(cost.trace_bytes)} of trace", "dim"),
    )
