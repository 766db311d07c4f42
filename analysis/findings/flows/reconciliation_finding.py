"""What TCP's own totals hold beyond what was counted: of every flow of a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from netprof.analysis.findings.flows.seen_flows import SEEN_FLOWS, FlowSide, FlowSummary
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import Int64, concatenate, int64_column
from netprof.analysis.tables.totals import Differences, TcpTotals, differences, last_of_each, last_totals
from netprof.schema import RECEIVE, TRANSMIT

_TOTALS_SINCE = 3
"""The schema version that brought TCP's totals."""
_OUTSIDE_SINCE = 4
"""The schema version that says what was counted before the recording began and after its end."""


def _read(analysis: Analysis) -> TcpTotals:
    return last_totals(analysis.evidence.table("totals"))


def _merge(parts: Sequence[TcpTotals], whole: Analysis) -> TcpTotals:
    return last_of_each(concatenate(TcpTotals, list(parts)))


TCP_TOTALS = Section("TCP's totals", _read, ("totals",), merge=_merge)
"""The last totals of each flow."""


def _read_outside(analysis: Analysis) -> Mapping[tuple[int, int], int]:
    table = analysis.evidence.table("outside")
    names = ("flow_id", "direction", "payload_bytes", "retransmitted_bytes")
    flow, direction, new, again = (int64_column(table, name).tolist() for name in names)
    return {(f, d): n + a for f, d, n, a in zip(flow, direction, new, again, strict=True)}


def _merge_outside(parts: Sequence[Mapping[tuple[int, int], int]], whole: Analysis) -> Mapping[tuple[int, int], int]:
    return {key: amount for part in parts for key, amount in part.items()}


OUTSIDE = Section("outside", _read_outside, ("outside",), merge=_merge_outside)
"""Payload, what was sent again included, that was counted outside of the recording's time, by flow and direction."""


@dataclass(frozen=True, eq=False)
class ReconciliationFinding:
    """The last totals of the flows of the trace, and what they hold beyond what was counted.

    `unread` are the ids of flows that moved bytes but whose totals were never read. `late` is what TCP had sent and
    received in those that were adopted while the recording ran, by flow: in no bin, and some of it perhaps moved before
    the recording. `unrecorded_bytes`, in the order of the totals, were counted in the kernel and are in no row; None
    where the trace is not all that one recorder wrote. `recorded` is False for a trace that has no totals at all.
    `beyond_report` says that the totals are of more time than all other numbers: of hosts that recorded different
    times, of all that each recorded.
    """

    seen: Mapping[int, FlowSummary]
    totals: TcpTotals
    gaps: Differences
    late: Mapping[int, tuple[int, int]]
    unrecorded_bytes: Int64 | None
    unread: Sequence[int]
    recorded: bool
    links: tuple[LinkSummary, ...]
    beyond_report: bool = False

    @cached_property
    def unseen_bytes(self) -> int:
        """Payload that TCP moved, or may have moved, and that is not in the recording."""
        late = sum(sent + received for sent, received in self.late.values())
        return int(self.missing_bytes.sum()) + late

    @property
    def missing_bytes(self) -> Int64:
        """Payload of each flow of the totals that is not in the recording, though TCP moved it or it was counted."""
        unseen = self.gaps.unseen_sent_bytes + self.gaps.unseen_received_bytes
        return unseen if self.unrecorded_bytes is None else unseen + self.unrecorded_bytes

    @cached_property
    def beyond_bytes(self) -> int:
        """What was counted although TCP says that it moved less."""
        return int(self.gaps.beyond_bytes.sum())

    @property
    def recovered(self) -> Mapping[int, tuple[int, int, int]]:
        """By flow, what was sent again and packets sent and received that were not seen; flows that have any.

        None where it is not known whether it was in the time that is reported.
        """
        if self.beyond_report:
            return {}
        columns = [getattr(self.gaps, f"recovered_{name}") for name in _RECOVERED]
        rows = np.flatnonzero(sum(columns, np.zeros(len(self.totals), np.int64)))
        amounts = (column[rows].tolist() for column in columns)
        return dict(zip(self.totals.flow_id[rows].tolist(), zip(*amounts, strict=True), strict=True))

    @property
    def holds(self) -> bool | None:
        """Whether every byte that TCP says it moved is accounted for; None where that cannot be told."""
        if self.unseen_bytes or self.beyond_bytes:
            return False
        return None if self.unread or not self.recorded else True


