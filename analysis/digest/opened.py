"""A digest as it lies on disk, and one that is made of a trace on the way: whoever asks sees no difference."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Collection
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from netprof.analysis.account.causes import WAIT_CAUSES, Cause
from netprof.analysis.account.held_up import Kind
from netprof.analysis.digest.digest import Did, Digest, HostPart, JobPart, Tables, cause_of
from netprof.analysis.digest.fits import unfit
from netprof.analysis.digest.gather import GATHERED
from netprof.analysis.digest.passages import Sampled, sample
from netprof.analysis.digest.spans import SpanSet, What
from netprof.analysis.digest.take import digests_of
from netprof.analysis.sections import analyze
from netprof.analysis.tables.columns import Columns, empty
from netprof.errors import TraceError
from netprof.schema import RECEIVE, TRANSMIT
from netprof.trace import TraceSource
from netprof.trace.digest import DIGEST_SCHEMA, HOST_FILE, DigestPlace, job_file, read_json, read_table
from netprof.trace.plain import Special, from_plain, to_plain
from netprof.trace.ring import reader_of

_SPECIAL: Special = {Cause: cause_of}
T = TypeVar("T")
C = TypeVar("C", bound=Columns)

Source = DigestPlace | Path
"""A digest, or a trace that one is to be made of."""

EVERY_TABLE = tuple(Tables.__dataclass_fields__)


def open_digest(source: Source, wanted: Collection[str] = EVERY_TABLE) -> Digest:
    """Return the digest of one host, made now where there is only the trace; of tables that are not wanted, no row.

    Raises TraceError.
    """
    if isinstance(source, Path):
        return digest_of_trace(source)
    host = _document(source.host / HOST_FILE, HostPart, _check_host)
    job, tables = job_part(source.job, host.made), _tables(source.host, wanted)
    for what in unfit(job, host, tables, wanted):
        raise TraceError(f"the digest {source.host} is damaged: {what}", "make the digest again from its trace")
    return Digest(job, host, tables)


@lru_cache(maxsize=4)
def job_part(job: Path, made: str) -> JobPart:
    """Return what the hosts have in common that were digested in one go. Raises TraceError."""
    if not made.isalnum():
        raise TraceError(f"a digest in {job} is damaged: it does not say when it was made", "make it again")
    return _document(job / job_file(made), JobPart, _check_job)


@lru_cache(maxsize=16)
def digest_of_trace(trace: Path) -> Digest:
    """Return the digest of the trace of one host alone, which is named by the trace's place. Raises TraceError."""
    reader = reader_of(trace)
    return digests_of(analyze(reader, more=(GATHERED,)), "0" * 16, sample_of(reader))[0]


def sample_of(reader: TraceSource) -> Sampled | None:
    """Return what is kept of the streams of one host; of several that are digested in one go, nothing is needed."""
    meta = reader.meta
    stopped_ns = meta.started_ns + 1 if meta.stopped_ns is None else meta.stopped_ns
    return sample(reader, (meta.started_ns, stopped_ns)) if len(reader.hosts) == 1 else None


def read_did(source: Source) -> Did:
    """Return what the processes of one host did in each iteration. Raises TraceError."""
    return digest_of_trace(source).tables.did if isinstance(source, Path) else _table(source.host, "did", Did)


def plain_part(part: HostPart | JobPart) -> dict[str, Any]:
    """Return a part as the document that is written."""
    return {"schema": DIGEST_SCHEMA, **to_plain(part)}


def _document(path: Path, kind: type[T], check: Callable[[T], None]) -> T:
    document = read_json(path)
    try:
        found = from_plain(kind, document, _SPECIAL)
        check(found)
        return found
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        raise TraceError(f"{path} is damaged: {error}", "make the digest again from its trace") from error


def _check_host(host: HostPart) -> None:
    """Raise ValueError for what fits its kinds and is said of no host all the same."""
    _require(all(thing.kind in Kind.__members__.values() for thing in host.things), "things that hold up")
    waiting = (*host.waiting, *host.surely)
    _require(all(len(each.causes_ns) == len(WAIT_CAUSES) for each in waiting), "causes of waiting")
    _require(all(each.summary.past is None or each.summary.past.changes for each in host.links), "links")
    _require(host.span_ns[0] <= host.span_ns[1], "time")
    _require(all(_can_be(each, len(host.links)) for each in host.spans), "sets of time")


def _can_be(found: SpanSet, links: int) -> bool:
    """Say whether there can be such a set of time in a digest of so many links."""
    of_link = found.what in (What.FULL, What.OTHERS)
    fits = 0 <= found.link < links and found.direction in (TRANSMIT, RECEIVE) if of_link else found.link == -1
    return found.what in What.__members__.values() and fits


def _check_job(job: JobPart) -> None:
    _require(all(0 <= number < len(WAIT_CAUSES) for number, _ in job.blames), "causes of waiting")
    _require(all(len(each.causes_ns) == len(WAIT_CAUSES) for each in job.longest), "causes of waiting")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"its {what} cannot be")


def _tables(folder: Path, wanted: Collection[str]) -> Tables:
    kinds = typing.get_type_hints(Tables)
    found: dict[str, Any] = {
        name: _table(folder, name, kind) if name in wanted else empty(kind) for name, kind in kinds.items()
    }
    return Tables(**found)


def _table(folder: Path, name: str, kind: type[C]) -> C:
    return kind(**read_table(folder, name, columns_of(kind)))


def columns_of(kind: type[Columns]) -> dict[str, type]:
    """Return the columns of a class of tables, and whether they are of whole numbers (int) or not (float)."""
    hints = typing.get_type_hints(kind)
    return {each.name: _number(hints[each.name]) for each in dataclasses.fields(kind)}


def _number(hint: Any) -> type:
    scalar = typing.get_args(typing.get_args(hint)[1])[0]
    return float if np.dtype(scalar).kind == "f" else int
