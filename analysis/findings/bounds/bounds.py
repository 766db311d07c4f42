"""What ranks wait for at least and at most, where no mark tells when what they launch is done: NCCL on GPUs, most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netprof.analysis.bounds.bounded import Bounds
from netprof.analysis.definitions import BOUNDS as DEFINITION
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.bounds.bounds_evidence import at_least, at_most
from netprof.analysis.findings.bounds.bounds_finding import (
    BoundsFinding,
    bounds_notes,
    bounds_parts,
    counted,
    counted_together,
    document_of,
)
from netprof.analysis.findings.recorded import RECORDED
from netprof.analysis.findings.waiting.waiting import in_one, waiting_in
from netprof.analysis.findings.waiting.waiting_finding import NOTHING_WAITED, WaitingFinding
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import concatenate


def _conclude(analysis: Analysis) -> BoundsFinding | None:
    evidence = analysis.evidence
    if not evidence.only_launch:
        return None
    steps = evidence.bounds.rows
    steps = steps.where(evidence.piece.owns(steps.begin_ns))
    least, most = _accounts(evidence) if len(steps) else (NOTHING_WAITED, NOTHING_WAITED)
    return BoundsFinding(
        least=least,
        most=most,
        steps=steps,
        counted=counted(steps.pid, steps.least_ns, steps.most_ns, steps.exact),
        reasons=evidence.bounds.reasons,
        on_gpu=evidence.bounds.on_gpu,
        profiled=evidence.bounds.profiled,
    )


def _accounts(evidence: Evidence) -> tuple[WaitingFinding, WaitingFinding]:
    most = at_most(evidence)
    return waiting_in(at_least(evidence, most), {}), waiting_in(most, {})


def _merge(findings: Sequence[BoundsFinding | None], whole: Analysis) -> BoundsFinding | None:
    parts = [finding for finding in findings if finding is not None]
    if not parts:
        return None
    known = {pid for part in parts for pid in part.counted.of_pid}
    reasons = {pid: reason for part in parts for pid, reason in part.reasons.items() if pid not in known}
    return BoundsFinding(
        least=_sum([part.least for part in parts], whole),
        most=_sum([part.most for part in parts], whole),
        steps=concatenate(Bounds, [part.steps for part in parts]),
        counted=counted_together([part.counted for part in parts]),
        reasons=reasons,
        on_gpu=frozenset().union(*(part.on_gpu for part in parts)),
        profiled=frozenset().union(*(part.profiled for part in parts)),
    )


def _sum(parts: Sequence[WaitingFinding], whole: Analysis) -> WaitingFinding:
    made_of = [part.made_of for part in parts if part.by_rank]
    return in_one(made_of, whole.of(RECORDED).total_ns, {}) if made_of else NOTHING_WAITED


def _document(found: BoundsFinding | None) -> dict[str, Any]:
    return {"waiting_bounds": document_of(found)}


BOUNDS = Section(
    "bounds",
    _conclude,
    ("marks", "wire", "flows", "nic", "tcp", "gpu"),
    _document,
    bounds_parts,
    bounds_notes,
    lambda found: (DEFINITION,) if found is not None and found.is_known else (),
    merge=_merge,
)
