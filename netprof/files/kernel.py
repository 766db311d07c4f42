"""System calls that Python has no function for: rights of one thread, and opening without leaving a mount."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import stat
from collections.abc import Sequence

_OPENAT2, _CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 437, 444, 445, 446  # the same on every architecture
_PATH_BENEATH, _VERSION = 1, 1
_WRITE_FILE, _TRUNCATE, _REFER = 1 << 1, 1 << 14, 1 << 13
_MAKE_AND_REMOVE = 0x1FF0  # of Landlock's first version: every kind of file, and folders
_NO_NEW_PRIVILEGES = 38
_SETGROUPS = {"x86_64": 116, "aarch64": 159}
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_NOBODY = 0xFFFFFFFF  # no user: asking for it changes nothing
_CAPABILITY_VERSION, _AMBIENT, _CLEAR_ALL = 0x20080522, 47, 4
_PARENT_DEATH_SIGNAL = 1
_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_here(name: str, flags: int, directory: int) -> int:
    """Open what is called so in a directory: through no link, and on the same mount. Raises OSError.

    Without openat2 (kernels before 5.6, filters of old containers) the device of a folder is looked at instead.
    """
    how = _OpenHow(flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0, _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH)
    descriptor = _libc.syscall(
        ctypes.c_long(_OPENAT2), directory, os.fsencode(name), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))
    )
    if descriptor >= 0:
        return int(descriptor)
    if (number := ctypes.get_errno()) not in (errno.ENOSYS, errno.EPERM):
        raise OSError(number, os.strerror(number), name)
    descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    about = os.fstat(descriptor)
    if stat.S_ISDIR(about.st_mode) and about.st_dev != os.fstat(directory).st_dev:
        os.close(descriptor)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    return descriptor


class _Below(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("descriptor", ctypes.c_int32))


def landlock_version() -> int:
    """Return which Landlock the kernel has; below 1 none."""
    return int(_libc.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION)))


def write_only_below(descriptors: Sequence[int]) -> bool:
    """Let this thread, and those that it starts, write to files only in and below what is open, by Landlock.

    What is open for writing already stays so. Says whether the kernel can do that.
    """
    version = landlock_version()
    if version < 1:
        return False
    files = _WRITE_FILE | (_TRUNCATE if version > 2 else 0)
    handled = ctypes.c_uint64(files | _MAKE_AND_REMOVE | (_REFER if version > 1 else 0))
    rules = _libc.syscall(ctypes.c_long(_CREATE_RULESET), ctypes.byref(handled), ctypes.c_size_t(8), ctypes.c_uint32(0))
    if rules < 0:
        return False
    try:
        for descriptor in descriptors:
            is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            below = _Below(handled.value if is_folder else files, descriptor)
            _libc.syscall(ctypes.c_long(_ADD_RULE), rules, _PATH_BENEATH, ctypes.byref(below), ctypes.c_uint32(0))
        _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        return bool(_libc.syscall(ctypes.c_long(_RESTRICT_SELF), rules, ctypes.c_uint32(0)) == 0)
    finally:
        os.close(rules)


Capabilities = tuple[int, ...]
"""A thread's effective, permitted and inheritable set, each as two words: the lower 32 capabilities first."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("thread", ctypes.c_int32))


def capabilities() -> Capabilities:
    """Return what this thread may do besides what its user may. Raises OSError."""
    words = (ctypes.c_uint32 * 6)()
    if _libc.capget(ctypes.byref(_Header(_CAPABILITY_VERSION, 0)), words):
        raise _error("capget")
    return (words[0], words[3], words[1], words[4], words[2], words[5])


def set_capabilities(wanted: Capabilities) -> None:
    """Let this thread have these: none that is not permitted already. Raises OSError."""
    low, high = wanted[::2], wanted[1::2]
    if _libc.capset(ctypes.byref(_Header(_CAPABILITY_VERSION, 0)), (ctypes.c_uint32 * 6)(*low, *high)):
        raise _error("capset")


def give_up_capabilities() -> None:
    """Let this thread have no capability any more, in no set. Raises OSError."""
    pass_no_capabilities_on()
    set_capabilities((0,) * 6)


def pass_no_capabilities_on() -> None:
    """Let what this thread executes as another user have none of its capabilities. Raises OSError."""
    _libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    set_capabilities((*capabilities()[:4], 0, 0))


def end_with_parent() -> None:
    """Have this process killed when the one that started it ends. To be said after it has become another user."""
    _libc.prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), call)


def rights() -> tuple[int, int]:
    """Return the user and the group that this thread touches files as."""
    return _libc.setfsuid(ctypes.c_uint32(_NOBODY)) & _NOBODY, _libc.setfsgid(ctypes.c_uint32(_NOBODY)) & _NOBODY


def set_rights(uid: int, gid: int, groups: Sequence[int]) -> None:
    """Let this thread touch files as a user; without the right to that nothing changes.

    The kernel takes the capabilities that are about files away with root's file system uid, and gives them back. Others
    open files too, as CAP_SYS_PTRACE does below /proc: `set_capabilities`.
    """
    numbers = (ctypes.c_uint32 * len(groups))(*groups)
    number = _SETGROUPS.get(platform.machine())
    if number is None:
        _libc.setgroups(len(groups), numbers)
    else:  # of this thread alone, which the C library's function is not
        _libc.syscall(ctypes.c_long(number), len(groups), numbers)
    _libc.setfsgid(ctypes.c_uint32(gid))
    _libc.setfsuid(ctypes.c_uint32(uid))
