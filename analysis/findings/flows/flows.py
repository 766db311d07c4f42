"""The flow table of the report: bytes, rate, share, retransmissions and round-trip time of every flow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from netprof.analysis.declared import Column, plain, table
from netprof.analysis.findings.flows.reconciliation import RECONCILIATION
from netprof.analysis.findings.flows.seen_flows import SEEN_FLOWS, FlowSide, FlowSummary
from netprof.analysis.form import Part
from netprof.analysis.section import Analysis, Section
from netprof.units import count, duration, rate, share, size

MOST_FLOWS, BRIEFLY = 200, 10
"""Flows in the table, and where there is little room."""
_MAIN_FLOW = 0.1
"""Share of the largest flow's bytes from which on ranks wait for another one too: no heartbeat, no control channel."""


def _conclude(analysis: Analysis) -> tuple[FlowSummary, ...]:
    """Return what was seen, with what TCP's own totals recover; of that it is not known when it was."""
    recovered = analysis.of(RECONCILIATION).recovered
    return tuple(_with(flow, *recovered.get(flow.flow_id, (0, 0, 0))) for flow in analysis.of(SEEN_FLOWS))


def _with(flow: FlowSummary, resent_bytes: int, sent: int, received: int) -> FlowSummary:
    tx, rx = _and_packets(flow.tx, sent, resent_bytes), _and_packets(flow.rx, received, 0)
    return flow if tx is flow.tx and rx is flow.rx else replace(flow, tx=tx, rx=rx)


def _and_packets(side: FlowSide, packets: int, resent_bytes: int) -> FlowSide:
    """Return a side with packets that were not seen: their headers are as long as those of the others."""
    if not packets and not resent_bytes:
        return side
    headers = (side.wire_bytes - side.payload_bytes - side.retransmitted_bytes) / max(side.packets, 1)
    return replace(
        side,
        wire_bytes=side.wire_bytes + resent_bytes + round(packets * headers),
        retransmitted_bytes=side.retransmitted_bytes + resent_bytes,
        packets=side.packets + packets,
    )


def _parts(flows: Sequence[FlowSummary]) -> Sequence[Part]:
    if not flows:
        return [Part("Flows", "no traffic of the job was seen")]
    return [Part("Flows", "the largest first", [table(_COLUMNS, flows, MOST_FLOWS, brief=BRIEFLY)])]


_COLUMNS = (
    Column("flow", lambda flow: f"{flow.local} → {flow.remote}"),
    Column("device", "device", left=True, goes=2),
    Column("rank", "rank", none="?", goes=5),
    Column("sent", "tx.wire_bytes", size),
    Column("received", "rx.wire_bytes", size, goes=6),
    Column("tx rate", "tx.rate_bps", rate, "-", goes=7),
    Column("of link", "tx.share", share, goes=4),
    Column("resent", "tx.retransmitted_bytes", size),
    Column("segments resent", "tcp.retransmits", none="-", goes=3),
    Column("rtt", "tcp.rtt_us", lambda us: duration(us / 1e6), "-"),
    Column("control", lambda flow: flow.congestion_control or None, none="-", goes=1),
)


def _notes(flows: Sequence[FlowSummary]) -> Iterator[str]:
    """Say what holds flows back by itself, and is seen as nothing else."""
    sent = [flow.tx.wire_bytes for flow in flows]
    least = _MAIN_FLOW * max(sent, default=0)
    main = (flow for flow, wire_bytes in zip(flows, sent, strict=True) if wire_bytes >= least)
    paused = sum(flow.congestion_control == "bbr" for flow in main)
    if paused:
        yield (
            f"{count(paused, 'flow')} under BBR, whose ProbeRTT cuts the window to 4 packets for 0.2 s every ten "
            "seconds: all ranks wait for that flow"
        )


FLOWS = Section("flows", _conclude, document=lambda flows: {"flows": plain(flows)}, parts=_parts, notes=_notes)
