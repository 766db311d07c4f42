"""Traces and digests in object storage and behind URLs: copied to this machine by fsspec, as long as netprof runs.

What a server lists is not trusted: only files that a trace or a digest can have are copied, to where they belong.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import Any

from netprof.errors import NetprofError, TraceError, UsageError
from netprof.trace.meta import META_FILE

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://.+")
_FILE = re.compile(rf"{re.escape(META_FILE)}|[a-z_]+\.arrows|[a-z_]+\.parquet|_digest\.json|_job-[0-9a-f]{{16}}\.json")
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=@+ -]*")
_DEEPEST = 4
"""Folders below what is named: of a job, of a host, and one more."""
_MOST_FILES = 100_000
_kept: list[tempfile.TemporaryDirectory[str]] = []
"""Where copies are; Python removes them when it ends."""


def is_url(text: str) -> bool:
    """Say whether a text names something that is not a file of this machine."""
    return _URL.fullmatch(text) is not None


def fetched(url: str) -> Path:
    """Copy a trace, a digest, a folder of them, or what fits a pattern, and return where it is now.

    Raises UsageError where the way to it is not installed or nothing fits, TraceError where it cannot be read.
    """
    files, start = _opened(url)
    place = tempfile.TemporaryDirectory(prefix="netprof-")
    _kept.append(place)
    target, below = Path(place.name), start.rstrip("/").rpartition("/")[0]
    try:
        named = sorted(files.glob(start)) if has_magic(start) else [start]
        copied = sum(_copy(files, each, below, target) for each in named)
    except NetprofError:
        raise
    except Exception as error:  # each kind of storage fails in its own way
        raise TraceError(
            f"cannot read {url}: {_reason(error)}", "see to it that it is there and that you may"
        ) from error
    if not copied:
        raise UsageError(f"there is no trace and no digest at {url}", "name the directory that attach or digest made")
    return target if has_magic(start) else target / PurePosixPath(start.rstrip("/")).name


def _opened(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise UsageError("URLs need fsspec, which is not installed", "pip install 'netprof[remote]'") from error
    try:
        files, start = url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:
        raise UsageError(f"cannot open {url}: {_reason(error)}", "install what fsspec needs for it, as s3fs") from error
    return files, str(start)


def _copy(files: Any, start: str, below: str, target: Path) -> int:
    """Copy what belongs to traces and digests; return how many files that was."""
    copied = 0
    for name in _listed(files, start):
        relative = name[len(below) :].strip("/") if name.startswith(below) else ""
        if (path := _belongs(relative)) is None:
            continue
        copied += 1
        if copied > _MOST_FILES:
            raise TraceError(f"{start} holds more files than a job has", "name one job's")
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        files.get_file(name, str(target / path))
    return copied


def _listed(files: Any, start: str) -> Iterator[str]:
    yield from (str(name) for name in files.find(start, maxdepth=_DEEPEST))


def _belongs(relative: str) -> PurePosixPath | None:
    """Return where a file belongs, None for what is of no trace and no digest."""
    *folders, name = relative.split("/")
    known = _FILE.fullmatch(name) and 0 < len(folders) <= _DEEPEST and all(map(_FOLDER.fullmatch, folders))
    return PurePosixPath(relative) if known else None


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0][:200] if lines else type(error).__name__
