"""What was seen of every flow: bytes, rate, share, retransmissions and round-trip time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.declared import added, put_together, share_of
from netprof.analysis.piece import ALL, Piece
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import Int64, int64_column
from netprof.analysis.tables.flow_table import Flows, endpoint
from netprof.analysis.wire.fold import WireFold
from netprof.schema import RDMA, RECEIVE, ROCE, TRANSMIT, UNKNOWN_RANK


@dataclass(frozen=True, slots=True)
class FlowSide:
    """What a flow moved in one direction; `rate_bps` is wire bits over its first to last packet, None for one packet.

    `share` is its share of the job's wire bytes on its device in this direction. Its first and last packet are at
    `first_ns` and `last_ns`, None without any.
    """

    payload_bytes: int
    wire_bytes: int
    retransmitted_bytes: int
    packets: int
    rate_bps: float | None
    share: float | None
    first_ns: int | None = None
    last_ns: int | None = None


@dataclass(frozen=True, slots=True)
class TransportState:
    """What TCP said of a flow: retransmitted segments and congestion window at the end, median round-trip time.

    Of a long recording that is the mean of the medians of its pieces, by their samples.
    """

    retransmits: int
    rtt_us: float
    cwnd: int
    mss_bytes: int
    samples: int = 1


@dataclass(frozen=True, slots=True)
class FlowSummary:
    """One flow; `rank` is None where nothing says it, `tcp` where the transport was not sampled."""

    flow_id: int
    local: str
    remote: str
    netns: int
    device: str
    pid: int
    rank: int | None
    congestion_control: str | None
    tx: FlowSide
    rx: FlowSide
    tcp: TransportState | None


def summarize_flows(fold: WireFold, tcp: Any, piece: Piece = ALL) -> tuple[FlowSummary, ...]:
    """Summarise every flow that moved a byte, the largest first.

    `tcp` is the trace's table of that name, or what is in sight of it around a `piece` of the recording.
    """
    flows = fold.flows
    sides = {direction: _sides(fold, direction) for direction in (TRANSMIT, RECEIVE)}
    transport, local, remote = _transport(tcp, piece), _ends(flows, "local"), _ends(flows, "remote")
    moved = fold.totals(TRANSMIT).wire_bytes + fold.totals(RECEIVE).wire_bytes
    return tuple(
        FlowSummary(
            flow_id=int(flows.flow_id[row]),
            local=local[row],
            remote=remote[row],
            netns=int(flows.netns[row]),
            device=str(flows.device[row]),
            pid=int(flows.pid[row]),
            rank=None if flows.rank[row] == UNKNOWN_RANK else int(flows.rank[row]),
            congestion_control=str(flows.congestion_control[row]) or None,
            tx=sides[TRANSMIT][row],
            rx=sides[RECEIVE][row],
            tcp=transport.get(int(flows.flow_id[row])),
        )
        for row in np.argsort(-moved, kind="stable")
        if moved[row]
    )


def _ends(flows: Flows, side: str) -> list[str]:
    """Return an end of each flow as one writes it: address and port, of RoCE address and queue pair."""
    end = (getattr(flows, f"{side}_{name}") for name in ("addr", "port", "queue_pair"))
    return [
        f"{address} QP {pair if pair > 0 else '?'}" if protocol in (RDMA, ROCE) else endpoint(family, address, port)
        for protocol, family, address, port, pair in _rows(flows.protocol, flows.family, *end)
    ]


def _sides(fold: WireFold, direction: int) -> list[FlowSide]:
    totals = fold.totals(direction)
    wire, on_link = totals.wire_bytes, _per_link(fold, totals.wire_bytes)
    amounts = (totals.payload_bytes, wire, totals.retransmitted_bytes, totals.packets)
    return [_side(*row) for row in _rows(*amounts, totals.first_ns, totals.last_ns, on_link)]


def _rows(*columns: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of columns as Python's own numbers and strings: single elements of arrays are slow."""
    return zip(*(each.tolist() for each in columns), strict=True)


def _per_link(fold: WireFold, amounts: Int64) -> Int64:
    """Return for each flow the sum of `amounts` over all flows on its device."""
    numbers: dict[tuple[int, str], int] = {}
    keys = zip(fold.flows.netns.tolist(), fold.flows.device.tolist(), strict=True)
    link = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    sums = np.zeros(len(numbers), np.int64)
    np.add.at(sums, link, amounts)
    return sums[link]


