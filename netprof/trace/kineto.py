"""What torch.profiler writes (Kineto's Chrome trace JSON): whose it is, which clock its times are on, and its events.

A profile may be hundreds of megabytes, and the job wrote it: it is read as it streams by, in bounded memory.
"""

from __future__ import annotations

import gzip
import os
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import IO, Any

import ijson
import numpy as np
import numpy.typing as npt

from netprof.errors import TraceError
from netprof.files import Directory, open_file
from netprof.model import Clock
from netprof.schema import Profiled

_GZIP = b"\x1f\x8b"
_LATEST_NS = 1 << 62
_LONGEST_NS = 1 << 61
_MOST_BYTES, _MOST_TOKEN_BYTES = 1 << 30, 4 << 20
_PIECE_BYTES = 1 << 16
_DEEPEST, _MOST_EVENTS, _MOST_PIDS = 100, 1 << 24, 1 << 12
_BEGINS, _ENDS = ("start_map", "start_array"), ("end_map", "end_array")
_ENTRIES = ("ph", "cat", "name", "pid", "ts", "dur")
_IN_EVENTS: list[Any] = ["traceEvents", None]
_IN_AN_EVENT, _IN_ABOUT = 3, 2
"""How deep an event's entries lie, and those of what a process says of itself."""

_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_ON_HOST = ("cpu_op", "user_annotation")
_COLLECTIVES = ("nccl", "gloo:", "mpi:", "ucc:", "c10d::", "record_param_comms")
"""How the names of events begin that communicate; torch names the backend first, NCCL's kernels themselves."""
_AROUND = ("DistributedDataParallel.", "Optimizer.", "ProfilerStep", "enumerate(")
"""Annotations around computing, which is under them."""

Int64 = npt.NDArray[np.int64]
OnRead = Callable[[int, int], None]
"""Told how many bytes of a file have been read, and how many it has."""


class EventKind(IntEnum):
    """What an event is."""

    OTHER = 0
    GPU_COMPUTES = 1
    GPU_COMMUNICATES = 2
    HOST_COMPUTES = 3
    HOST_COMMUNICATES = 4
    AROUND = 5


class NoJson(TraceError):
    """A file is no JSON, or not to its end."""


@dataclass(frozen=True)
class Kineto:
    """One process's profile. Its times are of the realtime clock, from `base_ns` on (0: since 1970).

    `begin_ns`, `end_ns` and `kinds` (`EventKind`) have an entry for each event of a known time; one without a known
    length ends where it begins. `pids` are the processes that it names, as they number themselves, and `rank` what the
    process says of itself, None where it says nothing.
    """

    path: Path
    base_ns: int
    begin_ns: Int64
    end_ns: Int64
    kinds: npt.NDArray[np.uint8]
    pids: frozenset[int]
    rank: int | None

    @property
    def first_ns(self) -> int:
        """When its first event begins, on the realtime clock."""
        return self.base_ns + int(self.begin_ns.min())

    @property
    def last_ns(self) -> int:
        """When its last event begins, on the realtime clock."""
        return self.base_ns + int(self.begin_ns.max())


@dataclass
class _PartialProfile:
    """What was read of a profile so far."""

    path: Path
    base_ns: int = 0
    rank: int | None = None
    has_events: bool = False
    pids: set[int] = field(default_factory=set)
    begin_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    kinds: array[int] = field(default_factory=lambda: array("B"))

    def take_entry(self, path: Sequence[Any], value: Any) -> None:
        if path == ["baseTimeNanoseconds"]:
            self.base_ns = _whole(value) or 0
        elif path == ["distributedInfo", "rank"]:
            self.rank = _whole(value)

    def take(self, event: dict[str, Any]) -> None:
        if event.get("ph") != "X":
            return
        pid = _whole(event.get("pid"))
        if pid is not None:
            self.pids.add(pid)
        begin_ns = _nanoseconds(event.get("ts"))
        if begin_ns is not None:
            self.begin_ns.append(begin_ns)
            self.end_ns.append(begin_ns + (_nanoseconds(event.get("dur")) or 0))
            self.kinds.append(_kind(event.get("cat"), str(event.get("name", ""))))
        if len(self.kinds) > _MOST_EVENTS or len(self.pids) > _MOST_PIDS:
            raise _too_large(self.path)


