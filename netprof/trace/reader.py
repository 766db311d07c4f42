"""Reading a trace: every complete batch, whatever state the recorder left it in."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from netprof.schema import tables
from netprof.trace import at_work
from netprof.trace.meta import read_meta
from netprof.trace.versions import TableFormat
from netprof.trace.writer import table_path

_READ_AHEAD_BYTES = 1 << 20

_DAMAGE = (pa.ArrowException, OSError, MemoryError)
"""What Arrow raises for bytes that make no sense; a damaged length may ask for more memory than there is."""


class _Bounded(io.RawIOBase):
    """A file that is never asked for more than it has: Arrow would first allocate what a damaged length names."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._size = os.fstat(raw.fileno()).st_size

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._raw.tell()

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._raw.tell())
        return self._raw.read(left if size < 0 else min(size, left))


class TraceReader:
    """A trace opened for reading.

    Raises TraceError when `path` is no trace, is damaged beyond its end, or comes from a newer netprof.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.meta = read_meta(path)
        self.still_recording = self.meta.stopped_ns is None and at_work.is_held(path)
        """True while a recorder is at work: the end is to come, and a half-written batch is none that is missing."""
        self.truncated = self.meta.stopped_ns is None and not self.still_recording
        """True when the recorder did not finish, or a table ends inside a batch (known once it was read)."""

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the complete record batches of table `name`, in the order recorded; none if the table is absent."""
        path = table_path(self.path, name)
        if not path.exists():
            return
        written = TableFormat(name, self.meta.schema_version)
        options = pa.ipc.IpcReadOptions(use_threads=False)  # batches are small: a hand-over costs more than it gives
        with open(path, "rb", buffering=_READ_AHEAD_BYTES) as raw, pa.PythonFile(_Bounded(raw), mode="r") as file:
            try:
                stream = pa.ipc.open_stream(file, options=options)
            except _DAMAGE:
                self._cut()  # killed before the first batch, or not Arrow at all
                return
            written.check(path, stream.schema)
            while True:
                try:
                    batch = written.read(stream.read_next_batch())
                except StopIteration:
                    return
                except _DAMAGE:
                    self._cut()
                    return
                yield batch

    def _cut(self) -> None:
        self.truncated = not self.still_recording

    def table(self, name: str) -> pa.Table:
        """Return table `name` whole; empty, with the right columns, if it was not recorded."""
        return pa.Table.from_batches(list(self.batches(name)), schema=tables()[name])
