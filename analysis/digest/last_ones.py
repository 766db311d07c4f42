"""Last arrivals to the collectives of a job, of whose hosts there are digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.account.episodes import MATTERS
from netprof.analysis.digest.job_iterations import JobIterations
from netprof.analysis.digest.made_from import no_digest
from netprof.analysis.form import Grid, Part
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


def _document(found: LastOnes) -> Mapping[str, Any]:
    return {
        "last_ones": {
            "iterations": found.iterations,
            "unsure": found.unsure,
            "ranks": [
                {
                    "rank": each.rank,
                    "host": each.host,
                    "iterations": each.iterations,
                    "matters": each.matters,
                    "late_s": each.late_ns / 1e9,
                }
                for each in found.ranks
            ],
        }
    }


def _parts(found: LastOnes) -> Sequence[Part]:
    if not found.ranks:
        return ()
    rows = [
        (
            f"rank {each.rank}" if each.rank is not None else "?",
            each.host,
            share(each.iterations / found.iterations),
            str(each.matters),
            duration(each.late_ns / 1e9),
        )
        for each in found.ranks[:_BRIEF]
    ]
    about = f"of {count(found.iterations, 'iteration')}; in {found.unsure} the clocks do not tell who"
    grid = Grid(("who", "host", "is the last in", "by much in", "late by, in all"), rows, frozenset({"host"}))
    return [Part("Last arrivals", about, [replace(grid, total=len(found.ranks))])]


LAST_ONES: Section[LastOnes] = Section("last ones", no_digest, document=_document, parts=_parts)
"""Last arrivals to the collectives of the job, by digests."""


def last_ones(found: JobIterations) -> LastOnes:
    """Return who comes last how often; where there are only launches, that is not known."""
    if found.world.bounded:
        return LastOnes((), 0, 0)
    arrived, windows = found.arrivals, found.world.windows
    iteration_ns = windows.end_ns - windows.begin_ns
    sure = arrived.where(arrived.pid >= 0)
    matters = sure.late_ns >= MATTERS * iteration_ns[sure.iteration]
    hosts = found.hosts.values()
    names = {pid: (rank, host.host.name) for host in hosts for pid, rank in host.told_ranks.items()}
    ranks = []
    for pid in np.unique(sure.pid).tolist():
        own = sure.pid == pid
        late_ns = int(sure.late_ns[own & matters].sum())
        rank, host = names.get(pid, (None, ""))
        ranks.append(LastOne(rank, host, int(own.sum()), int((own & matters).sum()), late_ns))
    ranks.sort(key=lambda each: (-each.late_ns, -each.iterations))
    return LastOnes(tuple(ranks), len(windows), len(arrived) - len(sure))
