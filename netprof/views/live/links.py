"""Links: a strip each way that scrolls with time, why it was idle, and both against line rate."""

from __future__ import annotations

import numpy as np
from rich.text import Text

from netprof.analysis.account.causes import CAUSES, UNEXPLAINED
from netprof.analysis.declared import share_of
from netprof.analysis.definitions import IDLE_THRESHOLD
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.live.now import LinkNow, Recent
from netprof.analysis.live.strip import Strip, causes, is_idle, strip
from netprof.analysis.tables.columns import Bool, Int64
from netprof.analysis.wire.bins import Bins
from netprof.units import UNKNOWN, count, duration, rate
from netprof.views.live.text_rows import EIGHTHS, Part, cells, heading, percent, row
from netprof.views.safe import safe_text

CAUSE_STYLES = ("blue", "red", "magenta", "bright_black")
"""In the order of CAUSES."""
LABEL = 24
"""Cells before a strip."""


def link_rows(recent: Recent, width: int, most: int, zoom: int) -> list[Text]:
    """Return the section of the overview in at most `most` rows; `zoom` is the bins in a column of the strips."""
    links = by_traffic(recent)
    if not links:
        return [heading("Links", "no traffic of the job has been seen yet")]
    height = 4 if 4 * len(links) <= most - 1 else 3  # name, two strips, and where there is room why they were idle
    fitting = max(1, (most - 2) // height if len(links) * height > most - 1 else len(links))
    rows = [_heading(recent, zoom, width)]
    for link in links[:fitting]:
        rows += _link(recent, link, width, zoom, with_causes=height > 3)
    if fitting < len(links):
        rows.append(row((f"  … and {count(len(links) - fitting, 'more link')}", "dim")))
    return rows[:most]


def by_traffic(recent: Recent) -> list[LinkNow]:
    """Return the links that carried a byte of the job lately, the busiest first; of equals the lower rank."""
    moved = {id(link): _bytes(link.transmitted) + _bytes(link.received) for link in recent.links}
    most = max(moved.values(), default=0)
    shown = [link for link in recent.links if moved[id(link)] > most / 1000]
    return sorted(shown, key=lambda link: (link.ranks or (1 << 31,), -moved[id(link)]))


def link_name(recent: Recent, link: LinkNow) -> str:
    """Return a device's name; with its host or its ranks where there is another one of that name."""
    name = safe_text(link.key.device, 24) or "(no device)"
    namesakes = [each for each in recent.links if each.key.device == link.key.device and each is not link]
    if not namesakes:
        return name
    host = _host_of(recent, link)
    if host is not None and not any(_host_of(recent, each) == host for each in namesakes):
        return f"{name} of {safe_text(host, 24)}"
    ranks = ",".join(map(str, link.ranks))
    return f"{name} of rank {ranks}" if ranks else f"{name}@{link.key.netns}"


def _host_of(recent: Recent, link: LinkNow) -> str | None:
    """Return the name of the host that a device is of, where several hosts recorded the job."""
    hosts = recent.hosts if recent.has_many_hosts else ()
    return next((host.name for host in hosts if link.key.netns in host.netns), None)


def _bytes(bins: Bins | None) -> int:
    return int(bins.wire_bytes.sum()) if bins is not None else 0


def _heading(recent: Recent, zoom: int, width: int) -> Text:
    column = duration(zoom * recent.meta.bin_ns / 1e9)
    parts: list[Part | str] = [("Links", "bold"), (f"  a column is {column}: height mean, colour peak", "dim")]
    idle: list[Part | str] = [("  idle:", "dim")]
    for cause, style in zip(CAUSES, CAUSE_STYLES, strict=True):
        idle += [" ", (cause.letter, style), (f" {cause.short}", "dim")]
    whole = row(*parts, *idle)
    return whole if whole.cell_len <= width else row(("Links", "bold"), (f"  a column is {column}", "dim"), *idle)


def _link(recent: Recent, link: LinkNow, width: int, zoom: int, *, with_causes: bool) -> list[Text]:
    summary = _summary(recent, link)
    columns = max(1, width - LABEL)
    bin_ns = recent.meta.bin_ns
    first_bin = (recent.strips_through_ns // (bin_ns * zoom) - columns) * zoom  # whole columns: they move, never change
    sides = [
        strip(bins, first_bin, zoom, columns, bin_ns, unknown)
        for bins, unknown in zip((link.transmitted, link.received), link.unknown, strict=True)
    ]
    idle = is_idle(sides, link.line_rate.bps)
    scale = link.line_rate.bps or max(float(side.peak_bps.max()) for side in sides) or 1.0
    rows = [_title(recent, link, summary, scale)]
    usage = (
        (summary.utilization_tx, summary.utilization_outstanding_tx) if summary else (None, None),
        (summary.utilization_rx, summary.utilization_outstanding_rx) if summary else (None, None),
    )
    for arrow, side, (all_time, waiting) in zip("↑↓", sides, usage, strict=True):
        rows.append(row(_label(arrow, all_time, waiting, side), _strip(side, scale)))
    if with_causes:
        why = causes(link.causes, first_bin * bin_ns, zoom * bin_ns, columns)
        rows.append(row((f"{'why idle':>{LABEL - 1}} ", "dim"), _why(idle, why)))
    return rows


def _summary(recent: Recent, link: LinkNow) -> LinkSummary | None:
    links = recent.analysis.of(LINKS) if recent.analysis is not None else ()
    return next((one for one in links if one.key == link.key), None)


def _title(recent: Recent, link: LinkNow, summary: LinkSummary | None, scale: float) -> Text:
    known = link.line_rate.bps is not None
    source = safe_text(link.line_rate.source, 40).partition(":")[0]
    speed = f"{rate(link.line_rate.bps)} ({source})" if known else f"line rate {UNKNOWN}, █ {rate(scale)}"
    parts: list[Part | str] = [(f" {link_name(recent, link)}", "bold cyan"), (f"  {speed}", "dim")]
    if summary is not None:
        idle = None if summary.tells_nothing else summary.idle.total_ns
        parts += [("  idle ", "dim"), percent(share_of(idle, summary.window_ns))]
        for cause, style in zip(CAUSES, CAUSE_STYLES, strict=True):
            amount = summary.idle.of(cause)
            if idle is not None and amount is not None:
                share = percent(share_of(amount, summary.window_ns)).removesuffix(" %")
                parts += ["  ", (cause.letter, f"bold {style}"), f" {share}"]
        if summary.dropped_packets:
            parts.append((f"  dropped {count(summary.dropped_packets, 'packet')}", "bold yellow"))
    return row(*parts)


def _label(arrow: str, all_time: float | None, waiting: float | None, side: Strip) -> Text:
    now = rate(float(side.mean_bps.mean()))
    if all_time is None:
        return row(f" {arrow} ", (f"{now:>{LABEL - 4}} ", ""))
    busy = f"waiting {waiting * 100:3.0f} %" if waiting is not None else ""
    return row(f" {arrow} ", (f"{all_time * 100:3.0f} %", "bold"), (f"  {busy:<{LABEL - 10}}", "dim"))


_GLYPHS = np.array(["·", *EIGHTHS[1:]])
_COLOURS, _FROM = ("bright_black", "blue", "yellow", "green"), (IDLE_THRESHOLD, 0.3, 0.8)


def _strip(side: Strip, scale: float) -> Text:
    """Draw a column's mean as its height, and colour it by its highest bin; a question mark where that is not known."""
    mean, peak = np.minimum(side.mean_bps / scale, 1.0), side.peak_bps / scale
    level = np.where(side.peak_bps > 0, np.maximum(1, np.round(mean * 8)), 0).astype(int)
    glyphs = np.where(side.unknown, "?", _GLYPHS[level])
    return cells("".join(glyphs), np.where(side.unknown, 0, np.digitize(peak, _FROM)), _COLOURS)


_LETTERS = np.array([*(cause.letter for cause in CAUSES), UNEXPLAINED.letter, " "])
_CAUSE_COLOURS = (*CAUSE_STYLES, "dim", "")
_UNKNOWN_CAUSE, _NOT_IDLE = len(CAUSES), len(CAUSES) + 1


def _why(idle: Bool, why: Int64) -> Text:
    codes = np.where(idle, np.where(why >= 0, why, _UNKNOWN_CAUSE), _NOT_IDLE)
    return cells("".join(_LETTERS[codes]), codes, _CAUSE_COLOURS)
