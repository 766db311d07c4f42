"""Where reports go: a file that appears whole or not at all, a folder, or standard output."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import IO

from netprof.errors import NetprofError, UsageError
from netprof.trace.files import Directory, check_links, made_whole, make_folder
from netprof.views.reporter import Report, Reporter

STDOUT = Path("-")
_OPEN_FILES = tuple(map(Path, ("/dev", "/dev/fd", "/proc/self/fd")))
"""Where links stand for files that are open; none but root makes links there."""


def check(reporter: Reporter, target: Path, force: bool) -> None:
    """Raise UsageError or NetprofError before any work is done where the target cannot serve."""
    if reporter.folder:
        if target == STDOUT:
            raise UsageError(f"--{reporter.name} writes several files: standard output holds one", "name a folder")
        check_links(target)
        if target.is_dir() and any(target.iterdir()) and not force:
            raise NetprofError(f"{target} is not empty", "choose another folder, or replace its files with --force")
        if target.exists() and not target.is_dir():
            raise NetprofError(f"{target} is not a folder", "choose another one")
    elif target != STDOUT and os.path.lexists(target) and not _is_special(target) and (not force or target.is_dir()):
        raise NetprofError(f"{target} exists already", "choose another name, or replace it with --force")


def check_place(target: Path) -> None:
    """Raise UsageError where a file can certainly not be written: its folder is missing, or it is one itself."""
    if target.is_dir() or not target.parent.is_dir():
        raise UsageError(f"cannot write {target}: there is no such folder, or it is one", "name a file in a folder")


def write(reporter: Reporter, report: Report, target: Path) -> None:
    """Write a report. Raises NetprofError when the target cannot be written."""
    try:
        if reporter.folder:
            folder = make_folder(target)  # whatever comes to stand in its place meanwhile
            reporter.fill(report, Path("/proc/self/fd", str(folder.descriptor)))
        else:
            with _standard_output() if target == STDOUT else opened(target) as out:
                reporter.write(report, out)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = "standard output" if target == STDOUT else str(target)
        raise NetprofError(f"cannot write {where}: {error.strerror}", "choose another place") from error


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to write a report to, which takes the place of `path` when the block ends well. Raises OSError.

    It is made under a name that nobody can foresee and renamed, so a link put in its place is replaced, not followed.
    Devices, pipes and what stands for an open file (/dev/stdout) are written to, and stay what they are.
    """
    if _is_special(path):
        with open(os.open(path, os.O_WRONLY | os.O_NOCTTY), "wb") as file:
            yield file
        return
    partial = f".{path.name[:40]}.{token_hex(8)}"
    with (
        made_whole(Directory(path.parent), path.name, partial) as descriptor,
        open(descriptor, "wb", closefd=False) as file,
    ):
        yield file


def _is_special(path: Path) -> bool:
    """Say whether something is written to and never replaced: what exists, but is no file, no folder and no link."""
    if path.is_symlink():
        return path.parent in _OPEN_FILES
    return path.exists() and not (path.is_file() or path.is_dir())


@contextlib.contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()