def read_kineto(path: Path, directory: Directory | None = None, on_read: OnRead | None = None) -> Kineto:
    """Read a profile, in a `directory` by its name.

    Raises TraceError for what is none, of which NoJson for what is no JSON to its end.
    """
    profile = _PartialProfile(path)
    with _json_of(path, directory, on_read) as file:
        try:
            _read(file, profile)
        except (ijson.JSONError, ValueError, RecursionError) as error:
            raise NoJson(f"{path} is no profile of torch.profiler: it holds no JSON") from error
    if not profile.has_events:
        raise TraceError(f"{path} is no profile of torch.profiler: it has no traceEvents")
    if not profile.begin_ns:
        raise TraceError(f"{path} holds no event of a known time")
    return Kineto(
        path=path,
        base_ns=profile.base_ns,
        begin_ns=np.frombuffer(profile.begin_ns, np.int64),
        end_ns=np.frombuffer(profile.end_ns, np.int64),
        kinds=np.frombuffer(profile.kinds, np.uint8),
        pids=frozenset(profile.pids),
        rank=profile.rank,
    )


def _read(file: _BoundedJson, profile: _PartialProfile) -> None:
    """Take what is wanted of a profile as it streams by: `path` are the keys above a value, None in an array."""
    path: list[Any] = []
    event: dict[str, Any] | None = None
    for kind, value in ijson.basic_parse(file, use_float=True, buf_size=_PIECE_BYTES):
        file.silent_bytes = 0
        if kind == "map_key":
            path[-1] = value
        elif kind in _BEGINS:
            profile.has_events |= path == ["traceEvents"] and kind == "start_array"
            if path == _IN_EVENTS and kind == "start_map":
                event = {}
            if len(path) == _DEEPEST:
                raise TraceError(f"{profile.path} is no profile of torch.profiler: it is nested {_DEEPEST} deep")
            path.append(None)
        elif kind in _ENDS:
            path.pop()
            if event is not None and path == _IN_EVENTS:
                profile.take(event)
                event = None
        elif event is not None and len(path) == _IN_AN_EVENT:
            if path[-1] in _ENTRIES:
                event[path[-1]] = value
        elif len(path) <= _IN_ABOUT and path != _IN_EVENTS:
            profile.take_entry(path, value)


class _BoundedJson:
    """A file that is read up to a limit, and no further than a token may be long without one being found."""

    def __init__(self, path: Path, file: IO[bytes], on_read: Callable[[], None] | None = None) -> None:
        self._path, self._file, self._left_bytes, self._on_read = path, file, _MOST_BYTES, on_read
        self.silent_bytes = 0

    def read(self, size: int) -> bytes:
        """Return bytes, at most `size`. Raises TraceError beyond the limits, and for what is damaged."""
        try:
            data = self._file.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise TraceError(f"{self._path} is compressed, and damaged") from error
        except OSError as error:
            raise _unreadable(self._path, error) from error
        self._left_bytes -= len(data)
        self.silent_bytes += len(data)
        if self._left_bytes < 0:
            raise _too_large(self._path)
        if self.silent_bytes > _MOST_TOKEN_BYTES:
            raise TraceError(f"{self._path} is no profile of torch.profiler: a text in it does not end")
        if self._on_read is not None:
            self._on_read()
        return data


@contextmanager
def _json_of(path: Path, directory: Directory | None = None, on_read: OnRead | None = None) -> Iterator[_BoundedJson]:
    """Open the JSON of a profile, which may be compressed. Raises TraceError, also while it is read."""
    try:
        descriptor = open_file(path, path) if directory is None else directory.open(path.name)
    except OSError as error:
        raise _unreadable(path, error) from error
    with open(descriptor, "rb") as file:
        zipped = _BoundedJson(path, file).read(len(_GZIP)) == _GZIP
        file.seek(0)
        size = os.fstat(file.fileno()).st_size
        tell = None if on_read is None else lambda: on_read(file.tell(), size)
        yield _BoundedJson(path, gzip.GzipFile(fileobj=file) if zipped else file, tell)  # type: ignore[arg-type]


