"""Whether all that the job moved was seen: TCP's own totals of every flow, and the devices' counters, beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from netprof.analysis.declared import Column, table
from netprof.analysis.definitions import RECONCILIATION as DEFINITION
from netprof.analysis.findings.flows.seen_flows import SEEN_FLOWS, FlowSide, FlowSummary
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.form import Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import Int64, concatenate, int64_column
from netprof.analysis.tables.totals import Differences, TcpTotals, differences, last_of_each, last_totals
from netprof.schema import RECEIVE, TRANSMIT
from netprof.units import count, size

MOST_FLOWS = 200
_TOTALS_SINCE = 3
"""The schema version that brought TCP's totals."""
_OUTSIDE_SINCE = 4
"""The schema version that says what was counted before the recording began and after its end."""


TCP_TOTALS = Section(
    "TCP's totals",
    lambda analysis: last_totals(analysis.evidence.table("totals")),
    ("totals",),
    merge=lambda parts, whole: last_of_each(concatenate(TcpTotals, list(parts))),
)
"""The last totals of each flow."""


def _read_outside(analysis: Analysis) -> Mapping[tuple[int, int], int]:
    table = analysis.evidence.table("outside")
    names = ("flow_id", "direction", "payload_bytes", "retransmitted_bytes")
    flow, direction, new, again = (int64_column(table, name).tolist() for name in names)
    return {(f, d): n + a for f, d, n, a in zip(flow, direction, new, again, strict=True)}


OUTSIDE = Section(
    "outside",
    _read_outside,
    ("outside",),
    merge=lambda parts, whole: {key: amount for part in parts for key, amount in part.items()},
)
"""Payload, what was sent again included, that was counted outside of the recording's time, by flow and direction."""


@dataclass(frozen=True, eq=False)
class ReconciliationFinding:
    """The last totals of the flows of the trace, and what they hold beyond what was counted.

    `unread` are the ids of flows that moved bytes but whose totals were never read. `late` is what TCP had sent and
    received in those that were adopted while the recording ran, by flow: in no bin, and some of it perhaps moved before
    the recording. `unrecorded_bytes`, in the order of the totals, were counted in the kernel and are in no row; None
    where the trace is not all that one recorder wrote. `recorded` is False for a trace that has no totals at all.
    `beyond_report` explains totals that cover more time than the report: hosts recorded different times, or a ring has
    deleted its oldest parts.
    """

    seen: Mapping[int, FlowSummary]
    totals: TcpTotals
    gaps: Differences
    late: Mapping[int, tuple[int, int]]
    unrecorded_bytes: Int64 | None
    unread: Sequence[int]
    recorded: bool
    links: tuple[LinkSummary, ...]
    beyond_report: str = ""

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
        beyond_report=_beyond_report(analysis),
    )


def _beyond_report(analysis: Analysis) -> str:
    if any(host.left_out_ns > 0 for host in analysis.evidence.hosts):
        return "of all that each host recorded, not only of the time that all did"
    return "of all that was recorded, not only of what was kept" if analysis.meta.trimmed else ""


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
    is_cut = evidence.is_recent or evidence.still_recording or evidence.truncated or evidence.damage or meta.trimmed
    return meta.schema_version >= _OUTSIDE_SINCE and meta.stopped_ns is not None and not is_changed and not is_cut


def _unread(totals: TcpTotals, seen: Mapping[int, FlowSummary], analysis: Analysis) -> Sequence[int]:
    """Return the flows that moved a byte and have no totals; while a recording goes on they may still come."""
    if analysis.evidence.is_recent or analysis.evidence.still_recording:
        return ()
    moved = {flow.flow_id for flow in seen.values() if flow.tx.payload_bytes + flow.rx.payload_bytes}
    return sorted(moved - set(totals.flow_id.tolist()))


def in_words(finding: ReconciliationFinding) -> str:
    """Say in one line how much TCP moved that was not seen, and what else its totals tell."""
    if not finding.recorded:
        return "unknown: an older netprof recorded this, without TCP's own totals"
    gaps, resent = finding.gaps, int(finding.gaps.recovered_resent_bytes.sum())
    packets = int(gaps.recovered_sent_segments.sum() + gaps.recovered_received_segments.sum())
    parts = [
        f"{size(finding.unseen_bytes)}, by TCP's own totals of {count(len(finding.totals), 'flow')}",
        f"{size(finding.beyond_bytes)} counted that TCP did not move" if finding.beyond_bytes else "",
        f"recovered {size(resent)} sent again and {count(packets, 'packet')}" if resent or packets else "",
        f"{size(int(gaps.on_its_way_bytes.sum()))} on its way at the last look" if gaps.on_its_way_bytes.any() else "",
        f"{count(len(finding.unread), 'flow')} could not be read" if len(finding.unread) else "",
        finding.beyond_report,
    ]
    return "; ".join(part for part in parts if part)


def _parts(finding: ReconciliationFinding) -> Sequence[Part]:
    """Return both totals of every flow and device: what a person looks up."""
    if not finding.recorded or not len(finding.totals):
        return [Part("Reconciliation", bodies=[Pairs([("unseen", in_words(finding))])], detail=True)]
    totals, missing = finding.totals, finding.missing_bytes
    order = np.argsort(-(totals.sent_bytes + totals.received_bytes), kind="stable").tolist()
    columns = (
        Column("flow", lambda row: _name(finding, int(totals.flow_id[row]))),
        *(Column(heading, getattr(totals, name).__getitem__, size) for heading, name in _SHOWN),
        Column("unseen", missing.__getitem__, size),
    )
    grids = [table(columns, order, MOST_FLOWS), table(_OF_DEVICES, finding.links)]
    return [Part("Reconciliation", f"unseen: {in_words(finding)}", grids, detail=True)]


