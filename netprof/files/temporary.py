"""Temporary files: in a folder of one's own that goes with this process, or without any name."""

from __future__ import annotations

import os
import stat
import weakref
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from netprof.files.directory import Directory, make_folder

_kept: weakref.WeakSet[TemporaryFolder] = weakref.WeakSet()


class TemporaryFolder:
    """A folder that only this user can look into; it is removed with what is in it when nothing refers to it any more.

    Raises OSError.
    """

    def __init__(self) -> None:
        above, name = make_folder(_place()), f"netprof-{os.urandom(8).hex()}"
        self.directory = above.make(name, 0o700)
        self.path = self.directory.path
        status = os.fstat(self.directory.descriptor)
        if (
            status.st_uid not in (os.geteuid(), above.user.uid if above.user else -1)
            or stat.S_IMODE(status.st_mode) & 0o77
        ):
            raise PermissionError(f"{self.path} was exchanged")
        self.close = weakref.finalize(self, _remove, above, name, self.directory)
        _kept.add(self)

    def __enter__(self) -> TemporaryFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def unnamed_file() -> BinaryIO:
    """Return a file for writing and reading that has no name, and goes when it is closed. Raises OSError."""
    above, name = make_folder(_place()), f"netprof-{os.urandom(8).hex()}"
    descriptor = above.create(name, 0o600, os.O_RDWR)
    above.remove(name)
    return os.fdopen(descriptor, "r+b")


def remove_all() -> None:
    """Remove every temporary folder: this process ends without doing what it does at its end."""
    for folder in list(_kept):
        folder.close()


def places() -> tuple[str, ...]:
    """Return where temporary files may be made: what is made there has a name that cannot be foreseen."""
    return tuple(filter(None, (os.environ.get("TMPDIR"), "/tmp", "/var/tmp")))  # noqa: S108


def _place() -> Path:
    return next((Path(place) for place in places() if Path(place).is_dir()), Path("/tmp"))  # noqa: S108


def _remove(above: Directory, name: str, directory: Directory) -> None:
    with suppress(OSError):
        directory.clear()
    with suppress(OSError):
        above.remove_folder(name)
