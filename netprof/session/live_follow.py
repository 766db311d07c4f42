"""Following a trace that somebody else is still writing: every complete batch, as soon as it is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from netprof.analysis.live.inbox import Inbox
from netprof.analysis.live.recent import Recent
from netprof.analysis.live.state import LiveState
from netprof.analysis.live.window import LONGEST_NS
from netprof.analysis.tables.columns import column, text_column
from netprof.errors import TraceError
from netprof.schema import tables, time_column
from netprof.trace.follower import TableFollower
from netprof.trace.meta import read_meta

_META_EVERY_S = 1.0
_WHOLE = frozenset(
    {"flows", "link_changes", "marks"}
)  # needed from the beginning: who is who, and how many iterations there were
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
        version = self._meta.schema_version
        self._tables = [
            (name, TableFollower(path, name, version, most=None if name in _WHOLE else _CAUGHT_UP_BATCHES))
            for name in tables()
        ]
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
        for name, follower in self._tables:
            for batch in follower.fresh():
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
        time_name = time_column(name)
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
