"""Flows: the largest ones with rate, retransmissions and round-trip time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rich.text import Text

from netprof.analysis import Analysis
from netprof.analysis.declared import Column
from netprof.analysis.findings.flows.flows import FLOWS
from netprof.analysis.findings.flows.seen_flows import FlowSummary
from netprof.analysis.live.now import Recent
from netprof.units import count, duration, rate, share, size
from netprof.views.live.text_rows import heading, left, right, row
from netprof.views.safe import safe_text

_COLUMNS = (
    (Column("sent", "tx.wire_bytes", size), 9),
    (Column("received", "rx.wire_bytes", size, goes=1), 9),
    (Column("rate ↑", "tx.rate_bps", rate), 12),
    (Column("rate ↓", "rx.rate_bps", rate, goes=1), 12),
    (Column("resent", "tx.retransmitted_bytes", size), 8),
    (Column("rtt", "tcp.rtt_us", lambda us: duration(us / 1e6)), 8),
    (Column("of link", "tx.share", share, goes=1), 8),
)
"""With the cells that each takes."""
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
    every = _RANK + 1 + sum(wide + 1 for _, wide in _COLUMNS)
    chosen = [(column, wide) for column, wide in _COLUMNS if width >= _LEAST_NAME + every or not column.goes]
    name_width = width - _RANK - 1 - sum(wide + 1 for _, wide in chosen)
    shown = flows[: max(0, most - 1)]
    about = f"of {count(len(flows), 'flow')}, " if len(shown) < len(flows) else ""
    title = left(f"{name}  {about}last {analysis.evidence.recording.total_ns / 1e9:.0f} s", name_width)
    numbers = "".join(" " + right(column.heading, wide) for column, wide in chosen)
    named = ((title[: len(name)], "bold"), (title[len(name) :], "dim"), (f"{'rank':>{_RANK + 1}}", "dim"))
    return (row(*named, (numbers, "dim")), *(_flow(flow, name_width, chosen) for flow in shown))


def _flow(flow: FlowSummary, name_width: int, chosen: Sequence[tuple[Column, int]]) -> Text:
    is_bad = flow.tx.retransmitted_bytes > 0.001 * flow.tx.wire_bytes
    name = left(f"{safe_text(flow.local, 60)} → {safe_text(flow.remote, 60)}", name_width)
    parts = [
        (" " + right(str(column.cell(flow)), wide), "bold yellow" if is_bad and column.heading == "resent" else "")
        for column, wide in chosen
    ]
    return row(name, (f"{'?' if flow.rank is None else flow.rank:>{_RANK + 1}}", ""), *parts)
