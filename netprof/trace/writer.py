"""Writing a trace: appended batch by batch, so that a kill at any moment leaves what came before."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from netprof.errors import TraceError
from netprof.files import Directory, OutputPlace, as_user, caller, real_path, status_of
from netprof.model import Meta
from netprof.schema import recorded_columns, tables
from netprof.trace import at_work
from netprof.trace.columns import to_arrow
from netprof.trace.meta import META_FILE, PARTIAL_FILE, write_meta
from netprof.units import size

_SUFFIX = ".arrows"
_LONGEST_META_BYTES = 64 << 20
PART_OF_A_RING = re.compile(r"[0-9]{6,9}\.(part|carry)")
"""What the folders in a ring are called: see ring.py."""
RING_FILE = ".ring"
"""What tells a ring from another trace; who reads it holds a lock on this file."""
_BALLAST = ".ballast"  # given back when the disk is full, so that the last meta.json still fits
_BALLAST_BYTES = 256 << 10
_FEW_ROWS, _MANY_ROWS = 500, 20_000
"""Batches of more rows than the first and less than the second are packed by zstd, others by lz4: what zstd takes to
begin with each column is most of a small batch's cost, and a row of a large one costs it twice as much.
"""


def table_file(name: str) -> str:
    """Return the file of table `name` in a trace."""
    return name + _SUFFIX


class TraceWriter:
    """Creates a trace directory and appends to its tables.

    What is not recorded now may be packed by a higher `level` of zstd.
    As a context manager it leaves nothing of a trace that could not be finished inside the block, and raises TraceError
    for an OSError.
    Raises TraceError when the `place` is in the way and `force` is not given, is being recorded, or cannot be made;
    NetprofError where a link of another user is on the way to it.
    """

    def __init__(self, place: Path | OutputPlace, meta: Meta, *, force: bool = False, level: int | None = None) -> None:
        self._level = level
        self.path = path = place if isinstance(place, Path) else place.path
        self._version = meta.schema_version
        self._streams: dict[str, _Stream] = {}
        try:
            self._place = OutputPlace(place) if isinstance(place, Path) else place
            self._directory, is_new = make_room(self._place, force)
        except OSError as error:
            raise cannot_write(path, error) from error
        try:
            with os.fdopen(self._directory.create(_BALLAST), "wb", buffering=0) as ballast:
                ballast.write(bytes(_BALLAST_BYTES))
            write_meta(self._directory, meta)
        except OSError as error:
            if is_new:  # it would be in the way of the next one
                with suppress(OSError):
                    for name in (_BALLAST, PARTIAL_FILE, META_FILE):
                        self._directory.remove(name)
                    self._place.above().remove_folder(self._place.name)
            self._directory.close()
            self._place.folder.close()
            raise cannot_write(path, error) from error

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            return
        trace_error = cannot_write(self.path, error) if isinstance(error, OSError) else None  # while there is a folder
        with suppress(OSError, TraceError):
            self.discard()
        if trace_error is not None:
            raise trace_error from error

    def append(self, name: str, columns: Mapping[str, Sequence[Any] | Any]) -> None:
        """Append rows to table `name`: one sequence or array per column, all of one length.

        Raises OSError (ENOSPC, say); the table then still ends with its last complete batch.
        """
        schema = tables()[name]
        arrays = [to_arrow(columns[field.name], field.type) for field in schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        self.append_batch(name, batch)

    def append_batch(self, name: str, batch: pa.RecordBatch) -> None:
        """Append a batch of a table, without the columns that the trace lacks by its version. Raises OSError."""
        if batch.num_rows == 0:
            return
        if name not in self._streams:
            schema = recorded_columns(name, self._version)
            self._streams[name] = _Stream(self._directory.create(table_file(name)), schema, self._level)
        self._streams[name].append(batch)

    def update_meta(self, meta: Meta) -> None:
        """Replace `meta.json`. Raises OSError, TraceError as `write_meta`."""
        write_meta(self._directory, meta)

    def size_bytes(self) -> int:
        """Return the bytes written to the tables so far."""
        return sum(stream.size_bytes for stream in self._streams.values())

    def discard(self) -> None:
        """Remove a trace that never came to hold anything."""
        for stream in self._streams.values():
            stream.close()
        clear_trace(self._directory)
        self._directory.close()
        self._place.above().remove_folder(self._place.name)
        self._place.folder.close()

    def close(self, meta: Meta) -> None:
        """End every table and write the final `meta.json`; a full disk costs the end markers, not the data."""
        self._directory.remove(_BALLAST)  # room for meta.json on a full disk
        for stream in self._streams.values():
            stream.close()
        write_meta(self._directory, meta)
        self._directory.close()
        self._place.folder.close()


class _Stream:
    """One table's file: an Arrow IPC stream whose every append reaches the kernel, or is undone."""

    def __init__(self, descriptor: int, schema: pa.Schema, level: int | None) -> None:
        self.size_bytes = 0
        self._pending: list[bytes] = []
        self._descriptor = descriptor
        self._names = schema.names
        codecs = (pa.Codec("zstd", -1), pa.Codec("lz4")) if level is None else (pa.Codec("zstd", level),) * 2
        self._small, self._fast = (self._writer(codec, schema) for codec in codecs)
        self._pending.clear()
        self._schema = schema.serialize().to_pybytes()  # which each has written, and the file begins with

    def _writer(self, codec: pa.Codec, schema: pa.Schema) -> pa.ipc.RecordBatchStreamWriter:
        options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
        writer = pa.ipc.new_stream(pa.PythonFile(_Sink(self._pending), mode="w"), schema, options=options)
        writer.write_batch(pa.RecordBatch.from_arrays([to_arrow((), field.type) for field in schema], schema=schema))
        return writer

    def append(self, batch: pa.RecordBatch) -> None:
        writer = self._small if _FEW_ROWS < batch.num_rows < _MANY_ROWS else self._fast
        writer.write_batch(batch if batch.num_columns == len(self._names) else batch.select(self._names))
        self._write_pending()

    def close(self) -> None:
        if self._descriptor < 0:  # what follows failed, and is tried again
            return
        self._small.close()
        with suppress(OSError):  # only the end marker would be missing
            self._write_pending()
        os.close(self._descriptor)
        self._descriptor = -1

    def _write_pending(self) -> None:
        data = memoryview(b"".join(self._pending if self.size_bytes else [self._schema, *self._pending]))
        self._pending.clear()
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            os.ftruncate(self._descriptor, self.size_bytes)
            os.lseek(self._descriptor, self.size_bytes, os.SEEK_SET)
            raise
        self.size_bytes += written


