"""Which system call a thread is blocked in, as what it waits for."""

from __future__ import annotations

import platform
import stat
from collections.abc import Mapping
from functools import cache

import numpy as np
import numpy.typing as npt

from netprof.schema import BlockedIn

_X86: Mapping[BlockedIn, tuple[int, ...]] = {
    # connect accept sendto recvfrom sendmsg recvmsg accept4 recvmmsg sendmmsg
    BlockedIn.SOCKET: (42, 43, 44, 45, 46, 47, 288, 299, 307),
    BlockedIn.LOCK: (202, 449),  # futex futex_waitv
    BlockedIn.SLEEP: (34, 35, 230),  # pause nanosleep clock_nanosleep
    # open fsync fdatasync sync openat pread64 pwrite64 getdents64 stat sync_file_range fallocate newfstatat
    BlockedIn.FILE: (2, 4, 17, 18, 74, 75, 162, 217, 257, 262, 277, 285),
    BlockedIn.POLL: (7, 23, 232, 270, 271, 281, 441),  # poll select epoll_wait pselect6 ppoll epoll_pwait epoll_pwait2
    BlockedIn.CHILD: (61, 247),  # wait4 waitid
    BlockedIn.DEVICE: (16,),  # ioctl
}
_ARM64: Mapping[BlockedIn, tuple[int, ...]] = {
    BlockedIn.SOCKET: (202, 203, 206, 207, 211, 212, 242, 243, 269),
    BlockedIn.LOCK: (98, 449),
    BlockedIn.SLEEP: (101, 115),
    BlockedIn.FILE: (47, 56, 61, 67, 68, 79, 81, 82, 83, 84),
    BlockedIn.POLL: (22, 72, 73, 441),
    BlockedIn.CHILD: (95, 260),
    BlockedIn.DEVICE: (29,),
}
_X86_ON_A_FILE = (0, 1, 3, 7, 16, 17, 18, 19, 20, 40, 271, 275, 295, 296, 326, 327, 328)
"""Calls whose file tells what they wait for: read write close poll ioctl pread64 pwrite64 readv writev sendfile ppoll
splice preadv pwritev copy_file_range preadv2 pwritev2. The first argument of others may be anything, as a count."""
_ARM64_ON_A_FILE = (29, 57, 63, 64, 65, 66, 67, 68, 69, 70, 71, 73, 76, 285, 286, 287)
_SELECT, _SLEEP = ((72,), 101) if platform.machine() == "aarch64" else ((23, 270), 35)
_BY_FILE = {
    stat.S_IFSOCK: BlockedIn.SOCKET,
    stat.S_IFIFO: BlockedIn.PIPE,
    stat.S_IFREG: BlockedIn.FILE,
    stat.S_IFDIR: BlockedIn.FILE,
    stat.S_IFBLK: BlockedIn.FILE,
    stat.S_IFCHR: BlockedIn.DEVICE,
}
_BY_TYPE = np.full(1 << 4, int(BlockedIn.OTHER), np.uint8)
_BY_TYPE[[mode >> 12 for mode in _BY_FILE]] = [int(each) for each in _BY_FILE.values()]


def kinds_of(
    call: npt.NDArray[np.int32], file_type: npt.NDArray[np.uint16], runnable: npt.NDArray[np.uint16]
) -> npt.NDArray[np.uint8]:
    """Return the BlockedIn of each: by its system call (-1: none), and the type of the file that it is called on."""
    by_call, has_file = _by_call(platform.machine())
    known = np.where((call >= 0) & (call < len(by_call)), call, -1)
    by_file = np.where(has_file[known], _BY_TYPE[file_type >> 12], np.uint8(BlockedIn.OTHER))
    by_file[(by_call[known] == BlockedIn.POLL) & (by_file == BlockedIn.FILE)] = BlockedIn.OTHER  # an eventfd: never so
    kind = np.where(by_file == BlockedIn.OTHER, by_call[known], by_file)
    kind[call < 0] = BlockedIn.MEMORY
    kind[runnable == 1] = BlockedIn.CPU
    kind[runnable == 2] = BlockedIn.STOPPED
    return kind


def as_called(call: int, first: int) -> int:
    """Return a system call, given its first argument: a select of no descriptors is a sleep, as `classify` says it."""
    return _SLEEP if call in _SELECT and not first & 0xFFFFFFFF else call


def type_by_name(name: str) -> int:
    """Return the type of a file, as in st_mode, by what a link in /proc/PID/fd says: the file system is not asked."""
    for begin, mode in (("socket:", stat.S_IFSOCK), ("pipe:", stat.S_IFIFO), ("/dev/", stat.S_IFCHR)):
        if name.startswith(begin):
            return mode
    return stat.S_IFREG if name.startswith("/") else 0


@cache
def _by_call(machine: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """Return, by the number of a system call, what a thread in it waits for, and whether its file tells that better.

    The last of each is for all calls beyond.
    """
    calls, on_a_file = (_ARM64, _ARM64_ON_A_FILE) if machine == "aarch64" else (_X86, _X86_ON_A_FILE)
    kind = np.full(max(map(max, (*calls.values(), on_a_file))) + 2, int(BlockedIn.OTHER), np.uint8)
    for each, numbers in calls.items():
        kind[list(numbers)] = int(each)
    return kind, np.isin(np.arange(len(kind)), on_a_file)
