"""Temporary files: in a folder of one's own that goes with this process, or without any name."""

from __future__ import annotations

import os
import stat
import weakref
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from netprof.files.directory import Directory, OutputPlace
from netprof.files.user import User, caller
from netprof.files.walk import is_folder

_kept: weakref.WeakSet[TemporaryFolder] = weakref.WeakSet()


class TemporaryFolder:
    """A folder that only one user can look into; it is removed with what is in it when nothing refers to it any more.

    It is this process's own, root's under sudo, unless it is made for a `user`. Raises OSError.
    """

    def __init__(self, user: User | None = None) -> None:
        above, name = _above(user), f"netprof-{os.urandom(8).hex()}"
        made: list[Directory] = []
        self.close = weakref.finalize(self, _remove, above, name, made)  # before: what is made is removed at any moment
        _kept.add(self)
        self.directory = above.make(name, 0o700)
        self.path = self.directory.path
        status = os.fstat(self.directory.descriptor)
        if status.st_uid != (user.uid if user else os.geteuid()) or stat.S_IMODE(status.st_mode) & 0o77:
            raise PermissionError(f"{self.path} was exchanged")
        made.append(self.directory)

    def __enter__(self) -> TemporaryFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def unnamed_file() -> BinaryIO:
    """Return a file for writing and reading that has no name, and goes when it is closed. Raises OSError."""
    above, name = _above(None), f"netprof-{os.urandom(8).hex()}"
    descriptor = above.create(name, 0o600, os.O_RDWR)
    above.remove(name)
    return os.fdopen(descriptor, "r+b")


def remove_all() -> None:
    """Remove every temporary folder: this process ends without doing what it does at its end."""
    for folder in list(_kept):
        folder.close()


def places() -> tuple[str, ...]:
    """Return where temporary files may be made: what is made there has a name that cannot be foreseen.

    Root makes none in a folder that who called sudo has named.
    """
    named = os.environ.get("TMPDIR") if caller() is None else None
    return tuple(filter(None, (named, "/tmp", "/var/tmp")))  # noqa: S108


def _above(user: User | None) -> Directory:
    place = next((Path(place) for place in places() if is_folder(Path(place))), Path("/tmp"))  # noqa: S108
    return OutputPlace(place, follow=True, our_rights=user is None, user=user).made()


def _remove(above: Directory, name: str, made: list[Directory]) -> None:
    for directory in made:
        with suppress(OSError):
            directory.clear()
    with suppress(OSError):
        above.remove_folder(name)
