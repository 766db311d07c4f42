"""NCCL's communicators as its RAS tells of them: who is in which, who is missing, who is behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.declared import Column, plain, table
from netprof.analysis.definitions import COMMUNICATORS as DEFINITION
from netprof.analysis.evidence import Evidence
from netprof.analysis.form import Part
from netprof.analysis.section import Section
from netprof.analysis.tables.columns import concatenate
from netprof.analysis.tables.nccl_ranks import NcclRanks, read_nccl_ranks
from netprof.schema import UNKNOWN_RANK, NcclRankState
from netprof.units import listed

MOST_COMMUNICATORS, BRIEFLY = 100, 8
"""Communicators in the table, and where there is little room."""

_NAMED = 4
_GONE = (NcclRankState.MISSING, NcclRankState.DEAD)


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


def communicators_of(evidence: Evidence) -> tuple[Communicator, ...]:
    """Return the communicators in the answers of NCCL's RAS, the largest first; none without an answer."""
    return _of(read_nccl_ranks(evidence.table("nccl_ranks")).latest()).communicators


def _of(last: NcclRanks) -> CommunicatorsFinding:
    known = [_communicator(last.where(last.communicator == name)) for name in dict.fromkeys(last.communicator.tolist())]
    return CommunicatorsFinding(last, tuple(sorted(known, key=lambda each: (-each.size, each.name))))


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
        NcclRankState(int(rows.state[row])).name.lower(),
        int(rows.collectives[row]),
    )


def _parts(finding: CommunicatorsFinding) -> Sequence[Part]:
    grid = table(_COLUMNS, finding.communicators, MOST_COMMUNICATORS, brief=BRIEFLY)
    return [Part("NCCL's communicators", "as NCCL's RAS said last", [grid])] if finding.communicators else ()


def _some(ranks: Sequence[int]) -> str:
    return listed(ranks, _NAMED) or "-"


_COLUMNS = (
    Column("communicator", lambda each: each.name.partition(":")[0]),
    Column("ranks", "size"),
    Column("told", lambda each: len(each.members), goes=2),
    Column("missing", "missing", _some, left=True),
    Column("failed", "failed", _some, left=True, goes=1),
    Column("collectives", "most_collectives", none="-"),
    Column("behind", "behind", _some, left=True),
)


def _notes(finding: CommunicatorsFinding) -> Iterator[str]:
    for each in finding.communicators:
        gone = [f"{one.rank} ({_where(one)})" for one in each.members if one.rank in each.missing]
        if gone:
            yield f"NCCL misses ranks of a communicator of {each.size}: {listed(gone, _NAMED)} did not answer it"


def _where(member: Member) -> str:
    if not member.process:
        return member.state
    return f"{member.state}, process {member.process} on {member.host}"


COMMUNICATORS = Section(
    "communicators",
    lambda analysis: _of(read_nccl_ranks(analysis.evidence.table("nccl_ranks")).latest()),
    ("nccl_ranks",),
    lambda finding: {"nccl_communicators": plain(finding.communicators)},
    _parts,
    _notes,
    lambda finding: (DEFINITION,) if finding.communicators else (),
    merge=lambda parts, whole: _of(concatenate(NcclRanks, [part.last for part in parts if len(part.last)]).latest()),
)
