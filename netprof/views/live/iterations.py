"""Iterations: one row a rank in the overview, and the view in which the last ones are listed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.text import Text

from netprof.analysis.events.phases import BACKWARD, EXPOSED, FORWARD, PHASES, REST
from netprof.analysis.findings.ranks import RANKS
from netprof.analysis.live.past_iterations import HISTORY, PastIterations, usual_range_ns
from netprof.analysis.live.recent import Recent
from netprof.analysis.tables.columns import Int64
from netprof.units import count, duration, share
from netprof.views.live.hosts import host_rows
from netprof.views.live.rows import Part, brief, cells, heading, right, row, spark, stacked

_DRAWN = {FORWARD: ("░", "blue"), BACKWARD: ("▒", "cyan"), EXPOSED: ("█", "red"), REST: ("·", "bright_black")}
_NUMBERS = 34  # cells between the rank and the trend
_STUCK = 3.0  # times its usual time an iteration may take before that is pointed out


def legend() -> Text:
    """Return what the glyphs of the phases mean."""
    parts: list[Part | str] = []
    for phase, (glyph, style) in _DRAWN.items():
        title = EXPOSED.short if phase is EXPOSED else phase.title
        parts += [(glyph * 2, style), (f" {title}  ", "dim")]
    return row(*parts)


def _short_legend() -> Text:
    parts: list[Part | str] = []
    for phase, (glyph, style) in _DRAWN.items():
        parts += [" " if parts else "", (glyph, style), (phase.short, "dim")]
    return row(*parts)


def rank_rows(recent: Recent, width: int, most: int) -> list[Text]:
    """Return the section of the overview: a heading and a row for each rank, `most` rows in all."""
    pids = _order(recent)
    if not pids:
        return [heading("Iterations", "none seen yet: waiting for the marks of a training framework")]
    low, high = usual_range_ns(recent.past.duration_ns)
    outliers = bool((recent.past.duration_ns > high).any())
    name_width = _name_width(recent, pids)
    before = _NUMBERS + name_width
    trend_width = min(HISTORY, max(8, (width - before) * 2 // 5))
    bar_width = width - before - trend_width - 2
    scale = f"▁{brief(low / 1e9)} █{brief(high / 1e9)}"
    numbers = f"{'rank':>{name_width}} {'number':>8} {'last':>7} {'median':>7} {'now':>7} "
    trend = f"{_trend_title(trend_width, scale, outliers):<{trend_width}}"
    rows = [row((numbers, "dim"), (trend, "dim"), "  ", _short_legend() if bar_width < legend().cell_len else legend())]
    shown = pids if len(pids) + 1 <= most else pids[: max(0, most - 2)]
    rows += [_rank_row(recent, pid, name_width, trend_width, bar_width, (low, high)) for pid in shown]
    if len(shown) < len(pids):
        rows.append(row((f"  … and {count(len(pids) - len(shown), 'more rank')} (view 3)", "dim")))
    return rows


def iterations_view(recent: Recent, width: int, height: int) -> list[Text]:
    """Return the view of iterations: spread and slowest ones, then the last ones, newest first."""
    if not len(recent.past):
        return [heading("Iterations", "none seen yet: waiting for the marks of a training framework")]
    rows = [*_top(recent, width, height), row(), heading("Last iterations", legend())]
    order = np.argsort(-recent.past.begin_ns, kind="stable")[: max(0, height - len(rows) - 1)]
    name_width = _name_width(recent, _order(recent), least=5)
    phases = "".join(f" {name:>9}" for name in ("duration", "forward", "backward", "exposed", "rest"))
    names = f"{'number':>8} {'rank':>{name_width}}{phases}  "
    rows.append(row((names, "dim")))
    slowest = recent.past.duration_ns.max()
    for index in order:
        one = recent.past.where(np.array([index]))
        bar = _bar(one, round((width - len(names)) * float(one.duration_ns[0] / slowest)))
        rows.append(row(_numbers(recent, one, name_width), bar))
    return rows


def _top(recent: Recent, width: int, height: int) -> list[Text]:
    """Return the ranks by host where many hosts recorded the job, else the spread of each rank's iterations."""
    return host_rows(recent, width, height) if recent.has_many_hosts else _summary(recent)


