"""A trace of bounded size: the newest parts of a recording, each a trace of its own, in one folder.

`NAME.netprof` then holds `meta.json`, which describes what is there, and of each part a folder `NNNNNN.part`. Beside it
`NNNNNN.carry` holds what was before and is needed to read it: flows, devices, communicators. A part is begun after its
carry is complete, and the description is replaced before the oldest part is removed: a kill at any moment leaves a ring
that opens.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np
import pyarrow as pa

from netprof.errors import TraceError
from netprof.files import OutputPlace, matching, status_of
from netprof.model import Clock, Cost, Host, Losses, Meta, ProbeCost, ProgramCost
from netprof.schema import KINDS, tables, time_column
from netprof.trace import at_work
from netprof.trace.columns import select, to_numpy
from netprof.trace.keep import Keep
from netprof.trace.meta import open_trace, read_meta, write_meta
from netprof.trace.reader import TraceReader
from netprof.trace.store import Store, outlasts
from netprof.trace.writer import (
    PART_OF_A_RING,
    RING_FILE,
    TraceWriter,
    cannot_write,
    clear_trace,
    make_room,
    remove_part,
)
from netprof.units import count

_PARTS = 8
"""Into so many parts a full ring is cut: up to one of them it holds more than was asked for, by time."""
_SEGMENT_BITS = 44
_HELD_PARTS = 4
"""So many parts more than wanted are left while somebody saves the ring."""


class RingWriter:
    """Writes a recording like `TraceWriter`, of which the newest part stays; raises what that raises."""

    def __init__(self, place: Path | OutputPlace, meta: Meta, keep: Keep, *, force: bool = False) -> None:
        self.path = place if isinstance(place, Path) else place.path
        self._keep = keep
        self._carried = Store.of_what_holds()
        self._sizes: dict[int, int] = {}  # of the parts that are complete
        self._begins: dict[int, Meta] = {}  # what the description was as each began
        try:
            self._place = OutputPlace(place) if isinstance(place, Path) else place
            self._directory, is_new = make_room(self._place, force)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        try:
            self._lock = self._directory.create(RING_FILE)
            write_meta(self._directory, meta)
            self._begin(1, meta)
        except (OSError, TraceError) as error:
            self._abandon(is_new)
            raise cannot_write(self.path, error) if isinstance(error, OSError) else error from error

    def append(self, name: str, columns: Mapping[str, Sequence[Any] | Any]) -> None:
        """Append rows to table `name`. Raises OSError; on a full disk after the oldest part was given up for it."""
        self._carried.add(name, columns)
        self._making_room(lambda: self._part.append(name, columns))

    def update_meta(self, meta: Meta) -> None:
        """Replace the description, and begin another part where it is time for that.

        Raises OSError or TraceError; on a full disk after all other parts were given up for it.
        """
        if self._is_full(meta):
            before, number = self._part, self._number
            ended = replace(self._of_part(meta), stopped_ns=monotonic_ns(), stop_reason="the ring goes on")
            self._making_room(lambda: self._begin(number + 1, meta))  # else the one before is the last
            self._making_room(lambda: before.close(ended))
            self._sizes[number] = before.size_bytes()
        else:
            self._making_room(lambda: self._part.update_meta(self._of_part(meta)))
        self._making_room(lambda: self._trim(meta))

    def _making_room(self, write: Callable[[], None]) -> None:
        """Write something; while the disk is full, give up the oldest part for it."""
        while True:
            try:
                write()
                return
            except (OSError, TraceError) as error:
                cause = error if isinstance(error, OSError) else error.__cause__
                if not self._sizes or getattr(cause, "errno", None) not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._remove(min(self._sizes))

    def size_bytes(self) -> int:
        """Return the bytes of the tables that are there now."""
        return sum(self._sizes.values()) + self._part.size_bytes()

    def discard(self) -> None:
        """Remove a ring that never came to hold anything."""
        self._part.discard()
        os.close(self._lock)
        clear_trace(self._directory)
        self._directory.close()
        self._place.above().remove_folder(self._place.name)

    def close(self, meta: Meta) -> None:
        """End the last part and describe the whole."""
        try:
            self._making_room(lambda: self._part.close(self._of_part(meta)))
            self._making_room(lambda: write_meta(self._directory, self._of_ring(meta)))
        finally:
            os.close(self._lock)
            self._directory.close()
            self._place.folder.close()

    def _abandon(self, is_new: bool) -> None:
        """Leave nothing of a ring that could not be begun: it would be in the way of the next one."""
        with suppress(OSError, TraceError):
            clear_trace(self._directory)
            if is_new:
                self._place.above().remove_folder(self._place.name)
        if hasattr(self, "_lock"):
            os.close(self._lock)
        self._directory.close()
        self._place.folder.close()

    def _begin(self, number: int, meta: Meta) -> None:
        for kind in ("carry", "part"):  # of a try that failed
            remove_part(self._directory, f"{number:06}.{kind}")
        if number > 1:
            carry = TraceWriter(OutputPlace.inside(self._directory, f"{number:06}.carry"), meta)
            try:
                for name, columns in self._carried.carry():
                    carry.append(name, columns)
                carry.close(meta)
            except OSError:
                carry.discard()
                raise
        began = meta if number == 1 else replace(meta, started_ns=monotonic_ns(), clock=Clock.now())
        of_part = since(began, began) if number > 1 else began
        self._part = TraceWriter(OutputPlace.inside(self._directory, f"{number:06}.part"), of_part)
        self._number, self._begins[number] = number, began

    def _is_full(self, meta: Meta) -> bool:
        keep, age_ns = self._keep, monotonic_ns() - self._begins[self._number].started_ns
        return (keep.ns is not None and age_ns > keep.ns // _PARTS) or (
            keep.size_bytes is not None and self._part.size_bytes() > keep.size_bytes // (_PARTS + 2)
        )

    def _trim(self, meta: Meta) -> None:
        """Remove what is more than wanted, unless somebody reads it; the description is replaced first."""
        kept = sorted(self._sizes)
        while kept and self._is_too_much(kept):
            kept.pop(0)
        gone = sorted(self._sizes.keys() - set(kept))
        if gone and len(gone) <= _HELD_PARTS and self._is_read():
            gone = []
        write_meta(self._directory, self._of_ring(meta, gone))
        for number in gone:
            self._remove(number)

    def _is_read(self) -> bool:
        """Say whether somebody reads the ring, who wants it to stay as it is."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return isinstance(error, BlockingIOError)
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        return False

    def _is_too_much(self, kept: list[int]) -> bool:
        keep, size = self._keep, sum(self._sizes[number] for number in kept) + self._part.size_bytes()
        after_ns = monotonic_ns() - self._begins[kept[1] if len(kept) > 1 else self._number].started_ns
        return (keep.ns is not None and after_ns > keep.ns) or (
            keep.size_bytes is not None and size > keep.size_bytes - keep.size_bytes // (_PARTS + 2)
        )

    def _remove(self, number: int) -> None:
        self._sizes.pop(number, None)
        self._begins.pop(number, None)
        for kind in ("part", "carry"):
            with suppress(OSError, TraceError):  # a file that somebody reads stays on NFS, by another name
                remove_part(self._directory, f"{number:06}.{kind}")

    def _of_part(self, meta: Meta) -> Meta:
        return since(meta, self._begins[self._number]) if self._number > 1 else meta

    def _of_ring(self, meta: Meta, gone: Collection[int] = ()) -> Meta:
        first = min(self._begins.keys() - set(gone), default=1)
        return since(meta, self._begins[first]) if first > 1 else meta


