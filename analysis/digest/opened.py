"""A digest as it lies on disk, and one that is made of a trace on the way: whoever asks sees no difference."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from netprof.analysis.digest.digest import Digest, HostPart, Tables
from netprof.analysis.digest.fits import unfit
from netprof.analysis.digest.gather import GATHERED
from netprof.analysis.digest.passages import sample
from netprof.analysis.digest.spans import SpanSet, What
from netprof.analysis.digest.take import digest_of, with_waiting_of_job
from netprof.analysis.hosts.joined import JoinedReader
from netprof.analysis.section import Analysis
from netprof.analysis.sections import analyze
from netprof.analysis.tables.columns import Columns, empty
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


@lru_cache(maxsize=16)
def digest_of_trace(trace: Path) -> Digest:
    """Return the digest of the trace of one host, which is named by the trace's place. Raises TraceError."""
    return digest_of_recording(reader_of(trace))


def digest_of_recording(reader: TraceSource) -> Digest:
    """Return the digest of the recording of one host. Raises TraceError."""
    return digest_of(analyze(reader, more=(GATHERED,)), sample(reader))


def digests_of(analysis: Analysis, reader: TraceSource) -> list[Digest]:
    """Return the digest of each host of a recording, of which GATHERED was concluded too. Raises TraceError."""
    if not isinstance(reader, JoinedReader):
        return [digest_of(analysis, sample(reader))]
    pairs, gathered = zip(analysis.evidence.hosts, reader.readers, strict=True), analysis.of(GATHERED)
    return [with_waiting_of_job(digest_of_recording(own), host, gathered) for host, own in pairs]


def plain_part(host: HostPart) -> dict[str, Any]:
    """Return what a digest says of its host as the document that is written."""
    return {"schema": DIGEST_SCHEMA, **to_plain(host)}


def _document(path: Path) -> HostPart:
    document = read_json(path)
    try:
        found = from_plain(HostPart, document)
        _check(found)
        return found
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        raise TraceError(f"{path} is damaged: {error}", "make the digest again from its trace") from error


def _check(host: HostPart) -> None:
    """Raise ValueError for what fits its kinds and is said of no host all the same."""
    _require(all(each.past is None or each.past.changes for each in host.links), "links")
    _require(host.span_ns[0] <= host.span_ns[1], "time")
    _require(all(_can_be(each, len(host.links)) for each in host.spans), "sets of time")
    _require(host.made.isalnum(), "making")


def _can_be(found: SpanSet, links: int) -> bool:
    """Say whether there can be such a set of time in a digest of so many links."""
    of_link = found.what in (What.FULL, What.OTHERS)
    fits = 0 <= found.link < links and found.direction in (TRANSMIT, RECEIVE) if of_link else found.link == -1
    return found.what in What.__members__.values() and fits


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
