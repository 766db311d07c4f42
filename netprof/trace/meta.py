"""`meta.json`: written whole or not at all, read without trusting it."""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from pathlib import Path
from typing import Any

from netprof.errors import TraceError
from netprof.model import Meta
from netprof.schema import SCHEMA_VERSION

META_FILE = "meta.json"
_MAX_BYTES = 64 << 20


def write_meta(directory: Path, meta: Meta) -> None:
    """Replace `meta.json` in one step, so that a kill at any moment leaves the old or the new one. Raises OSError."""
    partial = directory / (META_FILE + ".partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(meta), file, indent=1)
            file.write("\n")
        give_to_user(partial)
        partial.replace(directory / META_FILE)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def give_to_user(path: Path) -> None:
    """Under sudo, hand a new file to the person who called it."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and user.isdigit() and group.isdigit():
        os.chown(path, int(user), int(group), follow_symlinks=False)


def read_meta(directory: Path) -> Meta:
    """Read and check `meta.json`. Raises TraceError when it is missing, not ours, or from a newer netprof."""
    try:
        with open(directory / META_FILE, "rb") as file:
            document = json.loads(file.read(_MAX_BYTES))
    except OSError as error:
        raise TraceError(
            f"{directory} is not a netprof trace: {META_FILE}: {error.strerror}",
            "name the directory that 'netprof attach --out' made",
        ) from error
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{directory / META_FILE} is not readable as JSON", "the trace is damaged") from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if not isinstance(version, int):
        raise TraceError(f"{directory} is not a netprof trace: {META_FILE} names no schema version")
    if version > SCHEMA_VERSION:
        raise TraceError(
            f"{directory} has trace schema {version}; this netprof reads up to {SCHEMA_VERSION}",
            "read it with the netprof that recorded it, or a newer one",
        )
    try:
        return typing.cast(Meta, _build(Meta, document))
    except (TypeError, ValueError) as error:
        raise TraceError(f"{directory / META_FILE} is damaged: {error}") from error


def _build(kind: Any, value: Any) -> Any:
    """Turn parsed JSON into `kind` (dataclass, tuple, optional or scalar); raises TypeError where it does not fit."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise TypeError(f"expected an object for {kind.__name__}")
        hints = typing.get_type_hints(kind)
        return kind(**{name: _build(hints[name], item) for name, item in value.items() if name in hints})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        if not isinstance(value, list):
            raise TypeError("expected a list")
        return tuple(_build(arguments[0], item) for item in value)
    if origin is types.UnionType:
        return None if value is None else _build(arguments[0], value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value
