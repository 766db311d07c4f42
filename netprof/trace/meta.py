"""`meta.json`: written whole or not at all, read without trusting it."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

from netprof.domains import domain
from netprof.errors import TraceError
from netprof.files import Directory, made_whole
from netprof.model import Meta
from netprof.schema import SCHEMA_VERSION
from netprof.trace.plain import Rules, document_of, from_plain

META_FILE = "meta.json"
PARTIAL_FILE = META_FILE + ".partial"
_MAX_BYTES = 16 << 20
_LAST_BYTES = 1 << 20
"""Of those, what is left for the description of the end."""
_DAMAGED = "the trace is damaged: record again, or read what its tables hold with pyarrow"
_READ_BY = {".pcap": "capture", ".pcapng": "capture", ".cap": "capture", ".json": "timeline"}


def open_trace(path: Path) -> Directory:
    """Open the directory of a trace. Raises TraceError where there is none."""
    try:
        return Directory(path)
    except (OSError, ValueError) as error:
        why = "it is a file" if isinstance(error, NotADirectoryError) else getattr(error, "strerror", None)
        raise _no_trace(path, why or str(error)) from error


def write_meta(directory: Directory, meta: Meta) -> None:
    """Replace `meta.json` in one step, so that a kill at any moment leaves the old or the new one.

    Raises OSError, TraceError for one so large that nobody would read it.
    """
    text = "{\n" + ",\n".join(f' "{name}": {_text(value)}' for name, value in _fields(meta).items()) + "\n}\n"
    data = text.encode("utf-8", "replace")
    if len(data) > _MAX_BYTES - (_LAST_BYTES if meta.stopped_ns is None else 0):
        raise TraceError(
            f"too many processes and devices have come and gone: {META_FILE} takes {len(data) >> 20} MiB, and "
            f"{_MAX_BYTES >> 20} are read at most",
            "begin another recording",
        )
    with made_whole(directory, META_FILE, PARTIAL_FILE) as file:
        file.write(data)


def _text(value: Any) -> str:
    """Return a value as JSON on one line: Python's json writes that in C, ten times as fast as with indentation."""
    return json.dumps(value, default=_fields, ensure_ascii=False, allow_nan=False)


def _fields(value: Any) -> dict[str, Any]:
    """Return a dataclass's fields by name, not those of the dataclasses in it. Raises TypeError for anything else."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def read_meta(directory: Directory) -> Meta:
    """Read and check `meta.json`. Raises TraceError when it is missing, not ours, or from a newer netprof."""
    path = directory.path / META_FILE
    try:
        with open(directory.open(META_FILE), "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise _no_trace(directory.path, f"{META_FILE}: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise TraceError(f"{path} is larger than {_MAX_BYTES >> 20} MiB", _DAMAGED)
    document, version = document_of(data, path, "schema_version", _DAMAGED)
    if version is None:
        raise TraceError(f"{directory.path} is not a netprof trace: {META_FILE} names no schema version")
    if version > SCHEMA_VERSION:
        raise TraceError(
            f"{directory.path} has trace schema {_short(version)}; this netprof reads up to {SCHEMA_VERSION}",
            "read it with the netprof that recorded it, or a newer one",
        )
    try:
        meta = from_plain(Meta, document, _RULES, META_FILE)
        if meta.stopped_ns is not None and meta.stopped_ns < meta.started_ns:
            raise ValueError("the recording stopped before it started")
    except (TypeError, ValueError) as error:
        raise TraceError(f"{path} is damaged: {error}", _DAMAGED) from error
    return meta


def _no_trace(path: Path, why: str) -> TraceError:
    reads = _READ_BY.get(path.suffix.lower())
    other = f"; netprof {reads} {shlex.quote(str(path))} reads such files" if reads else ""
    return TraceError(
        f"{path} is not a netprof trace: {why}", f"name the directory that 'netprof attach --out' made{other}"
    )


def _check_number(value: float, name: str) -> None:
    if not domain(name).holds(value):
        raise ValueError(f"{name} is {_short(value)}, where {domain(name)} is possible")


def _short(value: float) -> str:
    return str(value) if isinstance(value, float) or abs(value) < 1 << 128 else "a number of hundreds of digits"


_MOST_DEVICES, _MOST_ENTRIES = 1 << 15, 1 << 17
"""How long the list of devices may be (a report has a section for each), and any other list."""
_RULES = Rules(check=_check_number, longest=lambda name: _MOST_DEVICES if name == "devices" else _MOST_ENTRIES)
