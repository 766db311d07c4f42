"""A path, walked once and step by step as a user; and what is there of one that a person named."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import has_magic
from pathlib import Path

from netprof.errors import NetprofError
from netprof.files.user import User, as_user, caller, trusted

LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40


def status_of(path: Path) -> os.stat_result | None:
    """Return what a path that a person named leads to; None where that person cannot look at it, or nothing is there.

    Links of other users lead nowhere: to open the path says why.
    """
    with suppress(OSError, ValueError, NetprofError), walked(path, caller()) as (look, missing):
        return None if missing else os.fstat(look)
    return None


def is_folder(path: Path) -> bool:
    """Say whether a path that a person named leads to a directory, as far as that person can look."""
    status = status_of(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_file(path: Path) -> bool:
    """Say whether a path that a person named leads to a regular file, as far as that person can look."""
    status = status_of(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def matching(path: Path, pattern: str = "") -> list[Path]:
    """Return what a pattern fits below a path that a person named, in order, as far as that person can look.

    Without one the path is the pattern itself.
    """
    below, pattern = (path, pattern) if pattern else (Path(path.anchor), str(path.relative_to(path.anchor)))
    with as_user(caller()), suppress(OSError):
        return sorted(below.glob(pattern))
    return []


def is_pattern(path: Path) -> bool:
    """Say whether a path is a pattern, and not the name of something that a person named and can look at."""
    return has_magic(str(path)) and status_of(path) is None


def real_path(path: Path) -> Path:
    """Return a path that a person named without links, as far as that person can look."""
    with as_user(caller()), suppress(OSError, RuntimeError):
        return path.resolve()
    return path.absolute()


@contextmanager
def walked(path: Path, user: User | None) -> Iterator[tuple[int, list[str]]]:
    """Walk a path as a user: what is there of it, held open inside the block (O_PATH), and the names that are missing.

    Raises OSError, NetprofError for a link that is neither root's nor the user's own: who may write there could lead
    root anywhere.
    """
    walk = _Walk(path, user)
    try:
        with as_user(user):
            walk.go()
        yield walk.here, [*reversed(walk.left)]
    finally:
        os.close(walk.here)


class _Walk:
    """A way along a path: `here` is where it has come to, `left` the names that are left, the next one last."""

    def __init__(self, path: Path, user: User | None) -> None:
        self._path, self._trusted, self._links = path, trusted(user), 0
        self.here = os.open(path.anchor or ".", LOOK)
        self._at = Path(path.anchor)
        self.left = [*reversed(path.relative_to(path.anchor).parts)]

    def go(self) -> None:
        """Go as far as there is something."""
        while self.left:
            try:
                there = os.open(self.left[-1], LOOK, dir_fd=self.here)
            except FileNotFoundError:
                return
            name = self.left.pop()
            try:
                status = os.fstat(there)
                if not stat.S_ISLNK(status.st_mode):
                    there = self._step(there, self._at / name)
                    continue
                self._allow(status, self._at / name)
                if status.st_dev == os.lstat("/proc/self").st_dev:  # it stands for something, whatever its text
                    there, link = os.open(name, os.O_PATH | os.O_CLOEXEC, dir_fd=self.here), there
                    os.close(link)
                    there = self._step(there, self._at / name)
                    continue
                target = Path(os.readlink("", dir_fd=there))
            finally:
                os.close(there)
            if target.anchor:
                os.close(self._step(os.open(target.anchor, LOOK), Path(target.anchor)))
            self.left += reversed(target.relative_to(target.anchor).parts)

    def _step(self, there: int, at: Path) -> int:
        """Be there from now on, and return what is to be closed."""
        before, self.here, self._at = self.here, there, at
        return before

    def _allow(self, link: os.stat_result, shown: Path) -> None:
        self._links += 1
        if link.st_uid not in self._trusted:
            raise NetprofError(f"{shown} is a symbolic link of another user", "name the folder that it leads to")
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(self._path))