_RECOVERED = ("resent_bytes", "sent_segments", "received_segments")


def reconcile(analysis: Analysis) -> ReconciliationFinding:
    """Compare what TCP says of each flow with what was counted."""
    totals, seen = analysis.of(TCP_TOTALS), {flow.flow_id: flow for flow in analysis.of(SEEN_FLOWS)}
    return ReconciliationFinding(
        seen=seen,
        totals=totals,
        gaps=differences(totals),
        late=_late(analysis),
        unrecorded_bytes=_unrecorded(totals, seen, analysis),
        unread=_unread(totals, seen, analysis),
        recorded=analysis.meta.schema_version >= _TOTALS_SINCE,
        links=analysis.of(LINKS),
        beyond_report=any(host.left_out_ns > 0 for host in analysis.evidence.hosts),
    )


def _late(analysis: Analysis) -> Mapping[int, tuple[int, int]]:
    """Return what had moved in the flows that were adopted while the recording ran."""
    if analysis.evidence.is_recent:  # a window has no beginning of its own
        return {}
    flows = analysis.evidence.table("flows")
    names = ("flow_id", "adopted_ns", "earlier_sent_bytes", "earlier_received_bytes")
    flow, adopted_ns, sent, received = (int64_column(flows, name) for name in names)
    late = np.flatnonzero((adopted_ns > analysis.meta.started_ns) & (sent + received > 0))
    amounts = zip(sent[late].tolist(), received[late].tolist(), strict=True)
    return dict(zip(flow[late].tolist(), amounts, strict=True))


def _unrecorded(totals: TcpTotals, seen: Mapping[int, FlowSummary], analysis: Analysis) -> Int64 | None:
    """Return what was counted of each flow until its totals were read, and came into no row."""
    if not _is_whole(analysis):
        return None
    outside = analysis.of(OUTSIDE)
    missing = np.zeros(len(totals), np.int64)
    for direction, side, counted in ((TRANSMIT, "tx", "counted_sent_bytes"), (RECEIVE, "rx", "counted_received_bytes")):
        rows = [
            (_payload(getattr(seen[flow], side)) if flow in seen else 0) + outside.get((flow, direction), 0)
            for flow in totals.flow_id.tolist()
        ]
        missing += np.maximum(getattr(totals, counted) - np.array(rows, np.int64), 0)
    return missing


def _payload(side: FlowSide) -> int:
    return side.payload_bytes + side.retransmitted_bytes


def _is_whole(analysis: Analysis) -> bool:
    """Tell whether all rows of one recorder are here, from its start to its end, and no others."""
    evidence, meta = analysis.evidence, analysis.meta
    is_changed = len(evidence.hosts) > 1 or any(probe.name == "capture" for probe in meta.probes_started)
    is_cut = evidence.is_recent or evidence.still_recording or evidence.truncated or bool(evidence.damage)
    return meta.schema_version >= _OUTSIDE_SINCE and meta.stopped_ns is not None and not is_changed and not is_cut


def _unread(totals: TcpTotals, seen: Mapping[int, FlowSummary], analysis: Analysis) -> Sequence[int]:
    """Return the flows that moved a byte and have no totals; while a recording goes on they may still come."""
    if analysis.evidence.is_recent or analysis.evidence.still_recording:
        return ()
    moved = {flow.flow_id for flow in seen.values() if flow.tx.payload_bytes + flow.rx.payload_bytes}
    return sorted(moved - set(totals.flow_id.tolist()))
