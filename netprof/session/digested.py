"""The report of a job from digests, and traces that digests are made of on the way."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from netprof.analysis.digest.apart import (
    all_streams,
    apart_part,
    apart_together,
    conclude_apart,
    reference_of,
    streams_part,
)
from netprof.analysis.digest.conclude import Sums, all_sums, conclude_part, sums_of, with_doings
from netprof.analysis.digest.opened import Source, open_digest, read_did
from netprof.analysis.digest.part import TABLES, Part, part_of, together
from netprof.analysis.digest.passages import clocks_between
from netprof.analysis.digest.report import report_of
from netprof.analysis.digest.report_apart import report_apart
from netprof.analysis.tables.columns import Int64
from netprof.errors import TraceError, UsageError
from netprof.session.cluster import Workers, workers
from netprof.trace.digest import DigestPlace, made_name, made_together

if TYPE_CHECKING:
    from netprof.analysis import Analysis

T = TypeVar("T")


def analyze_digests(
    sources: Sequence[Source], *, baseline_s: float | None = None, scheduler: str | None = None
) -> Analysis:
    """Return what the digests of a job's hosts say; `scheduler` is the address of a Dask cluster that does the work.

    Raises TraceError for digests that cannot be put together, UsageError, NetprofError.
    """
    with _believable(), workers(scheduler, len(sources)) as team:
        if not _were_made_together(sources):
            numbered = list(enumerate(sources))
            clocks = team.reduce(numbered, streams_part, all_streams, clocks_between)
            apart = partial(apart_part, reference=reference_of(sources[0]), clocks=clocks)
            conclude = partial(conclude_apart, baseline_s=baseline_s)
            return report_apart(team.reduce(numbered, apart, apart_together, conclude))
        found = team.reduce(sources, read_part, together, partial(conclude_part, baseline_s=baseline_s))
        if found.asked:
            found = with_doings(found, _sums(team, sources, [each.rows for each in found.asked]))
        return report_of(found)


@contextmanager
def _believable() -> Iterator[None]:
    """Turn what digests fail by whose numbers were made up, one by one each possible, into a TraceError."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise TraceError(
            "the digests are damaged: what they say together cannot be", "make them again from the traces"
        ) from error


def on_hosts(sources: Sequence[Source], names: Collection[str]) -> list[Source]:
    """Return the digests of some hosts, by the names of their folders. Raises UsageError for one that there is not."""
    known = {name: [each for each in sources if _name(each) == f"host={made_name(name)}"] for name in names}
    for name, found in known.items():
        if not found:
            raise UsageError(f"no digest is of a host '{name}'", "name one as the folder host=NAME does")
    return [each for found in known.values() for each in found]


def _name(source: Source) -> str:
    return source.host.name if isinstance(source, DigestPlace) else source.name


def _were_made_together(sources: Sequence[Source]) -> bool:
    """Say whether all are digests of one making."""
    jobs = {each.job if isinstance(each, DigestPlace) else None for each in sources}
    job = next(iter(jobs))
    return len(jobs) == 1 and job is not None and len(made_together(job)) == 1


def _sums(team: Workers, sources: Sequence[Source], asked: Sequence[Int64]) -> Sums:
    return team.reduce(sources, partial(sums_part, asked=asked), all_sums, same)


def read_part(source: Source) -> Part:
    """Return what one host adds to the report. Raises TraceError."""
    return part_of(open_digest(source, TABLES))


def sums_part(source: Source, asked: Sequence[Int64]) -> Sums:
    """Return what the processes of one host did in the iterations that are asked about. Raises TraceError."""
    return sums_of(read_did(source), asked)


def same(found: T) -> T:
    """Return what is given: a function that every process knows by its name."""
    return found
