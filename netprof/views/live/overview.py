"""The overview: verdict, ranks, links, all-reduces, GPUs and the largest flows, as far as they fit."""

from __future__ import annotations

from rich.text import Text

from netprof.analysis.findings.collectives import COLLECTIVES
from netprof.analysis.findings.verdict import VERDICT
from netprof.analysis.live.recent import Recent
from netprof.views.colours import terminal_style
from netprof.views.live.flows import flow_rows
from netprof.views.live.gpus import gpu_rows
from netprof.views.live.hosts import host_rows
from netprof.views.live.iterations import rank_rows
from netprof.views.live.links import by_traffic, link_rows
from netprof.views.live.rows import Part, brief_rate, heading, percent, row, stacked, wrapped
from netprof.views.live.stragglers import straggler_rows
from netprof.views.live.waiting import waiting_rows
from netprof.views.safe import safe_text

_STRAGGLERS = 2
_NOTEWORTHY_S = 3
"""How old a verdict is that is said to be."""
_VERDICT, _ROOMY, _LEAST_BELOW = 4, 18, 3
"""Rows of the verdict; where there are fewer than _ROOMY in all, it may have all but a few of them."""
_BELOW_HOSTS = 6
"""Rows that are left for what the ranks wait for, and the links, where ranks are shown by host."""


def overview(recent: Recent, width: int, height: int, zoom: int) -> list[Text]:
    """Return the rows of the overview, at most `height`: what fits, the most telling parts first."""
    late = straggler_rows(recent, width, _STRAGGLERS if height >= _ROOMY else 1)
    height -= len(late)
    top = verdict_rows(recent, width, _VERDICT if height >= _ROOMY else height - _LEAST_BELOW)
    spaced = height >= 34
    room = height - len(top)
    ranks = _ranks(recent, width, room, height)
    waiting = waiting_rows(recent, width, min(9, (height - len(top) - len(ranks)) // 2))
    room = height - len(top) - len(ranks) - len(waiting) - 1
    links = link_rows(recent, width, min(room, 1 + 4 * max(1, len(by_traffic(recent)))), zoom)
    sections = [top, ranks, *([waiting] if waiting else []), links, all_reduce_rows(recent, width, spaced)]
    for extra in (gpu_rows(recent, width, 1 + len(recent.gpus)), flow_rows(recent, width, 9)):
        room = height - sum(len(section) + spaced for section in sections)
        if extra and room >= 2:
            sections.append(extra[:room])
    rows: list[Text] = []
    for section in sections:
        rows += section + ([row()] if spaced else [])
    if len(rows) < height:
        rows[: len(top)] = verdict_rows(recent, width, len(top) + height - len(rows))
    return late + rows


def _ranks(recent: Recent, width: int, room: int, height: int) -> list[Text]:
    """Return the ranks: side by side where they are on many hosts, else a row each."""
    if recent.has_many_hosts:
        rows = host_rows(recent, width, max(2, min(1 + 2 * len(recent.hosts), room - _BELOW_HOSTS)))
        if rows:
            return rows
    return rank_rows(recent, width, max(2, min(9, room // 3 if height >= _ROOMY else room)))


def verdict_rows(recent: Recent, width: int, most: int) -> list[Text]:
    """Return the verdict over the window, or that the job stalls, or that it is too early for a verdict.

    What to do is never cut off for want of rows, unless there is but one.
    """
    if recent.stall is not None:
        return wrapped(recent.stall.sentence(recent.ranks, recent.through_ns, recent.host_of), width, "bold red", most)
    if recent.hang is not None:
        advice = wrapped(f"→ {safe_text(recent.hang.advice)}", width, "bold", most - 1)
        return wrapped(recent.hang.sentence, width, "bold red", most - len(advice)) + advice
    if recent.analysis is None or recent.is_early:
        return wrapped("waiting for the first whole iteration", width, "dim", 1)
    verdict = recent.analysis.of(VERDICT)
    style = f"bold {terminal_style(verdict.case.value)}"
    advice = wrapped(f"→ {safe_text(verdict.advice)}", width, "bold", most - 1) if verdict.advice else []
    ago_s = (recent.through_ns - int(recent.analysis.evidence.recording.end_ns.max())) / 1e9
    as_of = f", as of {ago_s:.0f} s ago" if ago_s >= _NOTEWORTHY_S else ""
    text = f"{safe_text(verdict.sentence)} (last {recent.window_ns / 1e9:.0f} s{as_of})"
    return wrapped(text, width, style, most - len(advice)) + advice


def all_reduce_rows(recent: Recent, width: int, tall: bool) -> list[Text]:
    """Return the bus bandwidth of the all-reduces against line rate: in one row, or `tall` with bars."""
    found = recent.analysis.of(COLLECTIVES).summary if recent.analysis is not None else None
    if found is None or not found.count:
        return [heading("All-reduce", "none with a known size yet")]
    last = [b.bus_bandwidth_bps for b in recent.last_bandwidths.values() if b.bus_bandwidth_bps is not None]
    if found.bus_bandwidth_bps is None:
        known = f"algorithm bandwidth {brief_rate(found.algorithm_bandwidth_bps)}"
        return [heading("All-reduce", f"{known} (number of ranks unknown)")]
    share, whole = found.line_rate_share, found.bus_bandwidth_bps
    line_rate = whole / share if share and whole else None
    values = {
        "last": min(last, default=None),
        "window": found.bus_bandwidth_bps,
        "median": found.median_bus_bandwidth_bps,
    }
    if not tall:
        parts: list[Part | str] = [("All-reduce", "bold")]
        for name, value in values.items():
            parts += [(f"  {name} ", "dim"), (brief_rate(value), "bold")]
            if name == "window" and line_rate:
                parts.append(f" = {percent(share)}" + (" of line rate" if width >= 90 else ""))
        return [row(*parts)]
    against = f"of a line rate of {brief_rate(line_rate)}" if line_rate else "line rate unknown"
    rows = [heading("All-reduce", f"bus bandwidth, {against}")]
    for name, value in values.items():
        rows.append(_bandwidth(f"{name:<8}{_MEANING[name]:<34}", value, line_rate, width))
    return rows


_MEANING = {
    "last": "all of the last iteration",
    "window": "all of the window",
    "median": "each alone (they share the link)",
}


def _bandwidth(name: str, value: float | None, line_rate: float | None, width: int) -> Text:
    if value is None or line_rate is None:
        return row((f" {name} ", "dim"), brief_rate(value))
    share = min(1.0, value / line_rate)
    bar = stacked([(share, "█", "green"), (1 - share, "·", "bright_black")], max(8, min(50, width - 68)))
    return row((f" {name} ", "dim"), bar, (f"  {brief_rate(value):>10}", "bold"), f"  {percent(value / line_rate)}")
