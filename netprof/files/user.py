"""Whose rights files are touched with: who called sudo, not root; of another user's files, that user's."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from netprof.files import kernel

_NO_GROUP = 65_534
_LAST_ID = 2**32 - 2
_OF_SUDO = {"SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND", "SUDO_HOME", "SUDO_TTY", "MAIL", "USERNAME"}


@dataclass(frozen=True)
class User:
    """A user with the groups that are looked at when a file is touched."""

    uid: int
    gid: int
    groups: tuple[int, ...]

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, uid: int, gid: int | None = None) -> User:
        """Return a user, `gid` being the group, where it is known, and not root's."""
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            gid = _NO_GROUP if gid is None else gid
            return cls(uid, gid, (gid,))
        gid = entry.pw_gid if gid is None else gid
        return cls(uid, gid, tuple(os.getgrouplist(entry.pw_name, gid)))

    def become(self) -> None:
        """Make this process the user's for good, without a capability. Raises OSError where that cannot be."""
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        kernel.give_up_capabilities()

    def environment(self) -> dict[str, str]:
        """Return this process's environment as the user would have it: without what sudo says, at home."""
        kept = {name: value for name, value in os.environ.items() if name not in _OF_SUDO}
        try:
            entry = pwd.getpwuid(self.uid)
        except KeyError:
            return {**kept, "HOME": "/", "USER": str(self.uid), "LOGNAME": str(self.uid)}
        shell = entry.pw_shell or "/bin/sh"
        return {**kept, "HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": shell}

    def __str__(self) -> str:
        try:
            return f"{pwd.getpwuid(self.uid).pw_name} (uid {self.uid})"
        except KeyError:
            return f"uid {self.uid}"


def caller() -> User | None:
    """Return who called sudo; None where that is root, or netprof does not run as root."""
    user, group = (_number(os.environ.get(name, "")) for name in ("SUDO_UID", "SUDO_GID"))
    return User.of(user, group) if os.geteuid() == 0 and user and group is not None else None


def owner(status: os.stat_result) -> User | None:
    """Return with whose rights something is read: the caller's; for root itself, its owner's. None: with one's own."""
    if _watch is not None:
        _watch(_owner(status))
    return _owner(status)


def _owner(status: os.stat_result) -> User | None:
    if os.geteuid() != 0:
        return None
    return caller() or (User.of(status.st_uid) if status.st_uid else None)


_watch: Callable[[User | None], None] | None = None


def watch_reading(watch: Callable[[User | None], None] | None) -> None:
    """Have something called before a file is opened to be read, with the user whose rights that takes."""
    global _watch
    _watch = watch


@contextmanager
def as_user(user: User | None) -> Iterator[None]:
    """Touch files as a user in this thread, without a capability, inside the block; with None as whoever it is."""
    if user is None:
        yield
        return
    before, groups, capabilities = kernel.rights(), os.getgroups(), kernel.capabilities()
    permitted = capabilities[2:]
    all_of_them = permitted[:2] + permitted
    try:
        kernel.set_capabilities(all_of_them)  # inside another such block there are none
        kernel.set_rights(user.uid, user.gid, user.groups)
        kernel.set_capabilities((0, 0, *permitted))
        yield
    finally:
        kernel.set_capabilities(all_of_them)
        kernel.set_rights(*before, groups)
        kernel.set_capabilities(capabilities)


def trusted(user: User | None) -> tuple[int, int]:
    """Return whose links are followed: root's, and those of who touches files."""
    return 0, os.geteuid() if user is None else user.uid


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _LAST_ID else None
