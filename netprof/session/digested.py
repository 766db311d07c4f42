"""The report of a job from digests, and traces that digests are made of on the way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from netprof.analysis.digest.apart import (
    Reference,
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
from netprof.session.cluster import Work, Workers, workers
from netprof.session.left_out import LeftOut, reduce_readable
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
            return _made_apart(team, sources, baseline_s)
        conclude = partial(conclude_part, baseline_s=baseline_s)
        found, left_out = reduce_readable(team, sources, Work(read_part, together, conclude))
        if found.asked:
            gone = [each.item for each in left_out]
            readable = [source for source in sources if source not in gone]
            found = with_doings(found, _sums(team, readable, [each.rows for each in found.asked]))
        return report_of(found, _sentences(left_out))


def _made_apart(team: Workers, sources: Sequence[Source], baseline_s: float | None) -> Analysis:
    """Return what digests say that were made each alone: the first that can be read has the clock of all."""
    reference, left_out = _first_reference(sources)
    numbered = list(enumerate(sources[len(left_out) :]))
    clocks, without_streams = reduce_readable(team, numbered, Work(streams_part, all_streams, clocks_between))
    gone = {each.item[0] for each in without_streams}
    readable = [each for each in numbered if each[0] not in gone]
    one = partial(apart_part, reference=reference, clocks=clocks)
    conclude = partial(conclude_apart, baseline_s=baseline_s)
    found, without_tables = reduce_readable(team, readable, Work(one, apart_together, conclude))
    return report_apart(found, _sentences((*left_out, *without_streams, *without_tables)))


def _first_reference(sources: Sequence[Source]) -> tuple[Reference, list[LeftOut]]:
    """Return the first digest's host that can be read, and those before it. Raises TraceError where none can."""
    left_out: list[LeftOut] = []
    for source in sources:
        try:
            return reference_of(source), left_out
        except TraceError as error:
            left_out.append(LeftOut(source, error.message, error.hint))
    raise TraceError(left_out[0].message, left_out[0].hint)


def _sentences(left_out: Iterable[LeftOut]) -> tuple[str, ...]:
    return tuple(f"{each.message}; {each.hint}" if each.hint else each.message for each in left_out)


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
    return team.reduce(sources, Work(partial(sums_part, asked=asked), all_sums, same))


def read_part(source: Source) -> Part:
    """Return what one host adds to the report. Raises TraceError."""
    return part_of(open_digest(source, TABLES))


def sums_part(source: Source, asked: Sequence[Int64]) -> Sums:
    """Return what the processes of one host did in the iterations that are asked about. Raises TraceError."""
    return sums_of(read_did(source), asked)


def same(found: T) -> T:
    """Return what is given: a function that every process knows by its name."""
    return found
