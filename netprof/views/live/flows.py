"""Flows: the largest ones with rate, retransmissions and round-trip time."""

from __future__ import annotations

from functools import lru_cache

from rich.text import Text

from netprof.analysis import Analysis
from netprof.analysis.findings.flows.flows import FLOWS
from netprof.analysis.findings.flows.seen_flows import FlowSummary
from netprof.analysis.live.recent import Recent
from netprof.units import UNKNOWN, count, duration, rate, share, size
from netprof.views.live.rows import heading, left, right, row
from netprof.views.safe import safe_text

_COLUMNS = (("sent", 9), ("received", 9), ("rate ↑", 12), ("rate ↓", 12), ("resent", 8), ("rtt", 8), ("of link", 8))
_NARROW = (0, 2, 4, 5)
_RANK, _LEAST_NAME = 5, 40
LEAST = 1e-3


def flow_rows(recent: Recent, width: int, most: int, *, everything: bool = False) -> list[Text]:
    """Return a heading and a row for each of the largest flows of the window, `most` rows in all.

    Without `everything` flows that carry less than LEAST of what the largest one carries are left out.
    """
    if recent.analysis is None:
        return [heading("Flows", "none yet")]
    return list(_rows(recent.analysis, width, most, everything))


@lru_cache(maxsize=8)  # conclusions change less often than the screen
def _rows(analysis: Analysis, width: int, most: int, everything: bool) -> tuple[Text, ...]:
    name = "Flows" if everything else "Top flows"
    flows = analysis.of(FLOWS)
    if not everything and flows:
        worth_a_row = LEAST * (flows[0].tx.wire_bytes + flows[0].rx.wire_bytes)
        flows = tuple(flow for flow in flows if flow.tx.wire_bytes + flow.rx.wire_bytes >= worth_a_row)
    if not flows:
        return (heading(name, "none yet"),)
    chosen = _chosen(width)
    name_width = width - _RANK - 1 - sum(_COLUMNS[index][1] + 1 for index in chosen)
    shown = flows[: max(0, most - 1)]
    about = (
        f"of {count(len(flows), 'flow')}, last {analysis.evidence.recording.total_ns / 1e9:.0f} s"
        if len(shown) < len(flows)
        else ""
    )
    title = left(f"{name}  {about or f'last {analysis.evidence.recording.total_ns / 1e9:.0f} s'}", name_width)
    numbers = "".join(" " + right(_COLUMNS[index][0], _COLUMNS[index][1]) for index in chosen)
    rows = [
        row(
            (title[: len(name)], "bold"),
            (title[len(name) :], "dim"),
            (f"{'rank':>{_RANK + 1}}", "dim"),
            (numbers, "dim"),
        )
    ]
    return (*rows, *(_flow(flow, name_width, chosen) for flow in shown))


def _chosen(width: int) -> tuple[int, ...]:
    every = tuple(range(len(_COLUMNS)))
    needed = _LEAST_NAME + _RANK + 1 + sum(_COLUMNS[index][1] + 1 for index in every)
    return every if width >= needed else _NARROW


def _flow(flow: FlowSummary, name_width: int, chosen: tuple[int, ...]) -> Text:
    values = (
        size(flow.tx.wire_bytes),
        size(flow.rx.wire_bytes),
        rate(flow.tx.rate_bps),
        rate(flow.rx.rate_bps),
        size(flow.tx.retransmitted_bytes),
        duration(flow.tcp.rtt_us / 1e6) if flow.tcp else UNKNOWN,
        share(flow.tx.share),
    )
    resent = flow.tx.retransmitted_bytes > 0.001 * flow.tx.wire_bytes
    name = left(f"{safe_text(flow.local, 60)} → {safe_text(flow.remote, 60)}", name_width)
    parts = [
        (" " + right(values[index], _COLUMNS[index][1]), "bold yellow" if index == 4 and resent else "")
        for index in chosen
    ]
    return row(name, (f"{'?' if flow.rank is None else flow.rank:>{_RANK + 1}}", ""), *parts)
