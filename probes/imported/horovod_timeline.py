"""A Horovod timeline file (HOROVOD_TIMELINE) as marks: what the coordinator wrote about every tensor.

The file is JSON that grows at its end; a killed job leaves it cut off. It is read object by object, and what comes
after the first thing that is none is missing. The job wrote it, so nothing in it is believed to be well-formed.

Only rank 0 writes one. It does not say when its own process enqueued a tensor, but when the first rank asked for it
(NEGOTIATE_...), which is taken for the enqueuing. One response is performed at a time, so its tensors are those that
are open together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeGuard

import numpy as np
import numpy.typing as npt

from netprof.errors import TraceError
from netprof.files import open_file
from netprof.schema import CollectiveKind, MarkKind

PID, TID, BACKGROUND_TID = 1, 1, 2
"""The timeline names no process: rank 0 is called process 1, its background thread 2."""

_LARGEST_BYTES = 1 << 30
_AT_ONCE = 1 << 18
_LONGEST_EVENT = 1 << 20
"""Characters of an event of the file: Horovod's are some hundred long."""
_MOST_MARKS = 1 << 22
_MOST_TENSORS = 1 << 16
_DEEPEST = 64
_LONGEST_US, _LATEST_US = 1 << 50, 1 << 52  # as ns, both can be in a trace
_NAME_BYTES = 32  # as HOROVOD_RESPONSE counts names
_KINDS = {
    "ALLREDUCE": CollectiveKind.ALL_REDUCE,
    "ADASUM": CollectiveKind.ALL_REDUCE,
    "ALLGATHER": CollectiveKind.ALL_GATHER,
    "BROADCAST": CollectiveKind.BROADCAST,
    "ALLTOALL": CollectiveKind.ALL_TO_ALL,
    "REDUCESCATTER": CollectiveKind.REDUCE_SCATTER,
}
_NAMED = 4
_LONGEST_NAME = 120
_TRANSFER = re.compile(r"(GLOO|MPI|NCCL)_")
_ELEMENT_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
_Row = tuple[int, int, int, int, int, int]  # time_ns, tid, kind, arg0, arg1, arg2


@dataclass(frozen=True, eq=False)
class Timeline:
    """The columns of table `marks`, times in ns since the timeline began at `start_realtime_ns`.

    `ranks` is one more than the highest rank that took part in a negotiation, None if none was seen. `stalled` says
    which operation is waited for at the end, and which ranks have not asked for it; "" for none. `left_out` says what
    of the file is not in the marks, though it could be read.
    """

    marks: dict[str, npt.NDArray[np.generic]]
    start_realtime_ns: int
    last_ns: int
    ranks: int | None
    truncated: bool
    stalled: str = ""
    left_out: tuple[str, ...] = ()


@dataclass
class _Response:
    """One or many tensors that are performed together."""

    begin_ns: int
    kind: int
    tensors: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    transfer_ns: int | None = None
    transferred_ns: int | None = None
    bytes: int = 0


def read_timeline(path: Path) -> Timeline:
    """Read a timeline file. Raises TraceError when it is none, or cannot be read."""
    try:
        with open(open_file(path, path), encoding="utf-8", errors="replace") as file:
            return _TimelineReader(file).read(path)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}", "name a file of HOROVOD_TIMELINE") from error


