"""How the reconciliation is said: a line for the report, and tables to look things up in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from netprof.analysis.findings.flows.reconciliation_finding import ReconciliationFinding
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.form import Grid, Pairs, Part
from netprof.units import count, size

MOST_FLOWS = 200
_SHOWN = (
    "sent_bytes",
    "counted_sent_bytes",
    "resent_bytes",
    "counted_resent_bytes",
    "received_bytes",
    "counted_received_bytes",
)


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
        "of all that each host recorded, not only of the time that all did" if finding.beyond_report else "",
    ]
    return "; ".join(part for part in parts if part)


def parts(finding: ReconciliationFinding) -> Sequence[Part]:
    """Return both totals of every flow and device: what a person looks up."""
    if not finding.recorded or not len(finding.totals):
        return [Part("Reconciliation", bodies=[Pairs([("unseen", in_words(finding))])], detail=True)]
    headings = ("flow", "sent by TCP", "counted", "sent again", "counted ", "received", "counted  ", "unseen")
    totals = finding.totals
    order = np.argsort(-(totals.sent_bytes + totals.received_bytes), kind="stable")[:MOST_FLOWS].tolist()
    rows = [
        (
            _name(finding, int(finding.totals.flow_id[index])),
            *(size(int(getattr(totals, name)[index])) for name in _SHOWN),
            size(int(finding.missing_bytes[index])),
        )
        for index in order
    ]
    grid = Grid(headings, rows, total=len(totals))
    devices = Grid(
        ("device", "sent", "of it the job's", "received", "of it the job's "),
        [_device_row(link) for link in finding.links],
    )
    return [Part("Reconciliation", f"unseen: {in_words(finding)}", [grid, devices], detail=True)]


def _device_row(link: LinkSummary) -> tuple[str, ...]:
    nic = link.nic
    if nic is None:
        return (link.name, *["?"] * 4)
    return (link.name, *(size(amount) for amount in (nic.tx_bytes, nic.job_tx_bytes, nic.rx_bytes, nic.job_rx_bytes)))


def _name(finding: ReconciliationFinding, flow_id: int) -> str:
    flow = finding.seen.get(flow_id)
    return f"{flow.local} → {flow.remote}" if flow is not None else f"flow {flow_id}"


def notes(finding: ReconciliationFinding) -> Iterator[str]:
    """Say what is missing, and what is not known to be there."""
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