_SHOWN = (
    ("sent by TCP", "sent_bytes"),
    ("counted", "counted_sent_bytes"),
    ("sent again", "resent_bytes"),
    ("counted ", "counted_resent_bytes"),
    ("received", "received_bytes"),
    ("counted  ", "counted_received_bytes"),
)
_OF_DEVICES = (
    Column("device", "name"),
    Column("sent", "nic.tx_bytes", size, "?"),
    Column("of it the job's", "nic.job_tx_bytes", size, "?"),
    Column("received", "nic.rx_bytes", size, "?"),
    Column("of it the job's ", "nic.job_rx_bytes", size, "?"),
)


def _name(finding: ReconciliationFinding, flow_id: int) -> str:
    flow = finding.seen.get(flow_id)
    return f"{flow.local} → {flow.remote}" if flow is not None else f"flow {flow_id}"


def _notes(finding: ReconciliationFinding) -> Iterator[str]:
    gaps = finding.gaps
    unseen = int(gaps.unseen_sent_bytes.sum() + gaps.unseen_received_bytes.sum())
    if unseen:
        flows = int(np.count_nonzero(gaps.unseen_sent_bytes + gaps.unseen_received_bytes))
        yield f"{size(unseen)} that TCP moved in {count(flows, 'flow')} went by unseen: they are in no number here"
    if finding.unrecorded_bytes is not None and finding.unrecorded_bytes.any():
        flows, missing = int(np.count_nonzero(finding.unrecorded_bytes)), int(finding.unrecorded_bytes.sum())
        yield (
            f"{size(missing)} of {count(flows, 'flow')} were counted and did not come into the trace: the recorder is "
            "at fault, tell netprof's authors"
        )
    if finding.beyond_bytes:
        yield f"{size(finding.beyond_bytes)} more were counted than TCP says it moved: some are counted twice"
    if finding.unread and finding.recorded:
        yield f"TCP's own totals of {count(len(finding.unread), 'flow')} are not known: neither is what is missing"


def _document(finding: ReconciliationFinding) -> dict[str, Any]:
    return {
        "reconciliation": {
            "holds": finding.holds,
            "beyond_report": bool(finding.beyond_report),
            **_sums(finding),
            "flows": [_flow(finding, index) for index in range(len(finding.totals))],
            "flows_not_read": list(finding.unread) if finding.recorded else None,
            "devices": [_device(link) for link in finding.links],
        }
    }


def _sums(finding: ReconciliationFinding) -> dict[str, Any]:
    """Return the sums over all flows; unknown in a trace that has no totals."""
    gaps, totals = finding.gaps, finding.totals
    sums = {
        "tcp_sent_bytes": totals.sent_bytes,
        "tcp_resent_bytes": totals.resent_bytes,
        "tcp_received_bytes": totals.received_bytes,
        "on_its_way_bytes": gaps.on_its_way_bytes,
        "recovered_resent_bytes": gaps.recovered_resent_bytes,
        "recovered_segments": gaps.recovered_sent_segments + gaps.recovered_received_segments,
    }
    document: dict[str, Any] = {name: int(amounts.sum()) for name, amounts in sums.items()}
    document |= {"unseen_bytes": finding.unseen_bytes, "counted_beyond_bytes": finding.beyond_bytes}
    document["unrecorded_bytes"] = None if finding.unrecorded_bytes is None else int(finding.unrecorded_bytes.sum())
    return document if finding.recorded else dict.fromkeys(document)


_TOTALS = ("sent_bytes", "resent_bytes", "received_bytes", "sent_segments", "received_segments")
_COUNTED = ("sent_bytes", "resent_bytes", "received_bytes", "sent_packets", "received_packets")


def _flow(finding: ReconciliationFinding, index: int) -> dict[str, Any]:
    totals, gaps = finding.totals, finding.gaps
    earlier = finding.late.get(int(totals.flow_id[index]), (0, 0))
    return {
        "flow_id": int(totals.flow_id[index]),
        "closed": bool(totals.closed[index]),
        "settled": bool(totals.settled[index]),
        "tcp": {name: int(getattr(totals, name)[index]) for name in _TOTALS},
        "counted": {name: int(getattr(totals, f"counted_{name}")[index]) for name in _COUNTED},
        **{name: int(getattr(gaps, name)[index]) for name in Differences.__dataclass_fields__},
        "unrecorded_bytes": None if finding.unrecorded_bytes is None else int(finding.unrecorded_bytes[index]),
        "earlier_sent_bytes": earlier[0],
        "earlier_received_bytes": earlier[1],
    }


def _device(link: LinkSummary) -> dict[str, Any]:
    """Return what a device counted itself beside the job's bytes in the same time; None where it was not sampled."""
    amounts: dict[str, Any] = {"device": link.device, "netns": link.netns}
    for way in ("tx", "rx"):
        counted = getattr(link.nic, f"{way}_bytes", None)
        job = getattr(link.nic, f"job_{way}_bytes", None)
        others = counted - job if counted is not None and job is not None else None
        amounts |= {f"{way}_bytes": counted, f"job_{way}_bytes": job, f"difference_{way}_bytes": others}
    return amounts


RECONCILIATION = Section(
    "reconciliation",
    reconcile,
    document=_document,
    parts=_parts,
    notes=_notes,
    definitions=lambda finding: (DEFINITION,) if finding.holds is False else (),
)
