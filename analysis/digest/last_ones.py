"""Last arrivals to the collectives of a job, of whose hosts there are digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.account.episodes import MATTERS
from netprof.analysis.declared import Column, json_of, table
from netprof.analysis.digest.job_iterations import JobIterations
from netprof.analysis.digest.made_from import no_digest
from netprof.analysis.form import Part
from netprof.analysis.section import Section
from netprof.units import count, duration, share

_BRIEF = 16


@dataclass(frozen=True)
class LastOne:
    """A rank that was surely the last to ask for a collective in `iterations` iterations.

    In those where that matters, `matters` in number, it came `late_ns` later than the last but one, all together.
    """

    rank: int | None
    host: str
    iterations: int
    matters: int
    late_ns: int


@dataclass(frozen=True)
class LastOnes:
    """Those that came last, the latest first; of `iterations` looked at, in `unsure` the clocks do not tell who."""

    ranks: tuple[LastOne, ...]
    iterations: int
    unsure: int


def _document(finding: LastOnes) -> Mapping[str, Any]:
    ranks = [json_of(each, "rank host iterations matters late_s") for each in finding.ranks]
    return {"last_ones": json_of(finding, "iterations unsure", ranks=ranks)}


def _parts(finding: LastOnes) -> Sequence[Part]:
    if not finding.ranks:
        return ()
    about = f"of {count(finding.iterations, 'iteration')}; in {finding.unsure} the clocks do not tell who"
    columns = (
        Column("who", "rank", write=lambda rank: f"rank {rank}", none="?"),
        Column("host", "host", left=True),
        Column("is the last in", lambda row: row.iterations / finding.iterations, write=share),
        Column("by much in", "matters"),
        Column("late by, in all", lambda row: row.late_ns / 1e9, write=duration),
    )
    return [Part("Last arrivals", about, [table(columns, finding.ranks, most=_BRIEF)])]


LAST_ONES: Section[LastOnes] = Section("last ones", no_digest, document=_document, parts=_parts)
"""Last arrivals to the collectives of the job, by digests."""


def last_ones(job: JobIterations) -> LastOnes:
    """Return who comes last how often; where there are only launches, that is not known."""
    if job.world.bounded:
        return LastOnes((), 0, 0)
    arrived, windows = job.arrivals, job.world.windows
    iteration_ns = windows.end_ns - windows.begin_ns
    sure = arrived.where(arrived.pid >= 0)
    matters = sure.late_ns >= MATTERS * iteration_ns[sure.iteration]
    hosts = job.hosts.values()
    names = {pid: (rank, host.host.name) for host in hosts for pid, rank in host.told_ranks.items()}
    ranks = []
    for pid in np.unique(sure.pid).tolist():
        rows = sure.pid == pid
        late_ns = int(sure.late_ns[rows & matters].sum())
        rank, host = names.get(pid, (None, ""))
        ranks.append(LastOne(rank, host, int(rows.sum()), int((rows & matters).sum()), late_ns))
    ranks.sort(key=lambda each: (-each.late_ns, -each.iterations))
    return LastOnes(tuple(ranks), len(windows), len(arrived) - len(sure))
