"""Giving up root before files of other users are read: for good where that can be.

A process that has dropped its rights imports and starts only what that user may read. Where netprof itself lies in a
folder that is root's alone, it stays root: files are opened with the user's rights (`as_user`) all the same.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec

from netprof.files import kernel, user
from netprof.files.directory import writable
from netprof.files.keeper import Keeper
from netprof.files.temporary import places
from netprof.files.user import User, as_user, caller


def while_reading() -> None:
    """From now on this process only reads and writes files: it gives up what root may do besides.

    Under sudo it is who called it, at once. Root's own process becomes the owner of the first file of another user that
    it opens, and makes files by a process that keeps its rights, in the folders that were open for that before. From
    the first file that is read, nothing can be written elsewhere (Landlock, where the kernel has it).
    """
    if os.geteuid() != 0:
        return
    person = caller()
    if person is not None:
        _become(person)
    user.watch_reading(_Reading())


class _Reading:
    """Called before anything is opened to be read, with its owner where that is another user."""

    def __init__(self) -> None:
        self._confined = False

    def __call__(self, owner: User | None) -> None:
        if os.geteuid() == 0 and owner is not None and caller() is None and can_be(owner):
            Keeper(writable())
            _become(owner)
        if not self._confined:
            self._confined = True
            kernel.write_only_below([*(each.descriptor for each in writable()), *_shared()])


def _become(person: User) -> None:
    """Be a user from now on, in every thread, where that is possible."""
    if not can_be(person):
        return
    with suppress(OSError):  # a container without CAP_SETUID, or without that user: its root is none outside
        person.become()


@lru_cache(maxsize=8)
def can_be(person: User) -> bool:
    """Say whether a user may read Python and netprof."""
    arrow = find_spec("pyarrow")
    with as_user(person):
        for place in (sys.executable, os.__file__, __file__, arrow.origin if arrow is not None else None):
            try:
                os.close(os.open(place or "", os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return False
    return True


def _shared() -> list[int]:
    """Return what everybody may write to, open: temporary folders, and devices."""
    descriptors = []
    for place in (*places(), "/dev/null", "/dev/tty", "/dev/shm"):  # noqa: S108
        with suppress(OSError):
            descriptors.append(os.open(place, os.O_PATH | os.O_CLOEXEC))
    return descriptors
