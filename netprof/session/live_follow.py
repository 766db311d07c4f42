"""Following a trace that somebody else is still writing: every complete batch, as soon as it is there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from netprof.analysis.live.in_step import InStep
from netprof.analysis.live.inbox import Inbox
from netprof.analysis.live.live_state import LiveState
from netprof.analysis.live.now import Recent
from netprof.analysis.live.window import LONGEST_NS
from netprof.analysis.tables.columns import column, text_column
from netprof.errors import TraceError
from netprof.files import Directory
from netprof.model import Meta
from netprof.schema import KINDS, RowKind, tables, time_column
from netprof.session import this_host
from netprof.trace import at_work
from netprof.trace.follower import TableFollower
from netprof.trace.meta import META_FILE, open_trace, read_meta
from netprof.trace.ring import is_ring
from netprof.trace.store import Rows, chosen, outlasts
from netprof.trace.writer import PART_OF_A_RING, table_file

QUIET_S = 5.0
"""A recorder writes every second: for how long nothing is new before that is said."""
DIED = "died: the trace has no end marker"
"""What is said of a recorder that is gone, and did not write that it stops."""
_CAUGHT_UP_BATCHES = 400
"""Of what was there before we came, the newest batches of a table that are looked at."""
_META_EVERY_S = 1.0
_LONG_S = 600.0
_FROM_THE_BEGINNING = frozenset({name for name, kind in KINDS.items() if kind.rows is RowKind.STATE} | {"marks"})
"""Tables that are read whole: who is who, and how many iterations there were."""


class FollowedTrace:
    """The trace in a directory, and what is added to it. Raises TraceError where there is none.

    Of what is there at first, only the newest `most` batches of a table are looked at, of a ring's those of its last
    parts: between the newest of each part there would be gaps, in which nothing seems to move.
    """

    def __init__(self, path: Path, most: int = _CAUGHT_UP_BATCHES) -> None:
        self.path = path
        self._directory = open_trace(path)
        self.meta = read_meta(self._directory)
        self._most, self._is_ring = most, is_ring(path)
        self._since_ns = 0
        self._rows_in, self._tables = self._directory, self._followers(self._directory, self.meta)
        self._later, self._since_ns = self._parts(), self._last_parts_ns()
        self._grew_s, self._is_past = time.monotonic() - self._age_s(), True
        self._next_meta_s = 0.0
        self._seen: tuple[int, int] | None = None

    @property
    def ended(self) -> str:
        """Why the recorder stopped, or nothing while it records, as far as one can tell."""
        return self._stated_end or (f"the recorder {DIED}" if self.is_gone else "")

    @property
    def _stated_end(self) -> str:
        return self.meta.stop_reason or ("the recording has ended" if self.meta.stopped_ns is not None else "")

    @property
    def is_gone(self) -> bool:
        """Whether the recorder was surely killed: its lock is free, and was of this machine since that was started.

        Of other machines' recorders not every shared file system shows the locks.
        """
        of_here = bool(self.meta.boot_id) and self.meta.boot_id == this_host.boot_id()
        return self.is_silent and not self._stated_end and of_here and at_work.is_free(self._directory)

    @property
    def is_held(self) -> bool:
        """Whether a recorder is surely at work; no, where that cannot be told."""
        return at_work.is_held(self._directory)

    @property
    def silent_s(self) -> float:
        """For how long the trace has not grown, in seconds; at first as far as the times of its files tell."""
        return time.monotonic() - self._grew_s

    @property
    def is_silent(self) -> bool:
        """Whether it has not grown for longer than a recorder ever takes."""
        return self.silent_s > QUIET_S

    @property
    def silence(self) -> str:
        """For how long it has not grown, for a person."""
        seconds = self.silent_s
        return f"{seconds:.0f} s" if seconds < _LONG_S else f"{seconds / 60:.0f} min"

    def describe(self) -> bool:
        """Read the description again where it is another one than a second ago; tell whether it is."""
        now_s = time.monotonic()
        if now_s < self._next_meta_s:
            return False
        self._next_meta_s = now_s + _META_EVERY_S
        seen = self._signature()
        if seen == self._seen:
            return False
        self.meta, self._seen = read_meta(self._directory), seen
        return True

    def fresh(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the batches added since the last call. Raises TraceError where it is damaged before its end."""
        is_past, self._is_past = self._is_past, False
        later = self._later or self._parts()  # looked for first: then what is read now is whole
        for part in ["", *later]:
            if part and not self._go_on_in(part):
                continue
            for name, follower in self._tables:
                for batch in follower.fresh():
                    if not is_past:
                        self._grew_s = time.monotonic()
                    yield name, batch
        self._later = []

    def _last_parts_ns(self) -> int:
        """Return from when on parts of a ring matter that are there at first: what a view shows, or the last bytes."""
        for part in reversed(self._parts()):
            with suppress(TraceError):
                directory = open_trace(self.path / part)
                if directory.kind(table_file("wire")) is not None:
                    return read_meta(directory).started_ns - (LONGEST_NS if self._most >= _CAUGHT_UP_BATCHES else 0)
        return 0

    def _followers(self, directory: Directory, meta: Meta) -> list[tuple[str, TableFollower]]:
        is_old = meta.stopped_ns is not None and meta.stopped_ns <= self._since_ns
        mosts = {name: None if name in _FROM_THE_BEGINNING else self._most for name in tables()}
        followed = {name: most for name, most in mosts.items() if most is None or not is_old}
        return [(name, TableFollower(directory, name, meta, most=most)) for name, most in followed.items()]

    def _parts(self) -> list[str]:
        """Return the parts of a ring that are later than what is followed: at first all, and what came before them."""
        if not self._is_ring:
            return []
        names = sorted(each for each in self._directory.names() if PART_OF_A_RING.fullmatch(each))
        if self._rows_in is self._directory:
            return [each for each in names if each == names[0] or each.endswith(".part")]
        return [each for each in names if each.endswith(".part") and each > self._rows_in.path.name]

    def _go_on_in(self, part: str) -> bool:
        """Follow another part of the ring; tell whether it is there: the oldest may just have been removed.

        It is read by its own description: what was carried over into the ring may be hours older than that.
        """
        try:
            rows_in = open_trace(self.path / part)
            meta = read_meta(rows_in)
        except TraceError:
            return False
        self._rows_in, self._tables = rows_in, self._followers(rows_in, meta)
        return True

    def _age_s(self) -> float:
        """Return for how long none of the files has been written to, by their file system's clock; 0 if in doubt."""
        written_s = []
        for name in (META_FILE, *map(table_file, tables())):
            with suppress(OSError):
                written_s.append(os.stat(name, dir_fd=self._rows_in.descriptor, follow_symlinks=False).st_mtime)
        return max(0.0, time.time() - max(written_s, default=time.time()))

    def _signature(self) -> tuple[int, int] | None:
        """Return what tells one description from the next: each is a file of its own."""
        try:
            status = os.stat(META_FILE, dir_fd=self._directory.descriptor)
        except OSError:  # reading it will say what is wrong
            return None
        return status.st_ino, status.st_mtime_ns


