"""The report's tables of links and flows."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from netprof.analysis import Analysis
from netprof.analysis.findings.flows import FlowSummary
from netprof.analysis.findings.links import LinkSummary
from netprof.views.format import UNKNOWN, duration, rate, share, size
from netprof.views.grid import Grid, pairs, show, title
from netprof.views.safe import safe_text

MOST_FLOWS = 10
HARDLY_ANY = 0.001
"""Share of the job's bytes below which a link is not shown: a control connection over loopback, say."""


def links(analysis: Analysis, console: Console) -> None:
    """Print line rate, utilization and idle time of every link."""
    if not analysis.links:
        title(console, "Links", "no traffic of the job was seen")
        return
    shown = _main_links(analysis)
    left_out = len(analysis.links) - len(shown)
    about = f"; {left_out} with hardly any traffic left out" if left_out else ""
    title(console, "Links", f"share of line rate; 'waiting': while a bucket is outstanding{about}")
    columns = ("link", "ranks", "line rate", "tx", "rx", "tx waiting", "rx waiting")
    usage = [_usage(link, analysis) for link in shown]
    show(console, Grid(columns, usage, left=frozenset({"ranks"}), optional=("ranks",)))
    sources = dict.fromkeys(safe_text(link.line_rate_source) for link in shown if link.line_rate_bps)
    pairs(console, [("line rate from", source) for source in sources])
    title(console, "Idle link time", "share of all time, by what the job was doing")
    headings = ("link", "idle", "no gradient", "waiting", "between", "after last")
    show(console, Grid(headings, [_idle(link, analysis) for link in shown]))


def _main_links(analysis: Analysis) -> list[LinkSummary]:
    """Return the links that carry at least HARDLY_ANY of the job's bytes; all of them if none carries any."""
    total = sum(link.tx_bytes + link.rx_bytes for link in analysis.links)
    main = [link for link in analysis.links if total and link.tx_bytes + link.rx_bytes >= HARDLY_ANY * total]
    return main or list(analysis.links)


def flows(analysis: Analysis, console: Console) -> None:
    """Print the flows that moved the most bytes."""
    if not analysis.flows:
        return
    shown = analysis.flows[:MOST_FLOWS]
    left_out = len(analysis.flows) - len(shown)
    title(console, "Flows", f"the {len(shown)} largest of {len(analysis.flows)}" if left_out else "")
    headings = ("flow", "rank", "sent", "received", "tx rate", "of link", "resent", "rtt")
    show(console, Grid(headings, [_flow(flow) for flow in shown], optional=("of link", "rank", "received", "tx rate")))


def name_of(link: LinkSummary, analysis: Analysis) -> str:
    """Return a device's name; where another network namespace has one of that name, with its ranks or its inode."""
    others = [other for other in analysis.links if other.device == link.device and other is not link]
    name = safe_text(link.device, 40) or "(no device)"
    if not others:
        return name
    if link.ranks and all(other.ranks != link.ranks for other in others):
        return f"{name} of {_ranks(link)}"
    return f"{name}@{link.netns}"


def _ranks(link: LinkSummary) -> str:
    return ("rank " if len(link.ranks) == 1 else "ranks ") + ",".join(map(str, link.ranks))


def _usage(link: LinkSummary, analysis: Analysis) -> tuple[str, ...]:
    return (
        name_of(link, analysis),
        ",".join(map(str, link.ranks)) or "?",
        rate(link.line_rate_bps),
        share(link.utilization_tx),
        share(link.utilization_rx),
        share(link.utilization_outstanding_tx),
        share(link.utilization_outstanding_rx),
    )


def _idle(link: LinkSummary, analysis: Analysis) -> tuple[str | Text, ...]:
    idle = link.idle
    parts = (
        idle.total_ns,
        idle.no_gradient_ns,
        idle.gradients_waiting_ns,
        idle.nothing_outstanding_ns,
        idle.after_last_byte_ns,
    )
    return (name_of(link, analysis), *(_of_window(part, link.window_ns) for part in parts))


def _of_window(part_ns: int | None, window_ns: int) -> str:
    return UNKNOWN if part_ns is None or not window_ns else share(part_ns / window_ns)


def _flow(flow: FlowSummary) -> tuple[str, ...]:
    return (
        f"{safe_text(flow.local, 60)} → {safe_text(flow.remote, 60)}",
        "?" if flow.rank is None else str(flow.rank),
        size(flow.tx.wire_bytes),
        size(flow.rx.wire_bytes),
        rate(flow.tx.rate_bps) if flow.tx.rate_bps is not None else "-",
        share(flow.tx.share),
        size(flow.tx.retransmitted_bytes),
        duration(flow.tcp.rtt_us / 1e6) if flow.tcp else "-",
    )
