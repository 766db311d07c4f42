"""A recording with profiles of the job's processes beside it, as if the recorder had asked for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from netprof.analysis.hosts.beside import Beside, lay_beside
from netprof.analysis.hosts.dumps import disagreements
from netprof.analysis.hosts.moved import to_reference
from netprof.model import Host, Meta
from netprof.schema import tables
from netprof.trace import TraceSource
from netprof.trace.columns import to_arrow
from netprof.trace.flight import read_flight
from netprof.trace.kineto import Columns, OnRead, profiled_rows, read_kineto

_TABLE = "profiled"


class WithProfiles:
    """What `source` has, and in table `profiled` what profiles say too; its description has what `dumps` say.

    `on_read` is told how many bytes of each profile have been read, and how many it has. Raises TraceError for one of
    another job and for a file that is none.
    """

    def __init__(
        self,
        source: TraceSource,
        profiles: Sequence[Path],
        on_read: OnRead | None = None,
        dumps: Sequence[Path] = (),
    ) -> None:
        self._source = source
        self._meta = _with_dumps(source.meta, dumps)
        found = [read_kineto(path, on_read=on_read) for path in profiles]
        ranks = {target.pid: target.rank for target in source.meta.targets}
        beside = lay_beside(found, source.hosts, ranks)
        self._rows = [_batch(_rows(each)) for each in beside]

    @property
    def path(self) -> Path:
        """Where the recording lies."""
        return self._source.path

    @property
    def meta(self) -> Meta:
        """The recording's description."""
        return self._meta

    @property
    def hosts(self) -> Sequence[Host]:
        """Whose recording it is."""
        return self._source.hosts

    @property
    def still_recording(self) -> bool:
        """Whether a recorder is at work."""
        return self._source.still_recording

    @property
    def truncated(self) -> bool:
        """Whether its end is missing."""
        return self._source.truncated

    @property
    def damage(self) -> Sequence[str]:
        """What no recorder writes."""
        return self._source.damage

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of table `name`."""
        yield from self._source.batches(name)
        if name == _TABLE:
            yield from self._rows

    def places(self, name: str, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield where each batch of table `name` lies in the recording, and some of its columns."""
        return self._source.places(name, columns)

    def batches_at(self, name: str, offsets: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of table `name` that lie at some places of the recording."""
        return self._source.batches_at(name, offsets)

    def table(self, name: str) -> pa.Table:
        """Return table `name` whole."""
        if name != _TABLE:
            return self._source.table(name)
        return pa.Table.from_batches(list(self.batches(name)), schema=tables()[name])


def _with_dumps(meta: Meta, paths: Sequence[Path]) -> Meta:
    """Return a description that tells in what the job's own files disagree. Raises TraceError."""
    if not paths:
        return meta
    dumps = [dump for path in paths for dump in read_flight(path)]
    found = disagreements(dumps)
    said = found or [f"in {len(dumps)} dumps the ranks agree on every operation that several of them have"]
    return replace(meta, warnings=(*meta.warnings, *said), stalled=found[0] if found else meta.stalled)


def _rows(beside: Beside) -> Columns:
    """Return what a profile says, with the job's number of its process, on the job's clock."""
    rows = profiled_rows(beside.kineto, beside.pid, beside.host.meta.clock)
    return rows | {name: to_reference(beside.host.clock, rows[name]) for name in ("first_ns", "last_ns")}


def _batch(rows: Columns) -> pa.RecordBatch:
    schema = tables()[_TABLE]
    return pa.RecordBatch.from_arrays([to_arrow(rows[field.name], field.type) for field in schema], schema=schema)
