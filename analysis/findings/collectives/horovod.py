"""Horovod: where the time goes in which something is enqueued and not done."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netprof.analysis.definitions import HOROVOD as DEFINITION
from netprof.analysis.events.horovod import HorovodSummary, horovod_summaries
from netprof.analysis.form import Grid, Part
from netprof.analysis.section import Analysis, Section
from netprof.units import share


@dataclass(frozen=True)
class HorovodFinding:
    """What each process did, and its rank, by pid, where one is known."""

    processes: tuple[HorovodSummary, ...]
    ranks: Mapping[int, int]


def _conclude(analysis: Analysis) -> HorovodFinding:
    return HorovodFinding(horovod_summaries(analysis.evidence.marks, analysis.evidence.piece), analysis.evidence.ranks)


def _merge(parts: Sequence[HorovodFinding], whole: Analysis) -> HorovodFinding:
    found: dict[int, HorovodSummary] = {}
    for each in (each for part in parts for each in part.processes):
        found[each.pid] = found[each.pid] + each if each.pid in found else each
    return HorovodFinding(tuple(found[pid] for pid in sorted(found)), whole.evidence.ranks)


def _document(finding: HorovodFinding) -> dict[str, Any]:
    return {"horovod": [dataclasses.asdict(process) for process in finding.processes]}


def _parts(finding: HorovodFinding) -> Sequence[Part]:
    if not finding.processes:
        return ()
    rows = [(str(finding.ranks.get(each.pid, "?")), *_row(each)) for each in finding.processes]
    headings = ("rank", "enqueued", "responses", "tensors each", "negotiating", "packing", "transfer", "unpacking")
    grid = Grid(headings, rows, optional=("enqueued", "tensors each", "unpacking", "packing"))
    return [Part("Horovod", "share of the time in which something is enqueued and not done", [grid])]


def _row(each: HorovodSummary) -> tuple[str, ...]:
    stages = (each.negotiating_ns, each.packing_ns, each.transferring_ns, each.unpacking_ns)
    whole = each.outstanding_ns
    fused = f"{each.tensors_per_response:.1f}" if each.tensors_per_response is not None else "-"
    parts = (share(stage / whole) if whole else "-" for stage in stages)
    return (str(each.enqueued), str(each.responses), fused, *parts)


HOROVOD = Section(
    "horovod",
    _conclude,
    ("marks",),
    _document,
    _parts,
    definitions=lambda finding: (DEFINITION,) if finding.processes else (),
    merge=_merge,
)
