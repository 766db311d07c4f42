"""Following a trace that somebody else is still writing: every complete batch, as soon as it is there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from netprof.errors import TraceError
from netprof.files import Directory
from netprof.model import Meta
from netprof.trace.checked import Impossible, check_batch
from netprof.trace.reader import TableFormat
from netprof.trace.unpacked import budget_bytes, unpacked_bytes
from netprof.trace.writer import table_file

_PIECE_BYTES, _MOST_MESSAGE_BYTES = 4 << 20, 256 << 20


class TableFollower:
    """The unread end of one table's file, in the trace that `meta` describes.

    Of what is there at first, only the newest `most` batches are returned.
    """

    def __init__(self, directory: Directory, name: str, meta: Meta, *, most: int | None = None) -> None:
        self._directory, self._name, self._meta = directory, name, meta
        self._path = directory.path / table_file(name)
        self._most = most
        self._has_schema = False
        self._format = TableFormat(name, meta.schema_version)
        self._offset = 0

    def fresh(self) -> Iterator[pa.RecordBatch]:
        """Read what was completed since the last call, of a long past only the newest, and yield it batch by batch.

        Raises TraceError, also while it is gone through.
        """
        messages: deque[pa.Message] = deque(maxlen=self._most)
        try:
            with open(self._directory.open(table_file(self._name)), "rb") as file:
                file.seek(self._offset)
                while self._take(file, messages):
                    pass
        except FileNotFoundError:
            return iter(())
        self._most = None
        return self._unpacked(messages)

    def _unpacked(self, messages: deque[pa.Message]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of messages, each forgotten once it is read: unpacked, a long past may fill memory."""
        while messages:
            batch = self._batch(messages.popleft())
            if batch.num_rows:
                yield batch

    def _batch(self, message: pa.Message) -> pa.RecordBatch:
        try:
            return self._read(message)
        except Impossible as error:
            raise TraceError(f"{self._path}: {error}", "'netprof report' reads what comes before") from error
        except (pa.ArrowException, OSError, ValueError, EOFError, MemoryError) as error:
            raise TraceError(f"{self._path} is damaged", "'netprof report' reads what is whole") from error

    def _read(self, message: pa.Message) -> pa.RecordBatch:
        body = message.body or pa.py_buffer(b"")
        size = unpacked_bytes(message.metadata.to_pybytes(), lambda at: body[at : at + 8].to_pybytes())
        if size > budget_bytes(body.size):
            raise Impossible(f"a batch of {body.size} bytes unpacks to {size}")
        batch = self._format.read(pa.ipc.read_record_batch(message, self._format.written))
        check_batch(self._name, batch, self._meta)
        return batch

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
            if self._has_schema:
                messages.append(message)
            else:
                self._check_schema(message)
                self._has_schema = True
        return used

    def _check_schema(self, message: pa.Message) -> None:
        """Check the schema that the file begins with. Arrow takes any message for one, and reads outside of it."""
        try:
            if message.type != "schema":
                raise ValueError(message.type)
            schema = pa.ipc.read_schema(message)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise TraceError(f"{self._path} is damaged", "'netprof report' reads what is whole") from error
        self._format.check(self._path, schema)
