"""Traces and digests in object storage and behind URLs: copied to this machine by fsspec, as long as netprof runs.

What fsspec opens is for a URL to say: files of this machine, too. So it runs with the rights of who named the URL.
What a server lists is not trusted: only files that a trace can have are copied, to where they belong. A digest keeps
the folder of its job around it.
"""

from __future__ import annotations

import codecs
import os
import re
from contextlib import suppress
from glob import has_magic
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from netprof import copies
from netprof.errors import NetprofError, TraceError, UsageError
from netprof.files import Directory, TemporaryFolder, by_the_caller, caller
from netprof.files.drop import can_be
from netprof.redact import without_credentials
from netprof.trace.digest import is_of_a_job
from netprof.trace.meta import META_FILE

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://.+")
_FILE = re.compile(rf"{re.escape(META_FILE)}|[a-z_]+\.arrows")
_LOCAL = re.compile(r"(?:file|local)://(?!.*::)(.+)")
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=@+ -]*")
_DEEPEST = 4
"""Folders below what is named: of a job, of a host, and one more."""
_MOST_FILES = 100_000
_kept: list[TemporaryFolder] = []
"""Where copies are, until this process ends."""


def is_url(text: str) -> bool:
    """Say whether a text names something that is not a file of this machine."""
    return _URL.fullmatch(text) is not None


def fetched(url: str) -> Path:
    """Copy a trace, a digest, a folder of them, or what fits a pattern, and return where it is now: for one, a pattern.

    Raises UsageError where the way to it is not installed or nothing fits, TraceError where it cannot be read.
    """
    if (local := _LOCAL.fullmatch(url)) is not None:
        return Path(local[1])
    place = TemporaryFolder(caller())
    _kept.append(place)
    try:
        called, below = by_the_caller(lambda: _imported(url), lambda: _copied(url, place.directory))
    except NetprofError as error:
        person = caller()
        if person is None or can_be(person):
            raise
        remedy = f"{error.hint}; or install netprof where {person}, who reads URLs here, may read it"
        raise type(error)(error.message, remedy) from error
    target = Path(os.path.realpath(place.path))
    copies.call(target, called)
    return target / below.lstrip("/")


def _imported(url: str) -> None:
    """Import what reads a URL, with no configuration but the built-in one, where the user who is to read it may not."""
    if caller() is None:
        return
    for name in [each for each in os.environ if each.startswith("FSSPEC_")]:
        del os.environ[name]
    os.environ["HOME"] = os.devnull
    with suppress(Exception):
        for encoding in ("cp437", "idna"):  # of names in zip files, of servers
            codecs.lookup(encoding)
        from fsspec import get_filesystem_class

        for part in url.split("::"):
            get_filesystem_class(part.partition("://")[0])


def _copied(url: str, target: Directory) -> list[str]:
    """Copy what a URL names into a folder, and return what that is to be called, and where in it is what was named."""
    shown = without_credentials(url)
    files, start = _opened(url)
    above = _above(start)
    try:
        named = sorted(files.glob(start)) if has_magic(start) else [start.rstrip("/")]
        copied = sum(_copy(files, str(each), above, target) for each in named)
    except NetprofError:
        raise
    except Exception as error:  # each kind of storage fails in its own way
        raise TraceError(
            f"cannot read {shown}: {_reason(error)}", "check that it exists and that you may read it"
        ) from error
    if not copied:
        raise UsageError(f"there is no trace and no digest at {shown}", "name the directory that attach or digest made")
    return [without_credentials(_called(url, start, above, files)), start[len(above) :].strip("/")]


def _above(start: str) -> str:
    """Return the folder that all lies in that a person names: no pattern, and above the folder of a job."""
    *folders, _ = start.rstrip("/").split("/")
    known = list(takewhile(lambda folder: not has_magic(folder), folders))
    return "/".join(known[:-1] if known and is_of_a_job(known[-1]) else known)


def _called(url: str, start: str, above: str, files: Any) -> str:
    """Return what a person calls the folder that all lies in, whose URL names something in it."""
    below = start.rstrip("/")[len(above) :]
    return url.rstrip("/").removesuffix(below) if url.rstrip("/").endswith(below) else files.unstrip_protocol(above)


def _opened(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise UsageError("URLs need fsspec, which is not installed", "pip install 'netprof-ebpf[remote]'") from error
    try:
        files, start = url_to_fs(url)
    except Exception as error:  # each kind of storage fails in its own way
        message = f"cannot open {without_credentials(url)}: {_reason(error)}"
        raise UsageError(message, "install what fsspec needs for it, as s3fs") from error
    return files, str(start)


def _copy(files: Any, start: str, above: str, target: Directory) -> int:
    """Copy what belongs to traces and digests; return how many files that was."""
    copied, folders = 0, _below(start, above).count("/")
    for name in map(str, files.find(start, maxdepth=_DEEPEST)):
        if (path := _belongs(_below(name, above), _DEEPEST + folders)) is None:
            continue
        copied += 1
        if copied > _MOST_FILES:
            raise TraceError(f"{start} holds more files than a job has", "name one job's")
        _get(files, name, target, path)
    return copied


def _get(files: Any, name: str, target: Directory, path: PurePosixPath) -> None:
    for folder in path.parts[:-1]:
        target = target.make(folder) if target.kind(folder) is None else target.folder(folder)
    descriptor = target.create(path.name)
    try:
        files.get_file(name, f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _below(name: str, above: str) -> str:
    """Return where something lies below a folder; "" for what does not."""
    return name[len(above) :].strip("/") if name.startswith(above) else ""


def _belongs(relative: str, deepest: int) -> PurePosixPath | None:
    """Return where a file belongs, None for what is of no trace and no digest."""
    *folders, name = relative.split("/")
    known = _FILE.fullmatch(name) and 0 < len(folders) <= deepest and all(map(_FOLDER.fullmatch, folders))
    return PurePosixPath(relative) if known else None


def _reason(error: Exception) -> str:
    lines = without_credentials(str(error)).splitlines()
    return lines[0][:200] if lines else type(error).__name__
