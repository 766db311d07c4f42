"""A digest as it lies on disk, and one that is made of a trace on the way: whoever asks sees no difference."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from netprof.analysis.digest.digest import Digest, HostPart, Tables
from netprof.analysis.digest.gather import GATHERED, digest_of, with_waiting_of_job
from netprof.analysis.digest.passages import sample
from netprof.analysis.digest.spans import SpanSet, What
from netprof.analysis.hosts.joined import JoinedReader
from netprof.analysis.hosts.numbers import MOST_PIDS
from netprof.analysis.section import Analysis
from netprof.analysis.sections import analyze
from netprof.analysis.tables.columns import Columns, Int64, empty
from netprof.errors import TraceError
from netprof.schema import RECEIVE, TRANSMIT
from netprof.trace import TraceSource
from netprof.trace.digest import DIGEST_SCHEMA, HOST_FILE, DigestPlace, read_json, read_table
from netprof.trace.plain import from_plain, to_plain
from netprof.trace.ring import reader_of

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
    host, tables = _document(source.host / HOST_FILE), _tables(source.host, wanted)
    for what in unfit(host, tables, wanted):
        raise TraceError(f"the digest {source.host} is damaged: {what}", "make the digest again from its trace")
    return Digest(host, tables)


def digest_of_trace(trace: Path) -> Digest:
    """Return the digest of the trace of one host, which is named by the trace's place. Raises TraceError."""
    meta = reader_of(trace).meta
    return _digest_of(trace, (meta.boot_id, meta.started_ns, meta.stopped_ns))


@lru_cache(maxsize=16)
def _digest_of(trace: Path, recording: object) -> Digest:
    """Return the same; `recording` tells it from what was recorded to that place before: workers of Dask live long."""
    return digest_of_recording(reader_of(trace))


def digest_of_recording(reader: TraceSource) -> Digest:
    """Return the digest of the recording of one host. Raises TraceError."""
    return digest_of(analyze(reader, more=(GATHERED,)), sample(reader))


def digests_of(analysis: Analysis, reader: TraceSource) -> list[Digest]:
    """Return the digest of each host of a recording, of which GATHERED was concluded too. Raises TraceError."""
    if not isinstance(reader, JoinedReader):
        return [digest_of(analysis, sample(reader))]
    pairs, gathered = zip(analysis.evidence.hosts, reader.readers, strict=True), analysis.of(GATHERED)
    return [with_waiting_of_job(digest_of_recording(trace), host, gathered) for host, trace in pairs]


def plain_part(host: HostPart) -> dict[str, Any]:
    """Return what a digest says of its host as the document that is written."""
    return {"schema": DIGEST_SCHEMA, **to_plain(host)}


def _document(path: Path) -> HostPart:
    document = read_json(path)
    try:
        return from_plain(HostPart, document)
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        raise TraceError(f"{path} is damaged: {error}", "make the digest again from its trace") from error


def _can_be(span_set: SpanSet, links: int) -> bool:
    """Say whether there can be such a set of time in a digest of so many links."""
    of_link = span_set.what in (What.FULL, What.OTHERS)
    fits = 0 <= span_set.link < links and span_set.direction in (TRANSMIT, RECEIVE) if of_link else span_set.link == -1
    return span_set.what in What.__members__.values() and fits


def _tables(folder: Path, wanted: Collection[str]) -> Tables:
    kinds = typing.get_type_hints(Tables)
    rows: dict[str, Any] = {
        name: kind(**read_table(folder, name, columns_of(kind))) if name in wanted else empty(kind)
        for name, kind in kinds.items()
    }
    return Tables(**rows)


def columns_of(kind: type[Columns]) -> dict[str, type]:
    """Return the columns of a class of tables, and whether they are of whole numbers (int) or not (float)."""
    hints = typing.get_type_hints(kind)
    return {each.name: _number(hints[each.name]) for each in dataclasses.fields(kind)}


def _number(hint: Any) -> type:
    scalar = typing.get_args(typing.get_args(hint)[1])[0]
    return float if np.dtype(scalar).kind == "f" else int


_ROWS = {
    ("waiting", "window"): "windows",
    ("surely", "window"): "windows",
    ("way_busy", "window"): "windows",
    ("did", "window"): "windows",
}
"""Columns that number the rows of another table."""

_LISTED = {
    ("link_seconds", "link"): "links",
    ("spans", "set"): "spans",
    ("way_busy", "way"): "ways",
}
"""Columns that number what a list of the host's document holds."""

_OF_PROCESSES = ("iterations", "waiting", "surely", "steps", "did", "collectives")


def unfit(host: HostPart, tables: Tables, read: Collection[str]) -> Iterator[str]:
    """Yield what cannot be in the digest of a host; of tables that are not in `read` nothing is known."""
    holds = {
        "links": all(each.past is None or each.past.changes for each in host.links),
        "time": host.span_ns[0] <= host.span_ns[1],
        "sets of time": all(_can_be(each, len(host.links)) for each in host.spans),
        "making": host.made.isalnum(),
    }
    yield from (f"its {what} cannot be" for what, can_be in holds.items() if not can_be)
    counts = {place: len(getattr(tables, table)) for place, table in _ROWS.items() if {place[0], table} <= set(read)}
    counts |= {place: len(getattr(host, listed)) for place, listed in _LISTED.items()}
    for (table, column), count in counts.items():
        if not _within(getattr(getattr(tables, table), column), 0, count):
            yield f"column {column} of table {table} numbers what is not there"
    named = all(-1 <= pid < MOST_PIDS for pid in _pids(host))
    if not (named and all(_within(getattr(tables, each).pid, -1, MOST_PIDS) for each in _OF_PROCESSES)):
        yield "it names processes that no kernel has"
    longest_ns = max(host.span_ns[1] - host.span_ns[0], 0)
    if host.open_waits is not None and not all(0 <= ns <= longest_ns for ns in host.open_waits.waited_ns.values()):
        yield "its processes wait for longer than it recorded"


def _pids(host: HostPart) -> Iterator[int]:
    """Yield the processes that a host's document names; -1 is none."""
    yield from (*host.told_ranks, *host.host.pids, *host.unbounded, *host.on_gpu, *host.profiled)
    yield from (() if host.open_waits is None else host.open_waits.waited_ns)
    for listed in (host.ranks, host.spans, host.ways):
        yield from (each.pid for each in listed)


def _within(numbers: Int64, first: int, end: int) -> bool:
    return len(numbers) == 0 or bool(numbers.min() >= first and numbers.max() < end)
