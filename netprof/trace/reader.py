"""Reading a trace: every complete batch, whatever state the recorder left it in.

A table of an older schema is read as one of today's: what it did not record is null, that is unknown.
"""

from __future__ import annotations

import io
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from netprof.errors import TraceError
from netprof.model import Host
from netprof.schema import recorded_columns, tables
from netprof.trace import at_work
from netprof.trace.checked import Impossible, check_batch
from netprof.trace.meta import META_FILE, open_trace, read_meta
from netprof.trace.unpacked import UnpackBudget
from netprof.trace.writer import table_file

_READ_AHEAD_BYTES = 1 << 20
_ENOUGH_ROWS = 1 << 15
"""Batches of a few flows are small, and one costs as much to look at as thousands of rows: so many are put together."""

_DAMAGE = (pa.ArrowException, OSError, MemoryError)
"""What Arrow raises for bytes that make no sense; a damaged length may ask for more memory than there is."""

_END = b"\xff\xff\xff\xff\0\0\0\0"
"""What a stream of Arrow's ends with."""

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
    """A trace opened for reading: its directory is held, so that all tables are of one trace.

    Raises TraceError when `path` is no trace, is damaged beyond its end, or comes from a newer netprof.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._directory = open_trace(path)
        self.meta = read_meta(self._directory)
        self.still_recording = self.meta.stopped_ns is None and at_work.is_held(self._directory)
        """True while a recorder is at work: the end is to come, and a half-written batch is none that is missing."""
        self.truncated = self.meta.stopped_ns is None and not self.still_recording
        """True when the recorder did not finish: a table may end inside a batch. Of one that did, that is `damage`."""
        self.hosts = (Host(self.meta.host, self.meta, path.name),)
        self._damage: dict[str, tuple[int, str]] = {}
        self._budgets: defaultdict[str, UnpackBudget] = defaultdict(UnpackBudget)
        if self.meta.stopped_ns is not None:
            for name in tables():
                self._look_at_the_end(name)

    @property
    def is_gone(self) -> bool:
        """Whether the trace was removed since it was opened: what was not read yet is missing."""
        return self._directory.kind(META_FILE) is None

    @property
    def damage(self) -> tuple[str, ...]:
        """What was found in the tables, as far as they were read, that no recorder writes: a sentence each."""
        return (*self.meta.damage, *(sentence for _, sentence in self._damage.values()))

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the complete record batches of table `name`, in the order recorded; none if the table is absent.

        What is not in the domain of a column ends the table there (`damage`), as a batch does that is cut off.
        """
        written = TableFormat(name, self.meta.schema_version)
        return map(itemgetter(1), self._read(name, written.check, written.read, _ENOUGH_ROWS))

    def places(self, name: str, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield where in its file each complete batch of table `name` begins, and some of its columns."""
        written = TableFormat(name, self.meta.schema_version)
        fields = [written.written.get_field_index(column) for column in columns]
        return self._read(name, partial(written.check, among=columns), written.read_some, 1, included_fields=fields)

    def batches_at(self, name: str, offsets: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of table `name` that begin at some places in its file, up to where it is damaged.

        Raises TraceError where none is there any more: the file was changed meanwhile.
        """
        path, written = self._path(name), TableFormat(name, self.meta.schema_version)
        with self._opened(name) as raw, pa.PythonFile(_Bounded(raw), mode="r") as file:
            left = iter(offsets)

            def read_next() -> pa.RecordBatch:
                try:
                    return written.read(pa.ipc.read_record_batch(pa.ipc.read_message(file), written.written))
                except EOFError as error:
                    message = f"{path} changed while it was read"
                    raise TraceError(message, "read it again when nobody writes to it") from error

            batches = self._singly(name, raw, read_next, self._break, lambda: raw.seek(next(left)))
            yield from map(itemgetter(1), self._together(name, batches, _ENOUGH_ROWS))

    def _path(self, name: str) -> Path:
        return self.path / table_file(name)

    def _opened(self, name: str) -> BinaryIO:
        """Open a table's file. Raises FileNotFoundError where there is none, TraceError where it cannot be read."""
        try:
            return open(self._directory.open(table_file(name)), "rb", buffering=_READ_AHEAD_BYTES)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise TraceError(
                f"cannot read {self._path(name)}: {error.strerror}", "check the permissions of that file"
            ) from error

    def _read(
        self, name: str, check: _Check, read: Callable[[pa.RecordBatch], pa.RecordBatch], enough: int, **options: Any
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        try:
            opened = self._opened(name)
        except FileNotFoundError:
            return
        # Batches are small: to hand them over to threads costs more than it gives.
        options = {"options": pa.ipc.IpcReadOptions(use_threads=False, **options)}
        with opened as raw, pa.PythonFile(_Bounded(raw), mode="r") as file:
            try:
                stream = pa.ipc.open_stream(file, **options)
            except _DAMAGE:
                self._cut(name, 0)  # killed before the first batch, or not Arrow at all
                return
            check(self._path(name), stream.schema)
            batches = self._singly(name, raw, lambda: read(stream.read_next_batch()), self._cut, raw.tell)
            yield from self._together(name, batches, enough)

    def _singly(
        self,
        name: str,
        raw: BinaryIO,
        read_next: Callable[[], pa.RecordBatch],
        cannot_read: Callable[[str, int], None],
        go_to_next: Callable[[], int],
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield where each batch of a table begins, and it, until where the table ends."""
        while True:
            offset = -1
            try:
                offset = go_to_next()
                self._spend(name, raw)
                batch = read_next()
            except (StopIteration, Impossible):
                return
            except _DAMAGE:
                cannot_read(name, offset)
                return
            yield offset, batch

    def _together(
        self, name: str, batches: Iterator[tuple[int, pa.RecordBatch]], enough: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield as many batches as have `enough` rows as one, until one holds what no recorder writes.

        With each comes where the first begins.
        """
        while group := _take(batches, enough):
            begin, whole = group[0][0], _joined([batch for _, batch in group])
            try:
                check_batch(name, whole, self.meta)
            except Impossible:
                group = group[: self._sound(name, group)]
                if group:
                    yield begin, _joined([batch for _, batch in group])
                return
            group.clear()
            yield begin, whole
            del whole  # nothing of it is kept while the next one is read

    def _sound(self, name: str, group: Sequence[tuple[int, pa.RecordBatch]]) -> int:
        """Return how many batches come before the one that holds what no recorder writes, and end the table there."""
        for number, (offset, batch) in enumerate(group):
            try:
                check_batch(name, batch, self.meta)
            except Impossible as error:
                self._end(name, offset, error)
                return number
        return len(group)

    def _spend(self, name: str, raw: BinaryIO) -> None:
        """Count what the next batch unpacks to. Raises Impossible where that is too much or the table ends first."""
        offset = raw.tell()
        if offset >= self._damage.get(name, (offset + 1, ""))[0]:
            raise Impossible
        try:
            self._budgets[name].spend(raw.fileno(), offset)
        except ValueError as error:
            self._end(name, offset, error)
            raise Impossible from error

    def _end(self, name: str, offset: int, error: ValueError) -> None:
        sentence = f"{table_file(name)} is damaged: {error}; these rows and all that follow are left out: record again"
        self._damage[name] = offset, sentence

    def _break(self, name: str, offset: int) -> None:
        """End a table where what was there before cannot be read: in columns that nobody had asked for yet."""
        self._end(name, offset, ValueError("it holds what cannot be read"))

    def _look_at_the_end(self, name: str) -> None:
        """Note a table whose file does not end as one that was written whole: nothing else may tell where it is cut."""
        try:
            with self._opened(name) as raw:
                end = raw.seek(0, os.SEEK_END)
                raw.seek(max(0, end - len(_END)))
                if raw.read() != _END:
                    self._cut(name, end)
        except (FileNotFoundError, TraceError):
            return  # not recorded; or it cannot be read, which reading it says

    def _cut(self, name: str, offset: int) -> None:
        """End a table at what is no whole batch: that of a recorder that was killed, or is writing it, ends so."""
        if self.meta.stopped_ns is not None:
            self._end(name, offset, ValueError("it is cut off, or holds what cannot be read"))

    def table(self, name: str) -> pa.Table:
        """Return table `name` whole; empty, with the right columns, if it was not recorded."""
        return pa.Table.from_batches(list(self.batches(name)), schema=tables()[name])


def _take(batches: Iterator[tuple[int, pa.RecordBatch]], enough: int) -> list[tuple[int, pa.RecordBatch]]:
    """Take batches until there are enough rows, or no more."""
    taken, rows = [], 0
    for offset, batch in batches:
        taken.append((offset, batch))
        rows += batch.num_rows
        if rows >= enough:
            break
    return taken


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


class TableFormat:
    """How table `name` is written in a trace of schema `version`, and how it is read."""

    def __init__(self, name: str, version: int) -> None:
        self.written = recorded_columns(name, version)
        self._read = tables()[name]
        self._has_texts = any(pa.types.is_string(field.type) for field in self._read)

    def check(self, path: Path, schema: pa.Schema, among: Sequence[str] | None = None) -> None:
        """Raise TraceError where the file at `path` has other columns than these, `among` some or all of them."""
        wanted = [field for field in self.written if among is None or field.name in among]
        if not schema.equals(pa.schema(wanted)):
            raise TraceError(f"{path} has other columns than its schema version says", "the trace is damaged")

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch as written with all of today's columns. Raises ArrowInvalid for one that is damaged."""
        batch = self.read_some(batch)
        if self.written is self._read:
            return batch
        known = dict(zip(self.written.names, batch.columns, strict=True))
        every = [known.get(field.name, pa.nulls(batch.num_rows, field.type)) for field in self._read]
        return pa.RecordBatch.from_arrays(every, schema=self._read)

    def read_some(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch that holds some of the columns as written. Raises ArrowInvalid for one that is damaged."""
        batch.validate(full=self._has_texts)  # that texts are text, and within the buffer
        if any(column.null_count for column in batch.columns):
            raise pa.ArrowInvalid("the recorder writes no nulls")
        return batch
