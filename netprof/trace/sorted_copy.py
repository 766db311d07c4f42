"""A copy of a table, cut by time, for one whose batches are not written in the order of time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from io import BufferedWriter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from netprof.files import TemporaryFolder
from netprof.trace.columns import to_numpy

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
            files[number[order[begin]]].write_batch(batch.take(pa.array(order[begin:end], pa.int64())))


def _name(number: int) -> str:
    return f"{number}.arrows"
