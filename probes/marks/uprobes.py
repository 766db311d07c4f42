"""Attaching one program to many functions of a library, in the fastest way that the kernel has.

`uprobe_multi` attaches all functions of one process with one link. Its first kernels (6.6 to 6.9) filtered by thread
instead of by process, so it is used only where that is right. Before, each function needs a perf event of its own,
which takes about 85 ms to detach, one after the other. So there is one set of them for all processes and not one for
each rank: the probes are then in every process that maps the library, and the program drops the hits of those that are
not ours (about half a microsecond each).
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from netprof.errors import NetprofError
from netprof.probes.kernel.libbpf import libbpf
from netprof.probes.kernel.loader import BpfLink, BpfObject, attach_uprobe_multi, attach_uprobe_perf

MULTI = "uprobe_multi"
"""The name of the interface that attaches all at once."""

TRACE_UPROBE_MULTI = 48
"""The expected attach type of a program for `uprobe_multi`."""

_ALL_PROCESSES, _NO_PROCESS = 0, 0xFFFFFFFF
_CLOSING_THREADS = 16
_ENOTSUPP = 524  # the kernel's own, without a name in errno


@dataclass(frozen=True)
class Place:
    """Where a probe goes: an offset in the library's file, and the cookie that the program sees on a hit."""

    offset: int
    cookie: int


class Attacher:
    """Attaches program `name` of a loaded object. `multi` says that it was loaded for `uprobe_multi`."""

    def __init__(self, loaded: BpfObject, name: str, multi: bool) -> None:
        self.multi = multi
        self._program_fd = loaded.program_fd(name)
        self._program = loaded.program_handle(name)

    @property
    def method(self) -> str:
        """Name the kernel interface in use."""
        return MULTI if self.multi else "perf events"

    def attach(self, path: str, places: Sequence[Place], pid: int) -> tuple[list[BpfLink], dict[Place, NetprofError]]:
        """Attach to `places` of the library at `path` in process `pid`: the links, and what the kernel refused and why.

        Without uprobe_multi the probes are in all processes, whatever `pid` is.
        """
        if self.multi and places:
            try:
                return [self._attach_multi(path, places, pid)], {}
            except NetprofError:  # one of them is enough for that: the others go in one by one
                pass
        links: list[BpfLink] = []
        refused: dict[Place, NetprofError] = {}
        for place in places:
            try:
                links.append(self._attach_one(path, place, pid))
            except NetprofError as error:
                refused[place] = error
        return links, refused

    def _attach_one(self, path: str, place: Place, pid: int) -> BpfLink:
        if self.multi:
            return self._attach_multi(path, [place], pid)
        return attach_uprobe_perf(self._program, path, place.offset, place.cookie)

    def _attach_multi(self, path: str, places: Sequence[Place], pid: int) -> BpfLink:
        offsets, cookies = [place.offset for place in places], [place.cookie for place in places]
        return attach_uprobe_multi(self._program_fd, path, offsets, cookies, pid)


def supports_multi(program_fd: int) -> bool:
    """Say whether the kernel has uprobe_multi and lets it filter by process (6.10, or a stable kernel with the fix).

    It is asked to attach to a directory. With the feature it refuses the file (EBADF); with the fix it refuses an
    impossible pid before it looks at the file (EINVAL). libbpf decides in the same way.
    """
    return _answer(program_fd, _ALL_PROCESSES) == errno.EBADF and _answer(program_fd, _NO_PROCESS) == errno.EINVAL


def close_links(links: Sequence[BpfLink]) -> None:
    """Detach all at once: the kernel makes each wait for a grace period, and the waits can overlap."""
    if not links:
        return
    with ThreadPoolExecutor(max_workers=min(_CLOSING_THREADS, len(links))) as pool:
        for closing in [pool.submit(link.close) for link in links]:
            closing.result()


def refusal(error: NetprofError) -> str:
    """Say why the kernel refused a place, without the path by which it was attached."""
    reason = error.message.rpartition(": ")[2]
    return "it begins with an instruction that cannot be probed" if reason == os.strerror(_ENOTSUPP) else reason


def _answer(program_fd: int, pid: int) -> int:
    zero = (ctypes.c_uint64 * 1)(0)
    ctypes.set_errno(0)
    descriptor = libbpf().netprof_uprobe_multi(program_fd, b"/", zero, zero, 1, pid)
    return ctypes.get_errno() if descriptor < 0 else 0
