"""Folders that are held open: each step on a path is taken from one, and what was found there is not looked for again.

Whoever may write to a folder on the way can put a link, a pipe or another folder in the place of anything, at any
moment. So nothing is known of a path: it is walked once, and links of other users lead nowhere.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from netprof.errors import TraceError
from netprof.files.keeper import Keeper
from netprof.files.kernel import open_here
from netprof.files.user import User, as_user, caller, owner
from netprof.files.walk import LOOK, walked

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
_WRITE = os.O_WRONLY | os.O_NOCTTY | os.O_NOFOLLOW
_CREATE = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_DESCRIPTOR_PATH = re.compile(r"/dev/(stdin|stdout|stderr)|/(?:dev|proc/self)/fd/([0-9]{1,6})")
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}


_writable: weakref.WeakSet[Directory] = weakref.WeakSet()


def writable() -> list[Directory]:
    """Return the directories that are open to make files in."""
    return [each for each in _writable if each.close.alive]


class Directory:
    """A directory that is held open, and what is done in it is done with the rights of `user` (None: one's own).

    It is closed when nothing refers to it any more.
    """

    def __init__(self, path: Path) -> None:
        """Open a directory to read it. Raises OSError where `path` is none, NetprofError for another user's link."""
        with walked(path, caller()) as (look, missing):
            if missing:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            user = owner(os.fstat(look))
            with as_user(user):
                descriptor = os.open(".", _FOLDER, dir_fd=look)
        self._hold(path, descriptor, user)

    def _hold(self, path: Path, descriptor: int, user: User | None) -> None:
        self.path, self.descriptor, self.user = path, descriptor, user
        self.keeper: Keeper | None = None
        self.number = 0
        self.close = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def held(cls, path: Path, descriptor: int, user: User | None) -> Directory:
        """Return a directory that is open already, and closed with this."""
        directory = cls.__new__(cls)
        directory._hold(path, descriptor, user)
        return directory

    def open(self, name: str) -> int:
        """Open a regular file of the directory for reading. Raises TraceError for what is none, OSError."""
        if self.keeper is not None:
            return int(self.keeper.ask(self, "open", name))
        with as_user(self.user):
            return _open_regular(self.path / name, name, self.descriptor)

    def create(self, name: str, mode: int = 0o666, access: int = os.O_WRONLY) -> int:
        """Make a new file that the umask allows others to read, and open it for writing. Raises OSError."""
        if self.keeper is not None:
            return int(self.keeper.ask(self, "create", name, mode, access))
        with as_user(self.user):
            return os.open(name, _CREATE | access, mode, dir_fd=self.descriptor)

    def folder(self, name: str) -> Directory:
        """Open a directory in this one, which no link and no other mount is. Raises OSError."""
        if self.keeper is not None:
            return self._kept(name, *self.keeper.ask(self, "folder", name))
        with as_user(self.user):
            return Directory.held(self.path / name, open_here(name, _FOLDER, self.descriptor), self.user)

    def make(self, name: str, mode: int = 0o777) -> Directory:
        """Make a new directory in this one. Raises OSError, also where something else is there already."""
        if self.keeper is not None:
            return self._kept(name, *self.keeper.ask(self, "make", name, mode))
        with as_user(self.user):
            os.mkdir(name, mode, dir_fd=self.descriptor)
        made = self.folder(name)
        _writable.add(made)
        return made

    def _kept(self, name: str, number: int, descriptor: int) -> Directory:
        directory = Directory.held(self.path / name, descriptor, self.user)
        directory.keeper, directory.number = self.keeper, number
        return directory

    def enter(self, name: str, mode: int = 0o777) -> Directory:
        """Open a directory in this one, made if need be. Raises OSError."""
        try:
            return self.make(name, mode)
        except FileExistsError:  # somebody makes the same, or has put a link there
            directory = self.folder(name)
            _writable.add(directory)
            return directory

    def kind(self, name: str) -> int | None:
        """Return what is called so, as `stat.S_IFMT` has it; None where nothing is. Raises OSError."""
        if self.keeper is not None:
            kind: int | None = self.keeper.ask(self, "kind", name)
            return kind
        with as_user(self.user), suppress(FileNotFoundError):
            return stat.S_IFMT(os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode)
        return None

    def rename(self, name: str, new_name: str) -> None:
        """Give a file another name, that of a file that it replaces, say. Raises OSError."""
        if self.keeper is not None:
            self.keeper.ask(self, "rename", name, new_name)
            return
        with as_user(self.user):
            os.replace(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there. Raises OSError."""
        if self.keeper is not None:
            self.keeper.ask(self, "remove", name)
            return
        with as_user(self.user), suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def remove_folder(self, name: str) -> None:
        """Remove an empty directory. Raises OSError."""
        if self.keeper is not None:
            self.keeper.ask(self, "remove_folder", name)
            return
        with as_user(self.user):
            os.rmdir(name, dir_fd=self.descriptor)

    def open_special(self, name: str) -> int:
        """Open a device or a pipe that is there, for writing. Raises OSError, also where it was exchanged."""
        if self.keeper is not None:
            return int(self.keeper.ask(self, "open_special", name))
        with as_user(self.user):
            look = os.open(name, LOOK, dir_fd=self.descriptor)
            try:
                seen = os.fstat(look)
                descriptor = os.open(name, _WRITE, dir_fd=self.descriptor)
            finally:
                os.close(look)
        opened = os.fstat(descriptor)
        if stat.S_ISREG(opened.st_mode) or (opened.st_dev, opened.st_ino) != (seen.st_dev, seen.st_ino):
            os.close(descriptor)
            raise OSError(errno.ESTALE, "it was exchanged", str(self.path / name))
        return descriptor

    def names(self) -> list[str]:
        """Return what is in the directory. Raises OSError."""
        with os.scandir(self.descriptor) as entries:
            return [entry.name for entry in entries]

    def clear(self) -> None:
        """Remove all that is in the directory and on its mount, as far as that can be. Raises OSError."""
        with os.scandir(self.descriptor) as entries:
            kinds = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_folder in kinds:  # as they are listed: a look at one of another mount may never end
            with suppress(OSError):
                if is_folder:
                    self.folder(name).clear()
                    self.remove_folder(name)
                else:
                    self.remove(name)


class OutputPlace:
    """Where something is to be written: names below a folder that is held from the first look on.

    `path` is what a person calls it. With `follow` one's own link, or root's, may be where the path ends; it is
    nothing that is there otherwise. All is done with the rights of a `user`, else of who called sudo; what is the
    system's, with `our_rights`. Raises OSError, NetprofError where the link of another user is on the way.
    """

    def __init__(self, path: Path, *, follow: bool = False, our_rights: bool = False, user: User | None = None) -> None:
        self.path, self._user = path, user or (None if our_rights else caller())
        follow = follow or path.name in ("", "..")
        with walked(path if follow else path.parent, self._user) as (look, missing):
            self.missing = missing if follow else [*missing, path.name]
            with as_user(self._user):
                is_folder = stat.S_ISDIR(os.fstat(look).st_mode)
                descriptor = os.open(".", _FOLDER, dir_fd=look) if is_folder else os.dup(look)
        self.folder = Directory.held(path, descriptor, self._user)
        _writable.add(self.folder)
        """What is there of the path; without anything `missing`, the place itself."""

    @classmethod
    def inside(cls, directory: Directory, name: str) -> OutputPlace:
        """Return a name in a directory that is held already."""
        place = cls.__new__(cls)
        place.path, place._user, place.missing = directory.path / name, directory.user, [name]
        place.folder = Directory.held(directory.path, os.dup(directory.descriptor), directory.user)
        place.folder.keeper, place.folder.number = directory.keeper, directory.number
        return place

    @property
    def name(self) -> str:
        """The last name of the path."""
        return self.missing[-1]

    def kind(self) -> int | None:
        """Return what is there, as `stat.S_IFMT` has it; None for nothing. Raises OSError."""
        if not self.missing:
            return stat.S_IFMT(os.fstat(self.folder.descriptor).st_mode)
        return self.folder.kind(self.name) if len(self.missing) == 1 else None

    def above(self) -> Directory:
        """Return the folder that the last name is in, made as far as it is missing. Raises OSError, NetprofError."""
        while len(self.missing) > 1:
            self._enter(self.missing.pop(0))
        return self.folder

    def made(self, mode: int = 0o777) -> Directory:
        """Return the place as a folder, made as far as it is missing. Raises OSError."""
        while self.missing:
            self._enter(self.missing.pop(0), mode)
        if not stat.S_ISDIR(os.fstat(self.folder.descriptor).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self.path))
        return self.folder

    def _enter(self, name: str, mode: int = 0o777) -> None:
        if name == "..":  # of a folder that is still to be made
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        self.folder = self.folder.enter(name, mode)
        self.folder.path = self.path


def make_folder(path: Path) -> Directory:
    """Make a folder, and those above it, and open it to write there. Raises OSError, NetprofError as OutputPlace.

    One that is there already stays whose it is.
    """
    return OutputPlace(path, follow=True).made()


def own_descriptor(path: Path) -> int | None:
    """Return a descriptor like one of this process that a path names, as /dev/stdout does; None for another path."""
    match = _DESCRIPTOR_PATH.fullmatch(str(path))
    if match is None:
        return None
    return os.dup(int(match[2]) if match[2] else ("stdin", "stdout", "stderr").index(match[1]))


def open_file(path: Path, regular: Path | None = None) -> int:
    """Open what a person named for reading, `regular` being what it is called where it has to be a regular file.

    Raises TraceError for what is no regular file then, NetprofError for the link of another user on the way, OSError
    for what cannot be opened.
    """
    if (descriptor := own_descriptor(path)) is not None:
        if regular is not None:
            _require_regular(regular, descriptor)
        return descriptor
    with walked(path, caller()) as (look, missing):
        if missing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        status = os.fstat(look)
        if regular is not None and not stat.S_ISREG(status.st_mode):
            raise _not_a_file(regular, status.st_mode)
        with as_user(owner(status)):  # the very thing that was looked at, whatever its name leads to by now
            return os.open(f"/proc/self/fd/{look}", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)


def read_all(path: Path, most_bytes: int, what: str) -> bytes:
    """Return a file that a person named, `what` for messages. Raises TraceError where it is none, or larger."""
    try:
        with open(open_file(path, path), "rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}", f"name {what}") from error
    if len(data) > most_bytes:
        raise TraceError(f"{path} is larger than {most_bytes >> 20} MiB", f"that is not {what}")
    return data


@contextmanager
def made_whole(directory: Directory, name: str, partial: str, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Write a file under the name `partial`, which becomes `name` when the block ends well. Raises OSError."""
    directory.remove(partial)
    with open(directory.create(partial, mode), "wb") as file:
        try:
            yield file
            file.flush()
            directory.rename(partial, name)
        except BaseException:
            directory.remove(partial)
            raise


def _open_regular(shown: Path, name: str, directory: int) -> int:
    look = open_here(name, LOOK, directory)  # to open a device does things
    try:
        _require_regular(shown, look)
    finally:
        os.close(look)
    try:
        descriptor = open_here(name, _READ, directory)
    except OSError as error:
        if error.errno == errno.ELOOP:  # put there just now
            raise _not_a_file(shown, stat.S_IFLNK) from error
        raise
    try:
        _require_regular(shown, descriptor)
    except TraceError:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(shown: Path, descriptor: int) -> None:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        raise _not_a_file(shown, mode)


def _not_a_file(shown: Path, mode: int) -> TraceError:
    hint = "netprof reads regular files, and follows no link out of a trace: copy what is meant into a file"
    return TraceError(f"{shown} is {_KINDS.get(stat.S_IFMT(mode), 'no regular file')}, not a file", hint)
