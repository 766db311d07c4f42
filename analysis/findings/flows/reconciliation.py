"""Whether all that the job moved was seen: TCP's own totals of every flow, and the devices' counters, beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netprof.analysis.definitions import RECONCILIATION as DEFINITION
from netprof.analysis.definitions import Definition
from netprof.analysis.findings.flows.reconciliation_finding import OUTSIDE, TCP_TOTALS, ReconciliationFinding, reconcile
from netprof.analysis.findings.flows.reconciliation_form import notes, parts
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.section import Section
from netprof.analysis.tables.totals import Differences


def _document(finding: ReconciliationFinding) -> dict[str, Any]:
    known = {"flows": [_flow(finding, index) for index in range(len(finding.totals))]}
    return {
        "reconciliation": {
            "holds": finding.holds,
            "beyond_report": finding.beyond_report,
            **_sums(finding),
            **known,
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
    found: dict[str, Any] = {name: int(amounts.sum()) for name, amounts in sums.items()}
    found |= {"unseen_bytes": finding.unseen_bytes, "counted_beyond_bytes": finding.beyond_bytes}
    found["unrecorded_bytes"] = None if finding.unrecorded_bytes is None else int(finding.unrecorded_bytes.sum())
    return found if finding.recorded else dict.fromkeys(found)


_TOTALS = (
    "sent_bytes",
    "resent_bytes",
    "received_bytes",
    "sent_segments",
    "received_segments",
)
_COUNTED = (
    "counted_sent_bytes",
    "counted_resent_bytes",
    "counted_received_bytes",
    "counted_sent_packets",
    "counted_received_packets",
)


def _flow(finding: ReconciliationFinding, index: int) -> dict[str, Any]:
    totals, gaps = finding.totals, finding.gaps
    earlier = finding.late.get(int(totals.flow_id[index]), (0, 0))
    return {
        "flow_id": int(totals.flow_id[index]),
        "closed": bool(totals.closed[index]),
        "settled": bool(totals.settled[index]),
        "tcp": {name: int(getattr(totals, name)[index]) for name in _TOTALS},
        "counted": {name.removeprefix("counted_"): int(getattr(totals, name)[index]) for name in _COUNTED},
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


def _definitions(finding: ReconciliationFinding) -> Sequence[Definition]:
    return (DEFINITION,) if finding.holds is False else ()


RECONCILIATION = Section(
    "reconciliation",
    reconcile,
    document=_document,
    parts=parts,
    notes=notes,
    definitions=_definitions,
)
__all__ = ["OUTSIDE", "RECONCILIATION", "TCP_TOTALS"]
