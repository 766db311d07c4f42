"""What was sent again, flow by flow: where its packets were lost, and how long ranks waited for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.account.causes import LOSS
from netprof.analysis.declared import Column, added, plain, put_together, table
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.links.full_links import within
from netprof.analysis.findings.transport.loss_place import needless_packets, place_of_loss
from netprof.analysis.findings.waiting.open_waits import open_waits
from netprof.analysis.form import Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.intervals import union
from netprof.schema import TRANSMIT
from netprof.units import duration, size

_MOST = 20


@dataclass(frozen=True)
class LostFlow:
    """What a flow sent again, what of it the receiver had already (packets), where it was lost, and what that cost.

    `waited_s` is for how long ranks together waited for loss while this flow recovered.
    """

    flow: str
    resent_bytes: int
    needless_packets: int
    where: str
    advice: str
    waited_s: float


def _conclude(analysis: Analysis) -> tuple[LostFlow, ...]:
    evidence = analysis.evidence
    if evidence.is_recent:
        return ()
    resent, needless = evidence.fold.totals(TRANSMIT).retransmitted_bytes, needless_packets(evidence)
    rows = [row for row in np.argsort(-resent, kind="stable")[:_MOST].tolist() if resent[row]]
    return tuple(_of(evidence, row, int(resent[row]), needless.get(row, (0, 0))) for row in rows)


def _of(evidence: Evidence, row: int, resent_bytes: int, packets: tuple[int, int]) -> LostFlow:
    groups, name = evidence.account.groups.values(), evidence.fold.flows.name(row)
    times = union([group.loss[row] for group in groups if row in group.loss])
    place, needless = place_of_loss(evidence, row, times), packets[1]
    waited_ns = within(times, evidence.account.waiting.of(LOSS))
    if (unclosed := open_waits(evidence)) is not None and unclosed.flow == row:
        waited_ns += unclosed.total_ns
    return LostFlow(name, resent_bytes, needless, place.happened, place.advice, waited_ns / 1e9)


def _merge(parts: Sequence[Sequence[LostFlow]], whole: Analysis) -> tuple[LostFlow, ...]:
    flows = put_together(parts, lambda each: each.flow, _both)
    return tuple(sorted(flows, key=lambda each: -each.resent_bytes)[:_MOST])


def _both(a: LostFlow, b: LostFlow) -> LostFlow:
    """Return both together: of where it was lost, what is known of the longer wait."""
    return replace(b if b.waited_s >= a.waited_s else a, **added((a, b), "resent_bytes needless_packets waited_s"))


def _parts(flows: Sequence[LostFlow]) -> Sequence[Part]:
    waited = any(each.waited_s for each in flows)
    return [Part("Loss", "what was sent again, and what waited for it", [table(_COLUMNS, flows)])] if waited else ()


_COLUMNS = (
    Column("flow", "flow"),
    Column("resent", "resent_bytes", size),
    Column("of it needless", "needless_packets", "{} packets".format),
    Column("ranks waited", "waited_s", duration),
    Column("where", "where", left=True),
)

LOSSES = Section(
    "losses",
    _conclude,
    ("flows", "wire", "tcp", "nic", "drops"),
    lambda flows: {"lost_flows": plain(flows)},
    _parts,
    merge=_merge,
)
