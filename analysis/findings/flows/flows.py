"""The flow table of the report: bytes, rate, share, retransmissions and round-trip time of every flow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from netprof.analysis.findings.flows.reconciliation import RECONCILIATION
from netprof.analysis.findings.flows.seen_flows import SEEN_FLOWS, FlowSide, FlowSummary
from netprof.analysis.form import Grid, Part
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


def _document(found: Sequence[FlowSummary]) -> dict[str, Any]:
    return {"flows": [dataclasses.asdict(flow) for flow in found]}


def _parts(found: Sequence[FlowSummary]) -> Sequence[Part]:
    if not found:
        return [Part("Flows", "no traffic of the job was seen")]
    amounts = ("sent", "received", "tx rate", "of link", "resent", "segments resent")
    headings = ("flow", "device", "rank", *amounts, "rtt", "control")
    optional = ("control", "device", "segments resent", "of link", "rank", "received", "tx rate")
    rows = [_row(flow) for flow in found[:MOST_FLOWS]]
    grid = Grid(headings, rows, frozenset({"device"}), optional, brief=BRIEFLY, total=len(found))
    return [Part("Flows", "the largest first", [grid])]


def _row(flow: FlowSummary) -> tuple[str, ...]:
    return (
        f"{flow.local} → {flow.remote}",
        flow.device,
        "?" if flow.rank is None else str(flow.rank),
        size(flow.tx.wire_bytes),
        size(flow.rx.wire_bytes),
        rate(flow.tx.rate_bps) if flow.tx.rate_bps is not None else "-",
        share(flow.tx.share),
        size(flow.tx.retransmitted_bytes),
        str(flow.tcp.retransmits) if flow.tcp else "-",
        duration(flow.tcp.rtt_us / 1e6) if flow.tcp else "-",
        flow.congestion_control or "-",
    )


def _notes(found: Sequence[FlowSummary]) -> Iterator[str]:
    """Say what holds flows back by itself, and is seen as nothing else."""
    sent = [flow.tx.wire_bytes for flow in found]
    least = _MAIN_FLOW * max(sent, default=0)
    main = (flow for flow, wire_bytes in zip(found, sent, strict=True) if wire_bytes >= least)
    paused = sum(flow.congestion_control == "bbr" for flow in main)
    if paused:
        yield (
            f"{count(paused, 'flow')} under BBR, whose ProbeRTT cuts the window to 4 packets for 0.2 s every ten "
            "seconds: all ranks wait for that flow"
        )


FLOWS = Section("flows", _conclude, document=_document, parts=_parts, notes=_notes)
