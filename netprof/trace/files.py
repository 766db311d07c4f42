"""The one way to files that others made or may touch: they cannot block, lead elsewhere or be no file.

A directory is opened once and then held by its descriptor, so what is renamed or put in its place is never looked at.
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netprof.errors import NetprofError, TraceError

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}


class Directory:
    """A directory that is held open. Raises OSError where `path` is none; with `follow` unset, a link is none."""

    def __init__(self, path: Path, *, follow: bool = True) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | (0 if follow else os.O_NOFOLLOW))
        self.close = weakref.finalize(self, os.close, self.descriptor)

    def open(self, name: str) -> int:
        """Open a regular file of the directory for reading. Raises TraceError for what is none, OSError."""
        return open_regular(self.path / name, name, directory=self.descriptor)

    def create(self, name: str) -> int:
        """Make a new file that the umask allows others to read, and open it for writing. Raises OSError."""
        descriptor = os.open(name, _CREATE, 0o666, dir_fd=self.descriptor)
        give_to_user(descriptor)
        return descriptor

    def rename(self, name: str, new_name: str) -> None:
        """Give a file another name, that of a file that it replaces, say. Raises OSError."""
        os.replace(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there. Raises OSError."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return

    def names(self) -> list[str]:
        """Return what is in the directory. Raises OSError."""
        with os.scandir(self.descriptor) as entries:
            return [entry.name for entry in entries]


def check_links(path: Path) -> None:
    """Raise NetprofError where a link on the way to a folder that is written to is another user's.

    Who may write there could have root write anywhere. Links of root, and of who runs netprof or sudo, are followed.
    """
    whole = path.absolute()
    for each in reversed((whole, *whole.parents)):
        try:
            about = os.lstat(each)
        except OSError:
            return  # nor is anything below it there
        if stat.S_ISLNK(about.st_mode) and about.st_uid not in _trusted():
            raise NetprofError(f"{each} is a symbolic link of another user", "name the folder that it leads to")


def _trusted() -> set[int]:
    given = os.environ.get("SUDO_UID", "")
    return {0, os.geteuid(), *([int(given)] if os.geteuid() == 0 and given.isdecimal() else [])}


def make_folder(path: Path) -> Directory:
    """Make a folder, and those above it, for who called sudo, and open it. Raises OSError, NetprofError as check_links.

    One that is there already stays whose it is.
    """
    check_links(path)
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        made = Directory(each, follow=False)  # which closes its descriptor when nothing refers to it any more
        give_to_user(made.descriptor)
    check_links(path)
    return Directory(path.resolve(), follow=False)


def open_regular(shown: Path, name: str | Path, directory: int | None = None) -> int:
    """Open a file for reading that is a regular one; in a `directory` links are not followed.

    Raises TraceError, which calls the file `shown`, for what is no regular file, OSError for what cannot be opened.
    """
    inside = directory is not None
    _require_regular(shown, os.stat(name, dir_fd=directory, follow_symlinks=not inside))  # to open a device does things
    try:
        descriptor = os.open(name, _READ | (os.O_NOFOLLOW if inside else 0), dir_fd=directory)
    except OSError as error:
        if inside and error.errno == errno.ELOOP:  # put there just now
            raise _not_a_file(shown, stat.S_IFLNK) from error
        raise
    try:
        _require_regular(shown, os.fstat(descriptor))
    except TraceError:
        os.close(descriptor)
        raise
    return descriptor


def read_all(path: Path, most_bytes: int, what: str) -> bytes:
    """Return a file that a person named, `what` for messages. Raises TraceError where it is none, or larger."""
    try:
        with open(open_regular(path, path), "rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}", f"name {what}") from error
    if len(data) > most_bytes:
        raise TraceError(f"{path} is larger than {most_bytes >> 20} MiB", f"that is not {what}")
    return data


@contextmanager
def made_whole(directory: Directory, name: str, partial: str) -> Iterator[int]:
    """Write a file under the name `partial`, which becomes `name` when the block ends well. Raises OSError."""
    directory.remove(partial)
    descriptor = directory.create(partial)
    try:
        yield descriptor
        directory.rename(partial, name)
    except BaseException:
        directory.remove(partial)
        raise
    finally:
        os.close(descriptor)


def give_to_user(descriptor: int) -> None:
    """Under sudo, hand a new file or directory to the person who called it. Raises OSError."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and user.isdigit() and group.isdigit():
        os.fchown(descriptor, int(user), int(group))


def _require_regular(shown: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _not_a_file(shown, stat.S_IFMT(status.st_mode))


def _not_a_file(shown: Path, kind: int) -> TraceError:
    hint = "netprof reads regular files, and follows no link out of a trace: copy what is meant into a file"
    return TraceError(f"{shown} is {_KINDS.get(kind, 'no regular file')}, not a file", hint)