def _side(
    payload_bytes: int, wire_bytes: int, resent_bytes: int, packets: int, first_ns: int, last_ns: int, on_link: int
) -> FlowSide:
    first, last = (first_ns, last_ns) if packets else (None, None)
    share, bps = share_of(wire_bytes, on_link), _rate(wire_bytes, first, last)
    return FlowSide(payload_bytes, wire_bytes, resent_bytes, packets, bps, share, first, last)


def _rate(wire_bytes: int, first_ns: int | None, last_ns: int | None) -> float | None:
    lasted_ns = last_ns - first_ns if first_ns is not None and last_ns is not None else 0
    return wire_bytes * 8e9 / lasted_ns if lasted_ns > 0 else None


def _transport(tcp: Any, piece: Piece) -> dict[int, TransportState]:
    names = ("flow_id", "time_ns", "retransmits", "rtt_us", "cwnd", "mss_bytes")
    columns = {name: int64_column(tcp, name) for name in names}
    order = np.lexsort((columns["time_ns"], columns["flow_id"]))
    order = order[piece.owns(columns["time_ns"][order])]
    columns = {name: values[order] for name, values in columns.items()}
    ids, first = np.unique(columns["flow_id"], return_index=True)
    ends = np.append(first[1:], len(order))[: len(ids)]
    return {
        int(flow): TransportState(
            retransmits=int(columns["retransmits"][end - 1]),
            rtt_us=float(np.median(columns["rtt_us"][begin:end])),
            cwnd=int(columns["cwnd"][end - 1]),
            mss_bytes=int(columns["mss_bytes"][end - 1]),
            samples=int(end - begin),
        )
        for flow, begin, end in zip(ids, first, ends, strict=True)
    }


def _merge(parts: Sequence[Sequence[FlowSummary]], whole: Analysis) -> tuple[FlowSummary, ...]:
    flows = put_together(parts, lambda flow: flow.flow_id, _both)
    on_link: Counter[tuple[int, str, str]] = Counter()
    for flow in flows:
        for name in ("tx", "rx"):
            on_link[flow.netns, flow.device, name] += getattr(flow, name).wire_bytes
    shared = [_with_shares(flow, on_link) for flow in flows]
    return tuple(sorted(shared, key=lambda flow: -(flow.tx.wire_bytes + flow.rx.wire_bytes)))


def _both(a: FlowSummary, b: FlowSummary) -> FlowSummary:
    tcp = a.tcp if b.tcp is None else b.tcp if a.tcp is None else _later(a.tcp, b.tcp)
    return replace(b, tx=_sum(a.tx, b.tx), rx=_sum(a.rx, b.rx), tcp=tcp)


def _sum(a: FlowSide, b: FlowSide) -> FlowSide:
    sums = added((a, b), "payload_bytes wire_bytes retransmitted_bytes packets")
    first_ns = min((t for t in (a.first_ns, b.first_ns) if t is not None), default=None)
    last_ns = max((t for t in (a.last_ns, b.last_ns) if t is not None), default=None)
    rate_bps = _rate(sums["wire_bytes"], first_ns, last_ns)
    return FlowSide(**sums, rate_bps=rate_bps, share=None, first_ns=first_ns, last_ns=last_ns)


def _later(a: TransportState, b: TransportState) -> TransportState:
    samples = a.samples + b.samples
    return replace(b, rtt_us=(a.rtt_us * a.samples + b.rtt_us * b.samples) / samples, samples=samples)


def _with_shares(flow: FlowSummary, on_link: Mapping[tuple[int, str, str], int]) -> FlowSummary:
    sides = {name: getattr(flow, name) for name in ("tx", "rx")}
    whole = {name: on_link[flow.netns, flow.device, name] for name in sides}
    return replace(flow, **{n: replace(s, share=share_of(s.wire_bytes, whole[n])) for n, s in sides.items()})


SEEN_FLOWS = Section(
    "seen flows",
    lambda analysis: summarize_flows(analysis.evidence.fold, analysis.evidence.table("tcp"), analysis.evidence.piece),
    ("wire", "flows", "tcp"),
    merge=_merge,
)
