"""Keeping what a ring holds now: as a trace of its own, read while the recorder goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from netprof.domains import AROUND_NS
from netprof.errors import EXIT_UNUSABLE, TraceError
from netprof.files import OutputPlace, is_folder
from netprof.schema import tables, time_column
from netprof.session.recorder import Recorder
from netprof.trace import TraceWriter
from netprof.trace.columns import to_arrow, to_numpy
from netprof.trace.ring import RingReader, is_ring
from netprof.trace.writer import require_apart

_MAIN = "import sys; sys.path[:] = filter(None, sys.path); from netprof.cli import main; main()"
"""Imports nothing from the current folder, which may be another user's. Python before 3.11 has no -P for that."""


def save(ring: Path, out: Path | OutputPlace, *, force: bool = False) -> None:
    """Write what a ring holds now as a trace. Raises TraceError where it is no ring, or `out` cannot be written."""
    if not is_folder(ring):
        raise TraceError(f"there is no directory {ring}", "name the one that 'netprof attach --keep' writes")
    if not is_ring(ring):
        raise TraceError(
            f"{ring} is not a ring", "only 'netprof attach --keep' writes one; other traces need no saving"
        )
    require_apart(ring, out)
    reader = RingReader(ring)
    meta = reader.meta
    last_ns = meta.started_ns
    with TraceWriter(out, meta, force=force) as writer:
        for name in tables():
            for batch in reader.batches(name):
                column = time_column(name)
                if column is not None and batch.num_rows:
                    batch = _recent(batch, column, meta.started_ns - AROUND_NS)
                    last_ns = max(last_ns, int(to_numpy(batch.column(column)).max()))
                writer.append_batch(name, batch)
        if meta.stopped_ns is None:
            meta = replace(meta, stopped_ns=last_ns + 1, stop_reason="saved while the recording went on")
        writer.close(meta)


def _recent(batch: pa.RecordBatch, column: str, least_ns: int) -> pa.RecordBatch:
    """Return the rows with no time before `least_ns`: a reader takes what lies further back for damage."""
    place = batch.schema.get_field_index(column)
    times = to_numpy(batch.column(place)).astype(np.int64)
    if times.min(initial=least_ns) >= least_ns:
        return batch
    columns = [*batch.columns]
    columns[place] = to_arrow(np.maximum(times, least_ns), batch.schema.field(place).type)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    out: Path
    then: Callable[[Path, int], None]


Done = Callable[[Path, int], None]
"""Is told of a trace that was saved, and of the exit code: 0 where all went well."""


class Saver:
    """Saves a recording's ring by a process of its own, so that the recording never waits for it.

    To be called on the recording's loop, as a watcher. `ask` may be called at any time, from any thread or handler.
    """

    def __init__(self, ring: Path) -> None:
        self.ring = ring
        self._asked: list[tuple[Path, Done]] = []
        self._running: list[_Running] = []
        self._names = 0

    def ask(self, then: Done = lambda out, code: None, out: Path | None = None) -> Path:
        """Save the ring soon, beside it, and return where."""
        self._names += 1
        stem = self.ring.name.removesuffix(".netprof")
        name = f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{self._names}.netprof"
        place = out or self.ring.with_name(name)
        self._asked.append((place, then))
        return place

    def __call__(self, recorder: Recorder) -> None:
        """Begin what was asked for, and tell of what is done."""
        self._begin()
        for each in [each for each in self._running if each.process.poll() is not None]:
            self._running.remove(each)
            each.then(each.out, each.process.returncode)

    def _begin(self) -> None:
        """Begin what was asked for; what cannot be started has failed, and the recording goes on."""
        while self._asked:
            out, then = self._asked.pop(0)
            try:
                self._running.append(_Running(_started(self.ring, out), out, then))
            except OSError:
                then(out, EXIT_UNUSABLE)

    def close(self, patience_s: float = 60.0) -> None:
        """Save what was asked for last, and wait for what is being saved."""
        self._begin()
        until_s = time.monotonic() + patience_s
        for each in self._running:
            try:
                each.process.wait(max(0.1, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                each.process.kill()
                each.process.wait()
            each.then(each.out, each.process.returncode)
        self._running.clear()


def _started(ring: Path, out: Path) -> subprocess.Popen[Any]:
    command = [sys.executable, "-c", _MAIN, "save", str(ring), str(out), "--report"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def saved_on_signal(saver: Saver, then: Done) -> Iterator[None]:
    """Save on SIGUSR1 inside the block."""

    def asked(number: int, frame: object) -> None:
        saver.ask(then)

    before = signal.signal(signal.SIGUSR1, asked)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
