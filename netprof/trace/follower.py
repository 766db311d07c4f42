"""Following a trace that somebody else is still writing: every complete batch, as soon as it is there."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from netprof.errors import TraceError
from netprof.trace.versions import TableFormat
from netprof.trace.writer import table_path

_PIECE_BYTES, _MOST_MESSAGE_BYTES = 4 << 20, 256 << 20


class TableFollower:
    """The unread end of one table's file, in a trace of schema `version`.

    Of what is there at first, only the newest `most` batches are returned.
    """

    def __init__(self, directory: Path, name: str, version: int, *, most: int | None = None) -> None:
        self._path = table_path(directory, name)
        self._most = most
        self._schema: pa.Schema | None = None
        self._format = TableFormat(name, version)
        self._offset = 0

    def fresh(self) -> list[pa.RecordBatch]:
        """Return the batches completed since the last call; of a long past only the newest. Raises TraceError."""
        messages: deque[pa.Message] = deque(maxlen=self._most)
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                while self._take(file, messages):
                    pass
        except FileNotFoundError:
            return []
        self._most = None
        try:
            written = [pa.ipc.read_record_batch(message, self._format.written) for message in messages]
            batches = [self._format.read(batch) for batch in written]
        except (pa.ArrowException, OSError) as error:
            raise TraceError(f"{self._path} is damaged", "'netprof report' reads what is whole") from error
        return [batch for batch in batches if batch.num_rows]

    def _take(self, file: BinaryIO, messages: deque[pa.Message]) -> bool:
        """Read the next piece of the file; returns whether there may be more. An unfinished message is read again."""
        data, wanted = b"", _PIECE_BYTES
        while True:
            data += file.read(wanted - len(data))
            used = self._parse(data, messages)
            if used or len(data) < wanted:
                break
            wanted *= 4
            if wanted > _MOST_MESSAGE_BYTES:
                raise TraceError(f"{self._path} holds a batch of more than {len(data)} bytes", "the trace is damaged")
        self._offset += used
        file.seek(self._offset)
        return used > 0

    def _parse(self, data: bytes, messages: deque[pa.Message]) -> int:
        """Take the complete messages at the beginning of `data`; returns their length."""
        reader, used = pa.BufferReader(data), 0
        while used < len(data):
            try:
                message = pa.ipc.read_message(reader)
            except (pa.ArrowInvalid, OSError, EOFError):  # cut off, or the end marker
                break
            used = reader.tell()
            if self._schema is not None:
                messages.append(message)
                continue
            self._schema = pa.ipc.read_schema(message)
            self._format.check(self._path, self._schema)
        return used
