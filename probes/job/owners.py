"""Whose a process is: the user of this host who can start more of its kind, whatever user it runs as.

In a user namespace a process may run as any of the user ids that its owner was given (subuid(5)), 65,536 and more of
them. All of them are one user: the one who made the namespace, or was given the ids.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import time
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path

from netprof.probes.kernel.procfile import text_of

_SUBUIDS = Path("/etc/subuid")
_READ_AGAIN_S = 60.0
_PARENT, _OWNER = 0xB702, 0xB704  # NS_GET_PARENT, NS_GET_OWNER_UID of nsfs.h
_MOST_NESTED = 33  # user namespaces: the kernel allows no more

_Ranges = list[tuple[int, int, int]]
"""First id, the one after the last, owner; in order."""


class Owners:
    """Tells the owner of processes and user ids. `subuids` is the file that says which ids were given to whom."""

    def __init__(self, subuids: Path = _SUBUIDS) -> None:
        self._subuids = subuids
        self._ranges: _Ranges = []
        self._read_s = -_READ_AGAIN_S
        self._of_namespace: dict[int, int] = {}

    def of_process(self, pid: int, uid: int) -> int:
        """Return the owner of process `pid`, which runs as `uid` (as seen from here)."""
        maker = self._maker(pid)
        return self.of_uid(maker if maker else uid)

    def of_uid(self, uid: int) -> int:
        """Return who was given a user id; the id itself where it is nobody's."""
        now_s = time.monotonic()
        if now_s >= self._read_s + _READ_AGAIN_S:
            self._ranges, self._read_s, self._of_namespace = _parsed(text_of(self._subuids)), now_s, {}
        place = bisect_right(self._ranges, (uid, 1 << 40, 1 << 40)) - 1
        if place >= 0 and self._ranges[place][0] <= uid < self._ranges[place][1]:
            return self._ranges[place][2]
        return uid

    def _maker(self, pid: int) -> int:
        """Return who made the outermost user namespace below ours that a process is in; 0 where root did, or none is.

        What root made for a container runs as the ids that root gave it.
        """
        try:
            here, there = Path("/proc/self/ns/user").stat().st_ino, Path(f"/proc/{pid}/ns/user").stat().st_ino
            if here == there:
                return 0
            if there not in self._of_namespace:
                self._of_namespace[there] = _maker_of(f"/proc/{pid}/ns/user", here)
            return self._of_namespace[there]
        except OSError:
            return 0


def user_name(uid: int) -> str:
    """Return what a user is called; the number where that has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def _maker_of(path: str, here: int) -> int:
    """Return the owner of the namespace at `path`, or of the one above it that is just below `here`. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _ in range(_MOST_NESTED):
            above = _ioctl(descriptor, _PARENT)
            if os.fstat(above).st_ino == here:
                os.close(above)
                break
            os.close(descriptor)
            descriptor = above
        owner = ctypes.c_uint32()
        _ioctl(descriptor, _OWNER, ctypes.addressof(owner))
        return owner.value
    finally:
        os.close(descriptor)


def _ioctl(descriptor: int, request: int, address: int = 0) -> int:
    result = int(ctypes.CDLL(None, use_errno=True).ioctl(descriptor, ctypes.c_ulong(request), ctypes.c_void_p(address)))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _parsed(text: str) -> _Ranges:
    """Read lines NAME:FIRST:COUNT, the name possibly a number; what overlaps or cannot be read is left out."""
    ranges: _Ranges = []
    for line in text.splitlines():
        name, *numbers = line.strip().split(":")
        with suppress(ValueError, KeyError, OverflowError):
            first, count = map(int, numbers)
            ranges.append((first, first + count, int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid))
    return sorted(ranges)