class FollowedTraceSource:
    """A live view's source that follows one trace. Raises TraceError where there is none."""

    left_out: Sequence[str] = ()

    def __init__(self, path: Path) -> None:
        self.paths = [path]
        self._trace = FollowedTrace(path)
        self._inbox = Inbox(self._trace.meta)
        self._in_step, self._is_first = InStep(1), True
        self._state = LiveState(self._inbox, self._trace.meta.bin_ns)

    @property
    def ended(self) -> str:
        """Why the recorder stopped, or nothing while it records."""
        return self._trace.ended

    @property
    def goes_on(self) -> bool:
        """Whether something is being added."""
        return not (self.ended or self._trace.is_silent)

    @property
    def notice(self) -> str:
        """For how long nothing has been added, where that is for long; else nothing."""
        return f"nothing new for {self._trace.silence}" if self._trace.is_silent and not self._trace.ended else ""

    def look(self) -> Recent:
        """Return what is going on in the trace now. Raises TraceError where it is damaged before its end."""
        if self._trace.describe():
            self._inbox.describe(self._trace.meta)
        for name, batch in self._trace.fresh():
            self._in_step.add(0, name, recent_rows(name, batch))
        if self._is_first or self.ended:  # nothing is being added, or it has been for long
            self._is_first = False
            self._in_step.settle()
        through_ns, tables = self._in_step.take()
        if through_ns is not None:
            self._inbox.reached(through_ns)
        for name, rows in tables:
            self._inbox.add(name, rows)
        return self._state.look()


def recent_rows(name: str, batch: pa.RecordBatch) -> Rows:
    """Return the rows of a batch, which has some, that a live view may still show: texts as lists, without pandas."""
    schema = tables()[name]
    texts = {field.name for field in schema if pa.types.is_string(field.type)}
    rows: Rows = {key: text_column(batch, key) if key in texts else column(batch, key) for key in schema.names}
    time_name = time_column(name)
    if time_name is None or KINDS[name].holds:
        return rows
    times = rows[time_name].astype(np.int64)
    recent = (times > int(times.max()) - LONGEST_NS) | outlasts(name, rows)
    return rows if recent.all() else chosen(rows, recent)
