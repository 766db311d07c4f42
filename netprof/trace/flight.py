"""What a job wrote down of its own collectives: PyTorch's flight recorder dumps, NCCL Inspector's output.

A flight recorder's dump is a pickle or JSON of one rank (TORCH_FR_BUFFER_SIZE, `torch.distributed`'s dump on timeout);
the rank is the number that ends the file's name. NCCL Inspector (plugins/profiler/inspector of NCCL's repository)
writes a JSON object a line, of what was completed: NCCL numbers each communicator's collectives function by function,
and the rank is the one in the communicator.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netprof.errors import TraceError
from netprof.files import read_all
from netprof.trace.plain_pickle import read_plain

_LARGEST_BYTES = 1 << 28
_MOST_OPERATIONS = 1_000_000
_RANK = re.compile(r"(\d{1,7})(?:\.[a-z]+)?$")
_SHAPES, _DIMENSIONS = 8, 8
_WHAT = "a flight recorder's dump or NCCL Inspector's output"


@dataclass(frozen=True)
class Operation:
    """The `number`-th operation of a communicator (`group`), as one rank saw it.

    `kind` is its name without the backend's, `elements` the shapes that it was called with, as a text ("": not told),
    `done` whether that rank had completed it.
    """

    group: str
    number: int
    kind: str
    elements: str
    done: bool


@dataclass(frozen=True)
class FlightDump:
    """The operations of one rank, of a file."""

    path: Path
    rank: int
    operations: tuple[Operation, ...]


def read_flight(path: Path) -> list[FlightDump]:
    """Read a file; NCCL Inspector's may tell of several ranks. Raises TraceError for what is neither."""
    data = read_all(path, _LARGEST_BYTES, _WHAT)
    first = data.lstrip()[:1]
    if first != b"{":
        return [_of_recorder(path, read_plain(data, str(path)))]
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    documents = _documents(path, data, lines)
    if "entries" in documents[0]:
        return [_of_recorder(path, documents[0])]
    return _of_inspector(path, documents)


def _documents(path: Path, data: bytes, lines: list[str]) -> list[dict[str, Any]]:
    """Return the documents of a file: one a line, the last of which a job that was killed may have left unfinished."""
    try:
        first = _parsed(path, lines[0])
    except TraceError:
        return [_parsed(path, data.decode("utf-8", "replace"))]  # one document, on several lines
    return [first, *_all_but_a_broken_end(path, lines[1:_MOST_OPERATIONS])]


def _all_but_a_broken_end(path: Path, lines: list[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        try:
            yield _parsed(path, line)
        except TraceError:
            if number < len(lines):
                raise
            return


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path} is not readable as JSON", f"give {_WHAT}") from error
    if not isinstance(document, dict):
        raise TraceError(f"{path} is not {_WHAT}")
    return document


def _of_recorder(path: Path, document: Any) -> FlightDump:
    entries = document.get("entries") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise TraceError(f"{path} has no entries", f"give {_WHAT}")
    match = _RANK.search(path.name)
    if match is None:
        raise TraceError(f"the name of {path} does not end in its rank", "name each dump after its rank, as dump_3")
    operations = [_operation(each) for each in entries[:_MOST_OPERATIONS] if isinstance(each, dict)]
    return FlightDump(path, int(match[1]), tuple(each for each in operations if each is not None))


def _operation(entry: Mapping[Any, Any]) -> Operation | None:
    group, number = entry.get("process_group"), entry.get("collective_seq_id")
    if entry.get("is_p2p") or not isinstance(number, int) or not isinstance(group, (list, tuple)) or not group:
        return None
    kind = _text(entry.get("profiling_name")).rpartition(":")[2]
    done = entry.get("retired") is True or entry.get("state") == "completed"
    name = _text(group[-1]) or _text(group[0])
    return Operation(name, number, kind, _shapes(entry.get("input_sizes")), done)


def _of_inspector(path: Path, documents: list[dict[str, Any]]) -> list[FlightDump]:
    operations: dict[int, list[Operation]] = {}
    for rank, operation in _completed(documents):
        operations.setdefault(rank, []).append(operation)
    if not operations and not any("p2p_perf" in each for each in documents):
        raise TraceError(f"{path} is not {_WHAT}: it tells of no collective")
    return [FlightDump(path, rank, tuple(of_rank)) for rank, of_rank in sorted(operations.items())]


def _completed(documents: list[dict[str, Any]]) -> Iterator[tuple[int, Operation]]:
    for each in documents:
        header, done = each.get("header"), each.get("coll_perf")
        if not isinstance(header, dict) or not isinstance(done, dict):
            continue
        rank, number = header.get("rank"), done.get("coll_sn")
        if isinstance(rank, int) and isinstance(number, int):
            kind, size = _text(done.get("coll", "")), _text(done.get("coll_msg_size_bytes", ""))
            yield rank, Operation(f"{_communicator(header)}, {kind}", number, kind, f"{size} bytes", done=True)


def _communicator(header: Mapping[str, Any]) -> str:
    """Return a communicator by its hash, which is the same on all of its ranks, and by its name where it has one."""
    number, name = _text(header.get("id", "")), _text(header.get("comm_name", ""))
    return number if name in ("", "unknown") else f"{number} ({name})"


def _text(value: object) -> str:
    """Return a text or a number for a person; nothing for anything else."""
    if not isinstance(value, (str, int)):
        return ""
    return "".join(c if c.isprintable() else "?" for c in str(value)[:200])


def _shapes(value: object) -> str:
    """Return shapes as a text: a list of lists of numbers. Of a damaged file nothing is written out that is deeper."""
    if not isinstance(value, (list, tuple)):
        return ""
    shapes = [each[:_DIMENSIONS] for each in value[:_SHAPES] if isinstance(each, (list, tuple))]
    return ", ".join(f"[{', '.join(_text(number) for number in shape)}]" for shape in shapes)