class _Sink(io.RawIOBase):
    """The file object Arrow writes to: it only collects."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._chunks.append(bytes(data))
        return len(data)


def cannot_write(path: Path, error: OSError) -> TraceError:
    """Return the error for a trace that cannot be written, which says what stands in the way."""
    message = f"cannot write the trace to {path}: {error.strerror}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TraceError(f"{message} ({_disk(path)})", "make room there, or choose another place")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TraceError(message, "allow more open files with 'ulimit -n 65536'")
    return TraceError(message, "choose another place with --out")


def _disk(path: Path) -> str:
    """Return where the file system of a trace is mounted, and how much room it has."""
    place = real_path(next((each for each in (path, *path.parents) if status_of(each) is not None), Path("/")))
    with as_user(caller()):
        while not place.is_mount():
            place = place.parent
        room = os.statvfs(place)
    return f"{size(room.f_bavail * room.f_frsize)} of {size(room.f_blocks * room.f_frsize)} are left on {place}"


def require_apart(trace: Path, place: Path | OutputPlace) -> None:
    """Raise TraceError where a trace would be made in the place of the one that it is made from."""
    out = place if isinstance(place, Path) else place.path
    there, read = status_of(out), status_of(trace)
    if there is not None and read is not None and os.path.samestat(there, read):
        raise TraceError(f"{out} is the trace that is read: it would be lost", "choose another name")


def make_room(place: OutputPlace, force: bool) -> tuple[Directory, bool]:
    """Create the trace directory, or clear an older trace out of it; return it held, and whether it is a new one.

    Raises NetprofError or OSError.
    """
    kind = place.kind()
    if kind is None:
        directory = place.above().make(place.name)
    elif not force:
        raise TraceError(f"{place.path} exists already", "choose another --out, or overwrite it with --force")
    elif kind != stat.S_IFDIR:
        raise _not_a_trace(place.path)
    else:
        directory = place.folder.folder(place.name) if place.missing else place.folder
    directory.path = place.path
    if not at_work.hold(directory):
        message = f"{place.path} is being recorded by another netprof"
        raise TraceError(message, "end that recording, or choose another --out")
    clear_trace(directory)
    return directory, kind is None


def remove_trace(path: Path) -> None:
    """Remove a trace that is not being recorded, and nothing else. Raises OSError, NetprofError."""
    place = OutputPlace(path)
    directory, _ = make_room(place, force=True)
    directory.close()
    place.folder.remove_folder(place.name)
    place.folder.close()


def clear_trace(directory: Directory) -> None:
    """Delete an old trace's own files and nothing else."""
    known = {META_FILE, PARTIAL_FILE, _BALLAST, RING_FILE} | {table_file(name) for name in tables()}
    names = directory.names()
    parts = [name for name in names if PART_OF_A_RING.fullmatch(name)]
    files = [name for name in names if name not in parts]
    if not known.issuperset(files) or not _is_of_netprof(directory, names):
        raise _not_a_trace(directory.path)
    for name in parts:
        remove_part(directory, name)
    for name in sorted(files, key=META_FILE.__eq__):  # the last one says whose the others are, should this be killed
        directory.remove(name)


def remove_part(directory: Directory, name: str) -> None:
    """Remove a ring's part, a folder with the files of a trace, and nothing else. Raises OSError, TraceError."""
    if directory.kind(name) is None:
        return
    part = directory.folder(name)
    clear_trace(part)
    part.close()
    directory.remove_folder(name)


def _is_of_netprof(directory: Directory, names: Collection[str]) -> bool:
    """Say whether files that are called as a trace's are one's: its description is the first of them to be written."""
    if META_FILE not in names:
        return {_BALLAST, PARTIAL_FILE, RING_FILE}.issuperset(names)
    try:
        with open(directory.open(META_FILE), "rb") as file:
            document = json.loads(file.read(_LONGEST_META_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "netprof_version" in document


def _not_a_trace(path: Path) -> TraceError:
    return TraceError(f"{path} holds something other than a trace; --force does not delete it", "choose another --out")


class DiscardedTrace:
    """Takes what a `TraceWriter` takes, and keeps nothing of it."""

    def append(self, name: str, columns: Mapping[str, Sequence[Any] | Any]) -> None:
        """Take rows."""

    def update_meta(self, meta: Meta) -> None:
        """Take a description."""

    def size_bytes(self) -> int:
        """Return 0."""
        return 0

    def discard(self) -> None:
        """Do nothing."""

    def close(self, meta: Meta) -> None:
        """Do nothing."""