class RingReader:
    """A ring as one trace (`TraceSource`): the parts that are there one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._directory = open_trace(path)
        self._lock = self._locked()
        self.meta = read_meta(self._directory)
        self.still_recording = self.meta.stopped_ns is None and at_work.is_held(self._directory)
        self._parts = self._opened()
        self.hosts = (Host(self.meta.host, self.meta, path.name),)

    def _locked(self) -> object:
        """Keep the recorder from removing parts while this is read."""
        try:
            lock = io.FileIO(self._directory.open(RING_FILE))
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # no such file, or a file system without locks
            return None
        return lock

    def _opened(self) -> list[TraceReader]:
        names = sorted(name for name in self._directory.names() if PART_OF_A_RING.fullmatch(name))
        parts = [name for name in names if name.endswith(".part")]
        readers = [reader for name in parts if (reader := _part(self.path / name)) is not None]
        while len(readers) > 1 and readers[1].meta.started_ns <= self.meta.started_ns:
            readers.pop(0)  # it was to be removed when the recorder was killed
        if not readers:
            raise TraceError(f"{self.path} holds no part of a recording", "record again")
        carry = readers[0].path.with_suffix(".carry")
        return [reader for reader in (_part(carry) if carry.name in names else None, *readers) if reader is not None]

    @property
    def truncated(self) -> bool:
        """Whether the recorder did not finish."""
        return self.meta.stopped_ns is None and not self.still_recording

    @property
    def damage(self) -> tuple[str, ...]:
        """What was found in the tables that no recorder writes: a sentence each."""
        gone = sum(part.is_gone for part in self._parts)
        removed = f"{count(gone, 'part')} of the ring went while it was read, rows may be missing: read a saved one"
        return (*(sentence for part in self._parts for sentence in part.damage), *([removed] if gone else []))

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the complete record batches of table `name` in all parts."""
        for part in self._parts:
            for batch in part.batches(name):
                yield self._kept(name, batch)

    def places(self, name: str, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield where each complete batch of table `name` lies, and some of its columns."""
        for number, part in enumerate(self._parts):
            for offset, batch in part.places(name, columns):
                if (kept := self._kept(name, batch)).num_rows:
                    yield number << _SEGMENT_BITS | offset, kept

    def batches_at(self, name: str, offsets: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of table `name` that lie at some places. Raises TraceError where one is gone."""
        for place in offsets:
            part = self._parts[place >> _SEGMENT_BITS]
            yield from (self._kept(name, batch) for batch in part.batches_at(name, [place & (1 << _SEGMENT_BITS) - 1]))

    def table(self, name: str) -> pa.Table:
        """Return table `name` whole; empty, with the right columns, if it was not recorded."""
        return pa.Table.from_batches(list(self.batches(name)), schema=tables()[name])

    def _kept(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out what is older than the ring: what was under way as its first part began, or was to be removed."""
        column = time_column(name)
        if column is None or KINDS[name].holds or column not in batch.schema.names or not batch.num_rows:
            return batch
        kept = to_numpy(batch.column(column)).astype(np.int64) >= self.meta.started_ns
        if "kind" in batch.schema.names:
            kept |= outlasts(name, {"kind": to_numpy(batch.column("kind"))})
        return batch if kept.all() else select(batch, kept)


def is_ring(path: Path) -> bool:
    """Say whether a folder holds a ring; a copy of one may lack the hidden file."""
    return status_of(path / RING_FILE) is not None or bool(matching(path, "[0-9]*.part"))


def reader_of(path: Path) -> TraceReader | RingReader:
    """Open a trace, or a ring. Raises TraceError."""
    return RingReader(path) if is_ring(path) else TraceReader(path)


def _part(path: Path) -> TraceReader | None:
    try:
        return TraceReader(path)
    except TraceError:  # it is just being removed, or begun
        return None


def since(meta: Meta, began: Meta) -> Meta:
    """Return the description of what came after another one of the same recording: losses and costs without its."""
    counts = [each.name for each in fields(Losses) if each.name != "truncated"]
    losses = {name: getattr(meta.losses, name) - getattr(began.losses, name) for name in counts}
    cost, before = meta.cost, began.cost
    of_probes = {each.name: each.cpu_s for each in before.probes}
    probes = (ProbeCost(each.name, max(0.0, each.cpu_s - of_probes.get(each.name, 0.0))) for each in cost.probes)
    of_programs = {each.name: each for each in before.programs}
    return replace(
        meta,
        started_ns=began.started_ns,
        clock=began.clock,
        trimmed=True,
        losses=replace(meta.losses, **losses),
        cost=Cost(
            wall_s=max(0.0, cost.wall_s - before.wall_s),
            cpu_s=max(0.0, cost.cpu_s - before.cpu_s),
            peak_memory_bytes=cost.peak_memory_bytes,
            trace_bytes=cost.trace_bytes,
            bpf_sampled_s=max(0.0, cost.bpf_sampled_s - before.bpf_sampled_s),
            programs=tuple(_since_program(each, of_programs.get(each.name)) for each in cost.programs),
            probes=tuple(probes),
        ),
    )


def _since_program(now: ProgramCost, before: ProgramCost | None) -> ProgramCost:
    if before is None:
        return now
    return ProgramCost(now.name, max(0, now.runs - before.runs), max(0, now.run_time_ns - before.run_time_ns))
