"""Where reports go: a file that appears whole or not at all, a folder, or standard output."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import IO

from netprof.errors import NetprofError, UsageError
from netprof.files import Directory, OutputPlace, made_whole, own_descriptor
from netprof.views.reporter import Report, Reporter

STDOUT = Path("-")
_REPLACED = (None, stat.S_IFREG, stat.S_IFLNK)
"""What a file takes the place of; devices and pipes are written to, and stay what they are."""


class OutputTarget:
    """Where something is written, found before any work is done and held from then on, whatever becomes of its name.

    With `folder` it is a folder of files. Raises NetprofError where the way there cannot be walked.
    """

    def __init__(self, path: Path, *, folder: bool = False) -> None:
        self.path = path
        self._descriptor = None if folder else own_descriptor(path)
        self._place = None
        if path == STDOUT or self._descriptor is not None:
            return
        try:
            self._place = OutputPlace(path, follow=folder)
            self.kind = self._place.kind()
        except OSError as error:
            raise _cannot_write(path, error) from error

    kind: int | None = None
    """What was there, as `stat.S_IFMT` has it."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no folder with something in it."""
        return self._place is None or bool(self._place.missing) or not self._place.folder.names()

    @property
    def has_folder(self) -> bool:
        """Whether the folder of a file is there, and the file is none itself."""
        return self._place is None or (len(self._place.missing) == 1 and self.kind != stat.S_IFDIR)

    def made(self) -> Directory:
        """Return the folder, made as far as it is missing. Raises OSError, NetprofError."""
        assert self._place is not None, "standard output is no folder"
        return self._place.made()

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file to write to, which takes its place when the block ends well. Raises NetprofError, OSError."""
        place = self._place
        if self.path == STDOUT:
            with _standard_output() as out:
                yield out
        elif place is None or self.kind not in _REPLACED:
            descriptor = place.folder.open_special(place.name) if place is not None else self._descriptor
            assert descriptor is not None
            with os.fdopen(descriptor, "wb") as file:
                yield file
        else:
            with opened(place.folder, place.name) as file:
                yield file


def check(reporter: Reporter, path: Path, force: bool) -> OutputTarget:
    """Return where a report is written. Raises UsageError or NetprofError, before any work, where that cannot be."""
    if reporter.folder:
        if path == STDOUT:
            raise UsageError(f"--{reporter.name} writes several files: standard output holds one", "name a folder")
        target = OutputTarget(path, folder=True)
        if target.kind not in (None, stat.S_IFDIR):
            raise NetprofError(f"{path} is not a folder", "choose another one")
        if not target.is_empty and not force:
            raise NetprofError(f"{path} is not empty", "choose another folder, or replace its files with --force")
        return target
    target = OutputTarget(path)
    if (target.kind in _REPLACED[1:] and not force) or target.kind == stat.S_IFDIR:
        raise NetprofError(f"{path} exists already", "choose another name, or replace it with --force")
    if not target.has_folder:
        raise NetprofError(f"cannot write {path}: {os.strerror(2)}", "choose another place")
    return target


def file_target(path: Path) -> OutputTarget:
    """Return where a file is written, in place of one that is there. Raises UsageError where that can surely not be."""
    target = OutputTarget(path)
    if not target.has_folder:
        raise UsageError(
            f"cannot write {path}: the parent directory does not exist, or the target is a directory",
            "name a file in a directory that exists",
        )
    return target


def write(reporter: Reporter, report: Report, target: OutputTarget) -> None:
    """Write a report. Raises NetprofError when the target cannot be written."""
    try:
        if reporter.folder:
            reporter.fill(report, target.made())
        else:
            with target.opened() as out:
                reporter.write(report, out)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _cannot_write(target.path, error) from error


@contextmanager
def opened(folder: Directory, name: str) -> Iterator[IO[bytes]]:
    """Open a file of a folder to write to, which takes its place when the block ends well. Raises OSError.

    It is made under a name that cannot be foreseen and renamed, so a link in its place is replaced and not followed.
    """
    partial = f".{name[:40]}.{token_hex(8)}"
    with made_whole(folder, name, partial) as file:
        yield file


def _cannot_write(path: Path, error: OSError) -> NetprofError:
    where = "standard output" if path == STDOUT else str(path)
    return NetprofError(f"cannot write {where}: {error.strerror}", "choose another place")


@contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()