def copy_json(path: Path, out: IO[bytes]) -> None:
    """Write the JSON of a profile into a file. Raises TraceError, OSError."""
    with _json_of(path) as file:
        while piece := file.read(_PIECE_BYTES):
            file.silent_bytes = 0
            out.write(piece)


def _unreadable(path: Path, error: OSError) -> TraceError:
    return TraceError(f"cannot read {path}: {error.strerror or error}")


def _too_large(path: Path) -> TraceError:
    return TraceError(
        f"{path} is larger than profiles are that netprof reads", "profile fewer iterations, without stacks"
    )


def _kind(category: Any, name: str) -> EventKind:
    on_gpu = category in _ON_GPU
    if not on_gpu and category not in _ON_HOST:
        return EventKind.OTHER
    if name.startswith(_COLLECTIVES):
        return EventKind.GPU_COMMUNICATES if on_gpu else EventKind.HOST_COMMUNICATES
    if on_gpu:
        return EventKind.GPU_COMPUTES
    return EventKind.AROUND if name.startswith(_AROUND) else EventKind.HOST_COMPUTES


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _LATEST_NS else None


def _nanoseconds(us: Any) -> int | None:
    """Return microseconds as nanoseconds; None for what is no time."""
    known = type(us) in (int, float) and 0 <= us < _LONGEST_NS / 1000
    return round(1000 * us) if known else None


Columns = dict[str, Int64]


def profiled_rows(kineto: Kineto, pid: int, clock: Clock) -> Columns:
    """Return the rows of table `profiled` that a profile gives of a process; `clock` is its host's.

    What ran on a GPU counts, and without any of that what ran on the host. Raises TraceError for a profile that tells
    of neither.
    """
    first, last, kinds = _on_clock(kineto, clock)
    parts = {Profiled.SEEN: (first.min(keepdims=True), last.max(keepdims=True))}
    for computes, communicates in (
        (EventKind.GPU_COMPUTES, EventKind.GPU_COMMUNICATES),
        (EventKind.HOST_COMPUTES, EventKind.HOST_COMMUNICATES),
    ):
        used = {Profiled.COMPUTES: kinds == computes, Profiled.COMMUNICATES: kinds == communicates}
        if any(rows.any() for rows in used.values()):
            return _columns(pid, parts | {kind: _merged(first[rows], last[rows]) for kind, rows in used.items()})
    hint = "profile with activities CPU or CUDA"
    raise TraceError(f"{kineto.path} holds neither kernels nor operators", hint)


def _on_clock(kineto: Kineto, clock: Clock) -> tuple[Int64, Int64, npt.NDArray[np.uint8]]:
    """Return when events begin and end on a host's clock, and what they are."""
    zero_ns = kineto.base_ns - clock.realtime_ns + clock.monotonic_ns
    known = (kineto.begin_ns >= -zero_ns) & (kineto.end_ns < _LATEST_NS - zero_ns)
    if not known.any():
        raise TraceError(f"{kineto.path} holds no event at a time of its host's clock")
    return kineto.begin_ns[known] + zero_ns, kineto.end_ns[known] + zero_ns, kineto.kinds[known]


def _columns(pid: int, parts: Mapping[Profiled, tuple[Int64, Int64]]) -> Columns:
    kinds = [np.full(len(first), int(kind)) for kind, (first, _) in parts.items()]
    first, last = (np.concatenate([pair[side] for pair in parts.values()]) for side in (0, 1))
    return {"pid": np.full(len(first), pid), "kind": np.concatenate(kinds), "first_ns": first, "last_ns": last}


def _merged(first: Int64, last: Int64) -> tuple[Int64, Int64]:
    """Return the union of intervals, ascending and disjoint."""
    real = last > first
    order = np.argsort(first[real], kind="stable")
    first, last = first[real][order], np.maximum.accumulate(last[real][order])
    if len(first) == 0:
        return first, last
    opens = np.append(True, first[1:] > last[:-1])
    return first[opens], last[np.append(opens[1:], True)]