def _order(recent: Recent) -> list[int]:
    pids = np.unique(recent.past.pid).tolist()
    return sorted(pids, key=lambda pid: (recent.ranks.get(pid, 1 << 31), pid))


def _trend_title(width: int, scale: str, outliers: bool) -> str:
    each = -(-HISTORY // width)
    about = f"last {HISTORY}" if each == 1 else f"last {HISTORY}, worst of {each}"
    longer = f"{scale} ↑longer" if outliers else scale
    return next(title for title in (f"{about} {longer}", longer, scale, "trend", "") if len(title) <= width)


def _name_width(recent: Recent, pids: Sequence[int], least: int = 4) -> int:
    return max([least, *(len(recent.name_of(pid)) for pid in pids)])


def _rank_row(
    recent: Recent, pid: int, name_width: int, trend_width: int, bar_width: int, scale: tuple[int, int]
) -> Text:
    own = recent.past.of(pid)
    last = own.where(np.array([len(own) - 1]))
    median_ns = float(np.median(own.duration_ns))
    running_ns = max(0, recent.through_ns - int(own.end_ns[-1]))
    stuck = running_ns > _STUCK * median_ns + 1e9
    return row(
        (f"{recent.name_of(pid):>{name_width}}", "bold"),
        f" {'#' + str(int(last.number[0])):>8} ",
        (right(brief(float(last.duration_ns[0]) / 1e9), 7), "bold"),
        f" {right(brief(median_ns / 1e9), 7)} ",
        (right(brief(running_ns / 1e9), 7), "bold yellow" if stuck else "dim"),
        " ",
        _trend(own.duration_ns, trend_width, scale),
        "  ",
        _bar(last, bar_width),
    )


def _trend(durations_ns: Int64, width: int, scale: tuple[int, int]) -> Text:
    """Draw the durations, the slowest of as many as share a cell, the newest at the right; outliers are marked."""
    each = -(-HISTORY // width)
    padded = np.concatenate((np.zeros(-len(durations_ns) % each, np.int64), durations_ns))
    worst = padded.reshape(-1, each).max(axis=1)[-width:] if len(padded) else padded
    outlier = worst > scale[1]
    glyphs = np.where(outlier, "↑", list(spark(worst.tolist(), *scale)))
    drawn = cells("".join(glyphs), outlier.astype(np.int64), ("green", "bold yellow"))
    return row(" " * (width - len(worst)), drawn)


def _bar(one: PastIterations, width: int) -> Text:
    total = max(int(one.duration_ns[0]), 1)
    return stacked(
        ((value / total, glyph, style) for value, (glyph, style) in zip(_phases_ns(one), _DRAWN.values(), strict=True)),
        width,
    )


def _phases_ns(one: PastIterations) -> tuple[float, ...]:
    return tuple(float(getattr(one, phase.length)[0]) for phase in PHASES)


def _numbers(recent: Recent, one: PastIterations, name_width: int) -> Text:
    parts = [f"{right(duration(value / 1e9), 9)} " for value in _phases_ns(one)]
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
    found_of = {rank.pid: rank.durations for rank in recent.analysis.of(RANKS)}
    name_width = _name_width(recent, [*found_of])
    names = f"{'rank':>{name_width}} {'seen':>6} {'median':>9} {'p10':>9} {'p90':>9} {'slowest':>9} {'exposed':>9}"
    rows = [heading("Spread", f"last {recent.window_ns / 1e9:.0f} s"), row((names, "dim"))]
    for pid, found in found_of.items():
        if found is None:
            continue
        values = (found.median_s, found.p10_s, found.p90_s, found.max_s)
        shown = " ".join(right(duration(value), 9) for value in values)
        rows.append(
            row(f"{recent.name_of(pid):>{name_width}} {found.count:>6} {shown} {share(found.exposed_share):>9}")
        )
    return rows