class _TimelineReader:
    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._read = 0
        self._left_out: list[str] = []
        self._crowded = 0  # events of tensors after the first ones
        self._rows: list[_Row] = []
        self._stack: dict[int, list[str]] = {}  # of each tensor: the names of what has begun
        self._handles: dict[int, int] = {}
        self._response: _Response | None = None
        self._start_us = 0
        self._last_ns = 0
        self._highest_rank = -1
        self._names: dict[int, str] = {}
        self._asked: dict[int, tuple[int, set[int]]] = {}  # of each tensor that is negotiated: since when, by whom
        self._truncated = False
        self._handle = 0

    def read(self, path: Path) -> Timeline:
        for event in self._events():
            self._take(event)
        if not self._rows:
            raise TraceError(f"{path} is not a Horovod timeline, or an empty one", "name it with HOROVOD_TIMELINE")
        names = ("time_ns", "tid", "kind", "arg0", "arg1", "arg2")
        table = np.array(self._rows, np.int64)
        marks: dict[str, npt.NDArray[np.generic]] = {name: table[:, index] for index, name in enumerate(names)}
        marks["pid"] = np.full(len(table), PID, np.int64)
        ranks = self._highest_rank + 1 if self._highest_rank >= 0 else None
        if self._crowded:
            self._left_out.append(f"{self._crowded} events of tensors after the first {_MOST_TENSORS}")
        left_out = tuple(self._left_out)
        return Timeline(marks, self._start_us * 1000, self._last_ns, ranks, self._truncated, self._stalled(), left_out)

    def _stalled(self) -> str:
        """Say for what is waited at the end: the operation that was asked for first, but not by all."""
        every = set(range(self._highest_rank + 1))
        open_ns = {tensor: since_ns for tensor, (since_ns, ranks) in self._asked.items() if ranks and every - ranks}
        if not open_ns:
            return ""
        tensor = min(open_ns, key=lambda each: open_ns[each])
        missing = sorted(every - self._asked[tensor][1])
        ranks = f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing[:_NAMED]))}"
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        name = self._names.get(tensor, str(tensor)).rpartition("/")[2]
        lasted = (self._last_ns - open_ns[tensor]) / 1e9
        return f"tensor {name} waits for {ranks}{more}" + (f" for {lasted:.1f} s" if lasted >= 0.1 else "")

    def _events(self) -> Iterator[dict[str, Any]]:
        """Yield the events until the end, or until what is too much: no more of the file is held than an event."""
        decoder, text, at = json.JSONDecoder(), "", 0
        between = re.compile(r"[\s,\[\]]*")
        ended = closed = False
        while True:
            match = between.match(text, at)
            at = match.end() if match else at
            if match and match[0].strip():
                closed = match[0].rstrip().endswith("]")
            try:
                event, after = decoder.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                if ended or isinstance(error, RecursionError):
                    self._truncated |= at < len(text) or not closed
                    return
                if len(text) - at > _LONGEST_EVENT:
                    self._left_out.append(f"what comes after an event of more than {_LONGEST_EVENT >> 20} MiB")
                    return
                more = self._file.read(_AT_ONCE)
                self._read += len(more)
                text, at, ended = text[at:] + more, 0, not more
                continue
            at, closed = after, False
            if isinstance(event, dict):
                yield event
            if len(self._rows) >= _MOST_MARKS or self._read > _LARGEST_BYTES:
                self._left_out.append(f"what comes after {len(self._rows)} marks")
                return

    def _take(self, event: dict[str, Any]) -> None:
        phase, tensor, args = event.get("ph"), event.get("pid"), event.get("args")
        if phase == "M" and isinstance(args, dict):
            start = args.get("start_time_since_epoch_in_micros")
            self._start_us = start if _is_count(start, _LATEST_US) else self._start_us
            if (
                event.get("name") == "process_name"
                and _is_count(tensor, _LATEST_US)
                and len(self._names) < _MOST_TENSORS
            ):
                name = str(args.get("name", ""))[:_LONGEST_NAME]
                self._names[tensor] = "".join(c if c.isprintable() else "?" for c in name)
            return
        at_us, name = event.get("ts"), event.get("name", "")
        if not (_is_count(at_us, _LONGEST_US) and _is_count(tensor, _LATEST_US) and isinstance(name, str)):
            return
        if tensor not in self._stack and len(self._stack) >= _MOST_TENSORS:
            self._crowded += 1
            return
        self._last_ns = max(self._last_ns, at_us * 1000)
        if phase == "X" and name.isascii() and name.isdigit() and len(name) < 7:
            self._highest_rank = max(self._highest_rank, int(name))
            if tensor in self._asked:
                self._asked[tensor][1].add(int(name))
        elif phase == "B" and len(self._stack.setdefault(tensor, [])) < _DEEPEST:
            self._stack[tensor].append(name[:_LONGEST_NAME])
            self._begin(tensor, name, at_us * 1000)
        elif phase == "E" and self._stack.get(tensor):
            self._end(tensor, self._stack[tensor].pop(), at_us * 1000, args if isinstance(args, dict) else {})

    def _begin(self, tensor: int, name: str, time_ns: int) -> None:
        if name.startswith("NEGOTIATE_"):
            self._asked[tensor] = time_ns, set()
            self._handles[tensor] = self._handle + 1
            self._add(time_ns, TID, MarkKind.HOROVOD_ENQUEUE, self._handle)
            self._handle += 1
        elif name in _KINDS:
            if self._response is None:
                self._response = _Response(time_ns, _KINDS[name])
            self._response.tensors.add(tensor)
            self._response.open.add(tensor)
        elif self._response is not None and _TRANSFER.match(name) and self._response.transfer_ns is None:
            self._response.transfer_ns = time_ns

    def _end(self, tensor: int, name: str, time_ns: int, args: dict[str, Any]) -> None:
        if name.startswith("NEGOTIATE_"):
            self._asked.pop(tensor, None)
        response = self._response
        if response is None:
            return
        if _TRANSFER.match(name) and response.transferred_ns is None:
            response.transferred_ns = time_ns
        elif name in _KINDS:
            response.bytes += _size_bytes(args)
            response.open.discard(tensor)
            if not response.open:
                self._finish(response, time_ns)

    def _finish(self, response: _Response, time_ns: int) -> None:
        names = len(response.tensors) * _NAME_BYTES
        self._add(response.begin_ns, BACKGROUND_TID, MarkKind.HOROVOD_RESPONSE, response.kind, 0, names)
        if response.transfer_ns is not None and response.transferred_ns is not None:
            size = response.bytes
            self._add(response.transfer_ns, BACKGROUND_TID, MarkKind.HOROVOD_TRANSFER, size, 1, response.kind)
            self._add(response.transferred_ns, BACKGROUND_TID, MarkKind.HOROVOD_UNPACK)
        for tensor in sorted(response.tensors):
            if tensor in self._handles:
                self._add(time_ns, BACKGROUND_TID, MarkKind.HOROVOD_DONE, self._handles.pop(tensor))
        self._response = None

    def _add(self, time_ns: int, tid: int, kind: MarkKind, *args: int) -> None:
        first, second, third = (*args, 0, 0, 0)[:3]
        self._rows.append((time_ns, tid, int(kind), first, second, third))


def _is_count(value: object, below: int) -> TypeGuard[int]:
    """Tell whether it is a count that a timeline can hold: microseconds, or a tensor's number."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below


def _size_bytes(args: dict[str, Any]) -> int:
    """Return the bytes of a tensor by its `dtype` and `shape`; 0 where they are not to be read."""
    dtype, shape = str(args.get("dtype", ""))[:20], str(args.get("shape", ""))[:200]
    element = 1 if dtype == "bool" else _ELEMENT_BYTES.get(dtype.lstrip("abcdefghijklmnopqrstuvwxyz"), 0)
    size = element
    for dimension in re.findall(r"[0-9]{1,12}", shape):
        size *= int(dimension)
    return size if size < 1 << 44 else 0
