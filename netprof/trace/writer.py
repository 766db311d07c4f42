"""Writing a trace: appended batch by batch, so that a kill at any moment leaves what came before."""

from __future__ import annotations

import contextlib
import io
import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from netprof.errors import TraceError
from netprof.model import Meta
from netprof.schema import tables
from netprof.trace import at_work
from netprof.trace.columns import to_arrow
from netprof.trace.meta import META_FILE, give_to_user, write_meta

_SUFFIX = ".arrows"
_BALLAST = ".ballast"  # given back when the disk is full, so that the last meta.json still fits
_BALLAST_BYTES = 256 << 10


def table_path(directory: Path, name: str) -> Path:
    """Return the file of table `name` in a trace."""
    return directory / (name + _SUFFIX)


class TraceWriter:
    """Creates a trace directory and appends to its tables.

    Raises TraceError when `path` is in the way and `force` is not given, or cannot be made.
    """

    def __init__(self, path: Path, meta: Meta, *, force: bool = False) -> None:
        self.path = path
        self._streams: dict[str, _Stream] = {}
        try:
            _make_room(path, force)
            _reserve(path / _BALLAST)
            write_meta(path, meta)
            self._let_go = weakref.finalize(self, at_work.let_go, at_work.hold(path))
        except OSError as error:
            raise TraceError(
                f"cannot write the trace to {path}: {error.strerror}", "choose another place with --out"
            ) from error

    def append(self, name: str, columns: Mapping[str, Sequence[Any] | Any]) -> None:
        """Append rows to table `name`: one sequence or array per column, all of one length.

        Raises OSError (ENOSPC, say); the table then still ends with its last complete batch.
        """
        schema = tables()[name]
        arrays = [to_arrow(columns[field.name], field.type) for field in schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        if batch.num_rows == 0:
            return
        if name not in self._streams:
            self._streams[name] = _Stream(table_path(self.path, name), schema)
        self._streams[name].append(batch)

    def update_meta(self, meta: Meta) -> None:
        """Replace `meta.json`. Raises OSError."""
        write_meta(self.path, meta)

    def size_bytes(self) -> int:
        """Return the bytes written to the tables so far."""
        return sum(stream.size_bytes for stream in self._streams.values())

    def discard(self) -> None:
        """Remove a trace that never came to hold anything."""
        _clear_old_trace(self.path)
        self.path.rmdir()
        self._let_go()

    def close(self, meta: Meta) -> None:
        """End every table and write the final `meta.json`; a full disk costs the end markers, not the data."""
        (self.path / _BALLAST).unlink(missing_ok=True)  # room for meta.json on a full disk
        for stream in self._streams.values():
            stream.close()
        write_meta(self.path, meta)
        self._let_go()


class _Stream:
    """One table's file: an Arrow IPC stream whose every append reaches the kernel, or is undone."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.size_bytes = 0
        self._pending: list[bytes] = []
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        give_to_user(path)
        sink = pa.PythonFile(_Sink(self._pending), mode="w")
        options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1), use_threads=False)
        self._writer = pa.ipc.new_stream(sink, schema, options=options)

    def append(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self._write_pending()

    def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):  # only the end marker would be missing
            self._write_pending()
        os.close(self._descriptor)

    def _write_pending(self) -> None:
        data = memoryview(b"".join(self._pending))
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


def _make_room(path: Path, force: bool) -> None:
    """Create the trace directory, or clear an older trace out of it. Raises TraceError or OSError."""
    if path.is_symlink() or path.exists():
        if not force:
            raise TraceError(f"{path} exists already", "choose another --out, or overwrite it with --force")
        _clear_old_trace(path)
    else:
        path.mkdir(parents=True, mode=0o755)
        give_to_user(path)


def _clear_old_trace(path: Path) -> None:
    """Delete an old trace's own files and nothing else."""
    known = {META_FILE, META_FILE + ".partial", _BALLAST} | {name + _SUFFIX for name in tables()}
    if path.is_symlink() or not path.is_dir() or any(entry.name not in known for entry in path.iterdir()):
        raise TraceError(
            f"{path} holds something other than a trace; --force does not delete it", "choose another --out"
        )
    for entry in list(path.iterdir()):
        entry.unlink()


def _reserve(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, bytes(_BALLAST_BYTES))
    finally:
        os.close(descriptor)
