"""The view in which the last iterations are listed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.text import Text

from netprof.analysis.events.phases import BACKWARD, EXPOSED, FORWARD, PHASES, REST
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.live.now import Recent
from netprof.analysis.live.past_iterations import PastIterations
from netprof.units import duration, share
from netprof.views.live.hosts import host_rows
from netprof.views.live.text_rows import Part, heading, right, row, stacked

_DRAWN = {FORWARD: ("░", "blue"), BACKWARD: ("▒", "cyan"), EXPOSED: ("█", "red"), REST: ("·", "bright_black")}


def legend() -> Text:
    """Return what the glyphs of the phases mean."""
    parts: list[Part | str] = []
    for phase, (glyph, style) in _DRAWN.items():
        title = EXPOSED.short if phase is EXPOSED else phase.title
        parts += [(glyph * 2, style), (f" {title}  ", "dim")]
    return row(*parts)


def iterations_view(recent: Recent, width: int, height: int) -> list[Text]:
    """Return the view of iterations: spread and slowest ones, then the last ones, newest first."""
    if not len(recent.past):
        return [heading("Iterations", "none seen yet: waiting for the marks of a training framework")]
    top = host_rows(recent, width, height) if recent.has_many_hosts else _summary(recent)
    rows = [*top, row(), heading("Last iterations", legend())]
    order = np.argsort(-recent.past.begin_ns, kind="stable")[: max(0, height - len(rows) - 1)]
    name_width = _name_width(recent, np.unique(recent.past.pid).tolist(), least=5)
    phases = "".join(f" {name:>9}" for name in ("duration", "forward", "backward", "exposed", "rest"))
    names = f"{'number':>8} {'rank':>{name_width}}{phases}  "
    rows.append(row((names, "dim")))
    slowest = recent.past.duration_ns.max()
    for index in order:
        one = recent.past.where(np.array([index]))
        bar = _bar(recent, one, round((width - len(names)) * float(one.duration_ns[0] / slowest)))
        rows.append(row(_numbers(recent, one, name_width), bar))
    return rows


def _name_width(recent: Recent, pids: Sequence[int], least: int = 4) -> int:
    return max([least, *(len(recent.name_of(pid)) for pid in pids)])


def _bar(recent: Recent, one: PastIterations, width: int) -> Text:
    total = max(int(one.duration_ns[0]), 1)
    phases = zip(_phases_ns(recent, one), _DRAWN.values(), strict=True)
    return stacked((((phase_ns or 0.0) / total, glyph, style) for phase_ns, (glyph, style) in phases), width)


def _phases_ns(recent: Recent, one: PastIterations) -> tuple[float | None, ...]:
    """Return how long each phase is; None of a process that is only seen to launch."""
    is_known = int(one.pid[0]) not in recent.launching
    return tuple(float(getattr(one, phase.length)[0]) if is_known else None for phase in PHASES)


def _numbers(recent: Recent, one: PastIterations, name_width: int) -> Text:
    parts = [f"{right(duration(None if ns is None else ns / 1e9), 9)} " for ns in _phases_ns(recent, one)]
    return row(
        f"{'#' + str(int(one.number[0])):>8} {recent.name_of(int(one.pid[0])):>{name_width}} ",
        (right(duration(float(one.duration_ns[0]) / 1e9), 9), "bold"),
        " ",
        "".join(parts),
        " ",
    )


def _summary(recent: Recent) -> list[Text]:
    """Return each rank's spread over the window of the analysis."""
    if recent.analysis is None:
        return []
    ranks = recent.analysis.of(RANKS)
    name_width = _name_width(recent, [rank.pid for rank in ranks])
    names = f"{'rank':>{name_width}} {'seen':>6} {'median':>9} {'p10':>9} {'p90':>9} {'slowest':>9} {'exposed':>9}"
    rows = [heading("Spread", f"last {recent.window_ns / 1e9:.0f} s"), row((names, "dim"))]
    for rank in ranks:
        spread = rank.durations
        if spread is None:
            continue
        values = (spread.median_s, spread.p10_s, spread.p90_s, spread.max_s)
        shown = " ".join(right(duration(value), 9) for value in values)
        exposed = share(None if rank.only_launch else spread.exposed_share)
        rows.append(row(f"{recent.name_of(rank.pid):>{name_width}} {spread.count:>6} {shown} {exposed:>9}"))
    return rows
