"""Horovod: where the time goes in which something is enqueued and not done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netprof.analysis.declared import Column, plain, put_together, share_of, table
from netprof.analysis.definitions import HOROVOD as DEFINITION
from netprof.analysis.events.horovod import HorovodSummary, horovod_summaries
from netprof.analysis.form import Part
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
    processes = put_together((part.processes for part in parts), lambda each: each.pid)
    return HorovodFinding(tuple(sorted(processes, key=lambda each: each.pid)), whole.evidence.ranks)


def _parts(finding: HorovodFinding) -> Sequence[Part]:
    about = "share of the time in which something is enqueued and not done"
    columns = (Column("rank", lambda each: finding.ranks.get(each.pid), none="?"), *_COLUMNS)
    return [Part("Horovod", about, [table(columns, finding.processes)])] if finding.processes else ()


def _stage(heading: str, name: str, goes: int = 0) -> Column:
    return Column(heading, lambda each: share_of(getattr(each, name), each.outstanding_ns), share, "-", goes=goes)


_COLUMNS = (
    Column("enqueued", "enqueued", goes=1),
    Column("responses", "responses"),
    Column("tensors each", "tensors_per_response", "{:.1f}".format, "-", goes=2),
    _stage("negotiating", "negotiating_ns"),
    _stage("packing", "packing_ns", goes=4),
    _stage("transfer", "transferring_ns"),
    _stage("unpacking", "unpacking_ns", goes=3),
)

HOROVOD = Section(
    "horovod",
    _conclude,
    ("marks",),
    lambda finding: {"horovod": plain(finding.processes)},
    _parts,
    definitions=lambda finding: (DEFINITION,) if finding.processes else (),
    merge=_merge,
)
