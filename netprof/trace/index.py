"""Where in a trace the rows of a time lie, so that a part of a long one can be read without the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from netprof.errors import TraceError
from netprof.schema import tables, time_column
from netprof.trace.columns import to_numpy
from netprof.trace.sorted_copy import SortedCopy
from netprof.trace.source import TraceSource

_MOST_READ = 4
"""Times that every row may be read; from there on a sorted copy is worth it."""
_Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Batches:
    """The batches of a table, in the order of the file: where each begins, its rows, and their times' range."""

    offset: _Int64
    rows: _Int64
    first_ns: _Int64
    last_ns: _Int64


class TraceIndex:
    """Knows the times of the batches of every table whose rows have a time; only these columns are read for it."""

    def __init__(self, reader: TraceSource) -> None:
        self.reader = reader
        self.tables = {name: _batches(reader, name, column) for name, column in _timed()}
        self._copies: dict[str, SortedCopy] = {}

    def prepare(self, edges_ns: Sequence[int]) -> None:
        """Make it cheap to read from each of some moments to the next, whatever order the batches are in.

        Raises TraceError where the disk has no room for a copy of a table.
        """
        edges = np.array(edges_ns, np.int64)
        for name, found in self.tables.items():
            spans = np.searchsorted(edges, found.last_ns) - np.searchsorted(edges, found.first_ns) + 1
            if int((spans * found.rows).sum()) > _MOST_READ * int(found.rows.sum()):
                self._copies[name] = self._copy(name, edges_ns)

    def _copy(self, name: str, edges_ns: Sequence[int]) -> SortedCopy:
        try:
            return SortedCopy(self.reader.batches(name), tables()[name], str(time_column(name)), edges_ns)
        except OSError as error:
            raise TraceError(
                f"the rows of table {name} are in no order of time, and cannot be sorted: {error.strerror or error}",
                "make room where temporary files go, or choose another place with TMPDIR",
            ) from error

    def between(self, name: str, begin_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table whose time is in [begin_ns, end_ns), batch by batch."""
        column = str(time_column(name))
        for batch in self._touched(name, begin_ns, end_ns):
            times = _times(batch, column)
            inside = (times >= begin_ns) & (times < end_ns)
            if inside.any():
                yield batch if inside.all() else batch.filter(pa.array(inside))

    def _touched(self, name: str, begin_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        if name in self._copies:
            return self._copies[name].between(begin_ns, end_ns)
        found = self.tables[name]
        touched = (found.first_ns < end_ns) & (found.last_ns >= begin_ns)
        return self.reader.batches_at(name, found.offset[touched].tolist()) if touched.any() else iter(())

    def table(self, name: str, begin_ns: int, end_ns: int) -> pa.Table:
        """Return the rows of a table whose time is in [begin_ns, end_ns)."""
        return pa.Table.from_batches(list(self.between(name, begin_ns, end_ns)), schema=tables()[name])


def _timed() -> Iterator[tuple[str, str]]:
    for name in tables():
        if (column := time_column(name)) is not None:
            yield name, column


def _batches(reader: TraceSource, name: str, column: str) -> Batches:
    found = []
    for offset, batch in reader.places(name, [column]):
        if batch.num_rows:
            times = _times(batch, column)
            found.append((offset, len(times), int(times.min()), int(times.max())))
    columns = np.array(found, np.int64).reshape(-1, 4)
    return Batches(*columns.T)


def _times(batch: pa.RecordBatch, column: str) -> _Int64:
    return to_numpy(batch.column(batch.schema.get_field_index(column)))
