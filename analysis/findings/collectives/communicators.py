"""NCCL's communicators as its RAS tells of them: who is in which, who is missing, who is behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.definitions import COMMUNICATORS as DEFINITION
from netprof.analysis.evidence import Evidence
from netprof.analysis.form import Grid, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import concatenate
from netprof.analysis.tables.nccl_ranks import NcclRanks, read_nccl_ranks
from netprof.schema import UNKNOWN_RANK, NcclRankState

MOST_COMMUNICATORS, BRIEFLY = 100, 8
"""Communicators in the table, and where there is little room."""

_NAMED = 4
_GONE = (NcclRankState.MISSING, NcclRankState.DEAD)
_WORDS = {
    NcclRankState.RUNNING: "running",
    NcclRankState.BEGINNING: "beginning",
    NcclRankState.ENDING: "ending",
    NcclRankState.FAILED: "failed",
    NcclRankState.MISSING: "missing",
    NcclRankState.DEAD: "dead",
    NcclRankState.UNKNOWN: "unknown",
}


@dataclass(frozen=True)
class Member:
    """A rank of a communicator: where it runs (`pid`: the process of the job here, None elsewhere) and how it is."""

    rank: int
    host: str
    process: int | None
    pid: int | None
    state: str
    collectives: int


@dataclass(frozen=True)
class Communicator:
    """A communicator of `size` ranks, of which `members` were told; those `behind` have enqueued fewer collectives."""

    name: str
    size: int
    members: tuple[Member, ...]
    missing: tuple[int, ...]
    failed: tuple[int, ...]
    behind: tuple[int, ...]
    most_collectives: int | None


@dataclass(frozen=True, eq=False)
class CommunicatorsFinding:
    """What was said last of every rank, and every communicator, the largest first."""

    last: NcclRanks
    communicators: tuple[Communicator, ...]


def _conclude(analysis: Analysis) -> CommunicatorsFinding:
    return _of(read_nccl_ranks(analysis.evidence.table("nccl_ranks")).latest())


def communicators_of(evidence: Evidence) -> tuple[Communicator, ...]:
    """Return the communicators in the answers of NCCL's RAS, the largest first; none without an answer."""
    return _of(read_nccl_ranks(evidence.table("nccl_ranks")).latest()).communicators


def _merge(parts: Sequence[CommunicatorsFinding], whole: Analysis) -> CommunicatorsFinding:
    return _of(concatenate(NcclRanks, [part.last for part in parts if len(part.last)]).latest())


def _of(last: NcclRanks) -> CommunicatorsFinding:
    found = [_communicator(last.where(last.communicator == name)) for name in dict.fromkeys(last.communicator.tolist())]
    return CommunicatorsFinding(last, tuple(sorted(found, key=lambda each: (-each.size, each.name))))


def _communicator(rows: NcclRanks) -> Communicator:
    name, size = str(rows.communicator[0]), int(rows.size.max())
    rows = rows.where(rows.rank != UNKNOWN_RANK)
    gone = np.isin(rows.state, _GONE)
    counts = rows.collectives[~gone]
    most = int(counts.max()) if len(counts) else None
    members = tuple(_member(rows, row) for row in range(len(rows)))
    return Communicator(
        name,
        size,
        members,
        missing=tuple(rows.rank[gone].tolist()),
        failed=tuple(rows.rank[rows.state == NcclRankState.FAILED].tolist()),
        behind=tuple(rows.rank[~gone & (rows.collectives < (most or 0))].tolist()),
        most_collectives=most,
    )


def _member(rows: NcclRanks, row: int) -> Member:
    return Member(
        int(rows.rank[row]),
        str(rows.host[row]),
        int(rows.process[row]) or None,
        int(rows.pid[row]) or None,
        _WORDS[NcclRankState(int(rows.state[row]))],
        int(rows.collectives[row]),
    )


def _document(finding: CommunicatorsFinding) -> dict[str, Any]:
    return {"nccl_communicators": [dataclasses.asdict(each) for each in finding.communicators]}


def _parts(finding: CommunicatorsFinding) -> Iterator[Part]:
    if not finding.communicators:
        return
    headings = ("communicator", "ranks", "told", "missing", "failed", "collectives", "behind")
    rows = [_row(each) for each in finding.communicators[:MOST_COMMUNICATORS]]
    left = frozenset({"missing", "failed", "behind"})
    grid = Grid(headings, rows, left, ("failed", "told"), brief=BRIEFLY, total=len(finding.communicators))
    yield Part("NCCL's communicators", "as NCCL's RAS said last", [grid])


def _row(each: Communicator) -> tuple[str, ...]:
    return (
        each.name.partition(":")[0],
        str(each.size),
        str(len(each.members)),
        _some(each.missing),
        _some(each.failed),
        "-" if each.most_collectives is None else str(each.most_collectives),
        _some(each.behind),
    )


def _some(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return ", ".join(map(str, ranks[:_NAMED])) + more if ranks else "-"


def _notes(finding: CommunicatorsFinding) -> Iterator[str]:
    for each in finding.communicators:
        gone = [member for member in each.members if member.rank in each.missing]
        if gone:
            who = ", ".join(f"{one.rank} ({_where(one)})" for one in gone[:_NAMED])
            more = f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
            yield f"NCCL misses ranks of a communicator of {each.size}: {who}{more} did not answer it"


def _where(member: Member) -> str:
    if not member.process:
        return member.state
    return f"{member.state}, process {member.process} on {member.host}"


COMMUNICATORS = Section(
    "communicators",
    _conclude,
    ("nccl_ranks",),
    _document,
    lambda finding: tuple(_parts(finding)),
    _notes,
    lambda finding: (DEFINITION,) if finding.communicators else (),
    merge=_merge,
)
