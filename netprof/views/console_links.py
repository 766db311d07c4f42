"""The report's tables of links and flows."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from netprof.analysis import Analysis
from netprof.analysis.flows import FlowSummary
from netprof.analysis.links import LinkSummary
from netprof.views.format import UNKNOWN, duration, rate, share, size
from netprof.views.grid import Grid, show, title
from netprof.views.safe import safe_text

MOST_FLOWS = 10


def links(analysis: Analysis, console: Console) -> None:
    """Print line rate, utilization and idle time of every link."""
    if not analysis.links:
        title(console, "Links", "no traffic of the job was seen")
        return
    title(console, "Links", "share of line rate; 'waiting': while a bucket is outstanding")
    columns = ("link", "ranks", "line rate", "tx", "rx", "tx waiting", "rx waiting", "of NIC")
    usage = [_usage(link, analysis) for link in analysis.links]
    show(console, Grid(columns, usage, left=frozenset({"ranks"}), optional=("of NIC", "ranks")))
    title(console, "Idle link time", "share of all time, by what the job was doing")
    headings = ("link", "idle", "no gradient", "waiting", "between", "after last")
    show(console, Grid(headings, [_idle(link, analysis) for link in analysis.links]))


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
    """Return a device's name, with its namespace where the name alone is ambiguous."""
    name = safe_text(link.device, 40) or "(no device)"
    same = [other for other in analysis.links if other.device == link.device]
    return f"{name}@{link.netns}" if len(same) > 1 else name


def _usage(link: LinkSummary, analysis: Analysis) -> tuple[str, ...]:
    line_rate = (
        f"{rate(link.line_rate_bps)} ({safe_text(link.line_rate_source, 40)})" if link.line_rate_bps else UNKNOWN
    )
    return (
        name_of(link, analysis),
        ",".join(map(str, link.ranks)) or "?",
        line_rate,
        share(link.utilization_tx),
        share(link.utilization_rx),
        share(link.utilization_outstanding_tx),
        share(link.utilization_outstanding_rx),
        _share_of_nic(link),
    )


def _share_of_nic(link: LinkSummary) -> str:
    """The job's part of what the device itself counted, both directions."""
    if link.nic is None:
        return UNKNOWN
    counted = link.nic.tx_bytes + link.nic.rx_bytes
    return share((link.nic.job_tx_bytes + link.nic.job_rx_bytes) / counted) if counted else "no bytes"


def _idle(link: LinkSummary, analysis: Analysis) -> tuple[str | Text, ...]:
    idle, window = link.idle, link.window_ns
    causes = (
        idle.no_gradient_ns,
        idle.gradients_waiting_ns,
        idle.nothing_outstanding_ns,
        idle.after_last_byte_ns,
    )
    return (name_of(link, analysis), *(_of_window(part, window) for part in (idle.total_ns, *causes)))


def _of_window(part_ns: int | None, window_ns: int) -> str:
    return UNKNOWN if part_ns is None or not window_ns else share(part_ns / window_ns)


def _flow(flow: FlowSummary) -> tuple[str, ...]:
    return (
        f"{safe_text(flow.local, 60)} → {safe_text(flow.remote, 60)}",
        "?" if flow.rank is None else str(flow.rank),
        size(flow.tx.wire_bytes),
        size(flow.rx.wire_bytes),
        rate(flow.tx.rate_bps),
        share(flow.tx.share),
        size(flow.tx.retransmitted_bytes),
        duration(flow.tcp.rtt_us / 1e6) if flow.tcp else UNKNOWN,
    )
