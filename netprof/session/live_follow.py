"""Following a trace that somebody else is still writing: every complete batch, as soon as it is there."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from netprof.analysis.live.inbox import Inbox
from netprof.analysis.live.recent import Recent
from netprof.analysis.live.state import LiveState
from netprof.analysis.live.window import LONGEST_NS
from netprof.analysis.tables.columns import column, text_column
from netprof.errors import TraceError
from netprof.schema import tables
from netprof.trace.meta import read_meta
from netprof.trace.writer import table_path

_PIECE_BYTES, _MOST_MESSAGE_BYTES = 4 << 20, 256 << 20
_META_EVERY_S = 1.0
_WHOLE = frozenset({"flows", "marks"})  # needed from the beginning: who is who, and how many iterations there were
_TIMES = {"wire": "bin_start_ns", "marks": "time_ns", "tcp": "time_ns", "nic": "time_ns", "gpu": "time_ns"}
_CAUGHT_UP_BATCHES = 400  # of what was there before we came, the newest batches of a table that are looked at


class TraceSource:
    """A live view's source that follows the trace in a directory. Raises TraceError where there is none.

    `ended` says why, once the recorder has finished; `silent_s` for how long nothing has been added.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._meta = read_meta(path)
        if self._meta.bin_ns <= 0:
            raise TraceError(f"the trace names a bin width of {self._meta.bin_ns} ns", "the trace is damaged")
        self._inbox = Inbox(self._meta)
        self._state = LiveState(self._inbox, self._meta.bin_ns)
        self._tails = {name: _Tail(path, name) for name in tables()}
        self._grew_s = time.monotonic()
        self._next_meta_s = 0.0

    @property
    def ended(self) -> str:
        """Why the recorder stopped, or nothing while it records."""
        return self._meta.stop_reason or ("the recording has ended" if self._meta.stopped_ns is not None else "")

    @property
    def silent_s(self) -> float:
        """For how long the trace has not grown, in seconds."""
        return time.monotonic() - self._grew_s

    def look(self) -> Recent:
        """Return what is going on in the trace now. Raises TraceError where it is damaged before its end."""
        self._read_meta()
        for name in sorted(self._tails, key=lambda name: name != "flows"):
            for batch in self._tails[name].fresh():
                self._grew_s = time.monotonic()
                self._add(name, batch)
        return self._state.look()

    def _read_meta(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_meta_s:
            self._next_meta_s = now_s + _META_EVERY_S
            self._meta = read_meta(self._path)
            self._inbox.describe(self._meta)

    def _add(self, name: str, batch: pa.RecordBatch) -> None:
        rows = _columns(name, batch)
        time_name = _TIMES.get(name)
        if time_name is not None:
            times = rows[time_name].astype(np.int64)
            newest_ns = int(times.max())
            recent = times > newest_ns - LONGEST_NS
            rows = rows if recent.all() else {key: np.asarray(values)[recent] for key, values in rows.items()}
            self._inbox.reached(newest_ns)
        self._inbox.add(name, rows)


def _columns(name: str, batch: pa.RecordBatch) -> dict[str, Any]:
    """Return a batch's columns without pandas: numbers as arrays, texts as lists."""
    texts = {field.name for field in tables()[name] if pa.types.is_string(field.type)}
    names = tables()[name].names
    return {key: text_column(batch, key) if key in texts else column(batch, key) for key in names}


class _Tail:
    """The unread end of one table's file."""

    def __init__(self, directory: Path, name: str) -> None:
        self._path = table_path(directory, name)
        self._most: int | None = None if name in _WHOLE else _CAUGHT_UP_BATCHES
        self._schema: pa.Schema | None = None
        self._expected = tables()[name]
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
            batches = [pa.ipc.read_record_batch(message, self._expected) for message in messages]
            for batch in batches:
                batch.validate()
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
            if not self._schema.equals(self._expected):
                raise TraceError(f"{self._path} has other columns than its schema version says", "the trace is damaged")
        return used
