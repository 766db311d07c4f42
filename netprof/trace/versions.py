"""A table of an older schema, read as one of today's: what it did not record is null, that is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from netprof.errors import TraceError
from netprof.schema import recorded_columns, tables


class TableFormat:
    """How table `name` is written in a trace of schema `version`, and how it is read."""

    def __init__(self, name: str, version: int) -> None:
        self.written = recorded_columns(name, version)
        self._read = tables()[name]
        self._has_texts = any(pa.types.is_string(field.type) for field in self._read)

    def check(self, path: Path, found: pa.Schema, among: Sequence[str] | None = None) -> None:
        """Raise TraceError where the file at `path` has other columns than these, `among` some or all of them."""
        wanted = [field for field in self.written if among is None or field.name in among]
        if not found.equals(pa.schema(wanted)):
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
