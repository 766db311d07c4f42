"""Rows on their way from the recorder to a live view: handed over without waiting, and bounded if nobody fetches."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence

import numpy as np

from netprof.model import Host, Meta
from netprof.schema import KINDS, MarkKind, RowKind
from netprof.trace.store import Rows, Store, length, outlasts

_MOST_ROWS = 500_000


class Inbox:
    """Keeps rows until they are fetched by another thread; of more than half a million the oldest are dropped.

    What holds until later rows is not. `steps` counts the `ddp_wait` marks of each process, dropped ones too, and
    `dropped` the rows that were. `hosts` are
    those of a job that several recorded.
    """

    def __init__(self, meta: Meta) -> None:
        self._lock = threading.Lock()
        self._rows: deque[tuple[str, Rows]] = deque()
        self._lasting = Store.of_what_holds()
        self._held = 0
        self._meta = meta
        self._through_ns = meta.started_ns
        self.hosts: Sequence[Host] = ()
        self.steps: Counter[int] = Counter()
        self.dropped = 0

    def add(self, table: str, columns: Rows) -> None:
        """Take rows of `table`; they must not change any more."""
        if table == "marks":
            kinds = np.asarray(columns["kind"])
            self.steps.update(np.asarray(columns["pid"])[kinds == MarkKind.DDP_WAIT].tolist())
        with self._lock:
            if KINDS[table].rows is RowKind.STATE:
                self._lasting.add(table, columns)
                return
            self._rows.append((table, columns))
            self._held += length(columns)
            while self._held > _MOST_ROWS and len(self._rows) > 1:
                name, oldest = self._rows.popleft()
                self._lasting.add(name, oldest)
                self._held -= length(oldest)
                self.dropped += length(oldest) - int(outlasts(name, oldest).sum())

    def describe(self, meta: Meta, hosts: Sequence[Host] = ()) -> None:
        """Take the recording's newest description, and that of its hosts where they are several."""
        self._meta, self.hosts = meta, hosts

    def reached(self, time_ns: int) -> None:
        """Say that everything up to `time_ns` has been added."""
        self._through_ns = max(self._through_ns, time_ns)

    def fetch(self) -> tuple[Meta, int, list[tuple[str, Rows]]]:
        """Return the newest description, how far the recording has come, and the rows added since the last call."""
        with self._lock:
            rows = [*self._lasting.tables(), *self._rows]
            through_ns = self._through_ns
            self._lasting = Store.of_what_holds()
            self._rows.clear()
            self._held = 0
        return self._meta, through_ns, rows
