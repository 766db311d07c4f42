"""Where in a trace the rows of a time lie, so that a part of a long one can be read without the rest.

Of a table whose batches are not written in the order of time a copy is made, cut by time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BufferedWriter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from netprof.errors import TraceError
from netprof.files import TemporaryFolder
from netprof.schema import tables, time_column
from netprof.trace.columns import select, to_numpy
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
        timed = {name: column for name in tables() if (column := time_column(name)) is not None}
        self.tables = {name: _batches(reader, name, column) for name, column in timed.items()}
        self._copies: dict[str, SortedCopy] = {}

    def prepare(self, edges_ns: Sequence[int]) -> None:
        """Make it cheap to read from each of some moments to the next, whatever order the batches are in.

        Raises TraceError where the disk has no room for a copy of a table.
        """
        edges = np.array(edges_ns, np.int64)
        for name, batches in self.tables.items():
            spans = np.searchsorted(edges, batches.last_ns) - np.searchsorted(edges, batches.first_ns) + 1
            if int((spans * batches.rows).sum()) > _MOST_READ * int(batches.rows.sum()):
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
                yield batch if inside.all() else select(batch, inside)

    def _touched(self, name: str, begin_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        if name in self._copies:
            return self._copies[name].between(begin_ns, end_ns)
        batches = self.tables[name]
        touched = (batches.first_ns < end_ns) & (batches.last_ns >= begin_ns)
        return self.reader.batches_at(name, batches.offset[touched].tolist()) if touched.any() else iter(())

    def table(self, name: str, begin_ns: int, end_ns: int) -> pa.Table:
        """Return the rows of a table whose time is in [begin_ns, end_ns)."""
        return pa.Table.from_batches(list(self.between(name, begin_ns, end_ns)), schema=tables()[name])


def _batches(reader: TraceSource, name: str, column: str) -> Batches:
    rows = []
    for offset, batch in reader.places(name, [column]):
        if batch.num_rows:
            times = _times(batch, column)
            rows.append((offset, len(times), int(times.min()), int(times.max())))
    return Batches(*np.array(rows, np.int64).reshape(-1, 4).T)


def _times(batch: pa.RecordBatch, column: str) -> _Int64:
    return to_numpy(batch.column(batch.schema.get_field_index(column)))


_SLICE_ROWS = 1 << 16
_MOST_FILES = 64


class SortedCopy:
    """Holds rows in temporary files, one for each span of time, which go with it.

    Raises OSError where there is no room for them.
    """

    def __init__(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, column: str, edges_ns: Sequence[int]
    ) -> None:
        self._column = column
        self._edges = np.array(edges_ns[:: -(-len(edges_ns) // _MOST_FILES)], np.int64)
        self._place = TemporaryFolder()
        options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)
        with ExitStack() as stack:
            files = [
                stack.enter_context(pa.ipc.new_stream(stack.enter_context(self._made(number)), schema, options=options))
                for number in range(len(self._edges) + 1)
            ]
            for batch in batches:
                for row in range(0, batch.num_rows, _SLICE_ROWS):
                    self._write(batch.slice(row, _SLICE_ROWS), files)
                del batch  # before the next one is read
        pa.default_memory_pool().release_unused()

    def between(self, begin_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the spans that touch [begin_ns, end_ns)."""
        first, last = np.searchsorted(self._edges, [begin_ns, end_ns - 1], "right").tolist()
        for number in range(first, last + 1):
            with open(self._place.directory.open(_name(number)), "rb") as file:
                yield from pa.ipc.open_stream(file)

    def _made(self, number: int) -> BufferedWriter:
        return os.fdopen(self._place.directory.create(_name(number)), "wb")

    def _write(self, batch: pa.RecordBatch, files: Sequence[pa.ipc.RecordBatchStreamWriter]) -> None:
        times: npt.NDArray[np.int64] = to_numpy(batch.column(self._column))
        number = np.searchsorted(self._edges, times, "right")
        order = np.argsort(number, kind="stable")
        ends = np.flatnonzero(np.diff(number[order], append=-1)) + 1
        for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            files[number[order[begin]]].write_batch(select(batch, order[begin:end]))


def _name(number: int) -> str:
    return f"{number}.arrows"
