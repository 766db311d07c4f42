"""Reading a trace: every complete batch, whatever state the recorder left it in."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from netprof.errors import TraceError
from netprof.schema import tables
from netprof.trace import at_work
from netprof.trace.meta import read_meta
from netprof.trace.versions import TableFormat
from netprof.trace.writer import table_path

_READ_AHEAD_BYTES = 1 << 20

_DAMAGE = (pa.ArrowException, OSError, MemoryError)
"""What Arrow raises for bytes that make no sense; a damaged length may ask for more memory than there is."""

_Check = Callable[[Path, pa.Schema], None]


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
        written = TableFormat(name, self.meta.schema_version)
        return map(itemgetter(1), self._read(name, written.check, written.read))

    def places(self, name: str, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield where in its file each complete batch of table `name` begins, and some of its columns."""
        written = TableFormat(name, self.meta.schema_version)
        fields = [written.written.get_field_index(column) for column in columns]
        return self._read(name, partial(written.check, among=columns), written.read_some, included_fields=fields)

    def batches_at(self, name: str, offsets: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of table `name` that begin at some places in its file.

        Raises TraceError where none is there any more: the file was changed meanwhile.
        """
        path, written = table_path(self.path, name), TableFormat(name, self.meta.schema_version)
        with open(path, "rb") as raw, pa.PythonFile(_Bounded(raw), mode="r") as file:
            for offset in offsets:
                try:
                    raw.seek(offset)
                    yield written.read(pa.ipc.read_record_batch(pa.ipc.read_message(file), written.written))
                except (*_DAMAGE, EOFError) as error:
                    raise TraceError(
                        f"{path} changed while it was read", "read it again when nobody writes to it"
                    ) from error

    def _read(
        self, name: str, check: _Check, read: Callable[[pa.RecordBatch], pa.RecordBatch], **options: Any
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        path = table_path(self.path, name)
        if not path.exists():
            return
        # Batches are small: to hand them over to threads costs more than it gives.
        options = {"options": pa.ipc.IpcReadOptions(use_threads=False, **options)}
        with open(path, "rb", buffering=_READ_AHEAD_BYTES) as raw, pa.PythonFile(_Bounded(raw), mode="r") as file:
            try:
                stream = pa.ipc.open_stream(file, **options)
            except _DAMAGE:
                self._cut()  # killed before the first batch, or not Arrow at all
                return
            check(path, stream.schema)
            offset = raw.tell()
            while batch := self._next(stream, read):
                yield offset, batch.pop()  # and keeps none of it while the next one is read
                offset = raw.tell()

    def _next(self, stream: pa.RecordBatchStreamReader, read: Callable[[pa.RecordBatch], Any]) -> list[pa.RecordBatch]:
        """Return the next batch of a table, or nothing where it ends."""
        try:
            return [read(stream.read_next_batch())]
        except StopIteration:
            return []
        except _DAMAGE:
            self._cut()
            return []

    def _cut(self) -> None:
        self.truncated = not self.still_recording

    def table(self, name: str) -> pa.Table:
        """Return table `name` whole; empty, with the right columns, if it was not recorded."""
        return pa.Table.from_batches(list(self.batches(name)), schema=tables()[name])
