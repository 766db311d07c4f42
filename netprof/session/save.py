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

from netprof.errors import TraceError
from netprof.files import Place
from netprof.schema import tables, time_column
from netprof.session.recorder import Recorder
from netprof.trace import TraceWriter
from netprof.trace.columns import to_numpy
from netprof.trace.ring import RingReader
from netprof.trace.writer import RING_FILE

_TIMED = ("marks", "wire", "tcp", "nic")


def save(ring: Path, out: Path | Place, *, force: bool = False) -> None:
    """Write what a ring holds now as a trace. Raises TraceError where it is no ring, or `out` cannot be written."""
    if not (ring / RING_FILE).exists():
        raise TraceError(f"{ring} is no ring", "name what 'netprof attach --keep' writes; other traces are kept anyway")
    reader = RingReader(ring)
    writer = TraceWriter(out, reader.meta, force=force)
    last_ns = reader.meta.started_ns
    try:
        for name in tables():
            for batch in reader.batches(name):
                writer.append_batch(name, batch)
                if name in _TIMED and batch.num_rows:
                    times = to_numpy(batch.column(str(time_column(name)))).astype(np.int64)
                    last_ns = max(last_ns, int(times.max()))
    except OSError as error:
        writer.discard()
        raise TraceError(
            f"cannot save {ring}: {error.strerror or error}", "make room, or choose another place"
        ) from error
    meta = reader.meta
    if meta.stopped_ns is None:
        meta = replace(meta, stopped_ns=last_ns + 1, stop_reason="saved while the recording went on")
    writer.close(meta)


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
        while self._asked:
            out, then = self._asked.pop(0)
            self._running.append(_Running(_started(self.ring, out), out, then))
        for each in [each for each in self._running if each.process.poll() is not None]:
            self._running.remove(each)
            each.then(each.out, each.process.returncode)

    def close(self, patience_s: float = 60.0) -> None:
        """Wait for what is being saved."""
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
    command = [sys.executable, "-P", "-m", "netprof", "save", str(ring), str(out), "--report"]
    if sys.version_info < (3, 11):
        command.remove("-P")
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
