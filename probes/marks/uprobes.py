"""Attaching one program to many functions of a library, in the fastest way that the kernel has.

`uprobe_multi` attaches all functions of one process with one link. Its first kernels (6.6 to 6.9) filtered by thread
instead of by process, so it is used only where that is right. Before, each function needs a perf event of its own,
which takes about 85 ms to detach, one after the other. So there is one set of them for all processes and not one for
each rank: the probes are then in every process that maps the library, and the program drops the hits of those that are
not ours (about half a microsecond each). Probes at returns are only ever put into the processes of the job (`returns`).
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from netprof.closing import all_or_nothing
from netprof.errors import NetprofError, NotPermittedError
from netprof.probes.kernel.libbpf import libbpf
from netprof.probes.kernel.loader import BpfLink, BpfObject, attach_uprobe_multi, attach_uprobe_perf

MULTI = "uprobe_multi"
"""The name of the interface that attaches all at once."""

TRACE_UPROBE_MULTI = 48
"""The expected attach type of a program for `uprobe_multi`."""

EVERY_PROCESS = 0
"""Instead of a process, for what is attached in all that map a file."""

FileOfProcess = tuple[int, tuple[int, int]]
"""A process, and a library of it by device and inode."""

_ALL_PROCESSES, _NO_PROCESS = 0, 0xFFFFFFFF  # to uprobe_multi
_ANY_PROCESS = -1  # to a perf event
_CLOSING_THREADS = 16
_ENOTSUPP = 524  # the kernel's own, without a name in errno


ROWS_A_PLACE = 4
"""Rows of the program's table that one hit can record."""


@dataclass(frozen=True)
class ProbePlace:
    """Where a probe goes: an offset in the library's file, and the rows of the program's table that a hit records."""

    offset: int
    rows: tuple[int, ...]
    at_return: bool = False

    @property
    def cookie(self) -> int:
        """What the program sees on a hit: the rows in their order, 16 bits each, and each plus one."""
        return sum((row + 1) << 16 * index for index, row in enumerate(self.rows))


def together(places: Iterable[ProbePlace]) -> tuple[ProbePlace, ...]:
    """Make one place of those where rows meet: a hit then records all of them, in the order given.

    Raises ValueError where too many rows meet.
    """
    joined: dict[tuple[int, bool], tuple[int, ...]] = {}
    for place in places:
        at = (place.offset, place.at_return)
        joined[at] = joined.get(at, ()) + place.rows
    if any(len(rows) > ROWS_A_PLACE for rows in joined.values()):
        raise ValueError(f"more than {ROWS_A_PLACE} marks at one function")
    return tuple(ProbePlace(offset, rows, at_return) for (offset, at_return), rows in joined.items())


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

    def attach(
        self, path: str, places: Sequence[ProbePlace], pid: int
    ) -> tuple[list[BpfLink], dict[ProbePlace, NetprofError]]:
        """Attach to `places` of the library at `path` in process `pid`: the links, and what the kernel refused and why.

        They are all entries, or all returns. Without uprobe_multi probes at entries are in all processes, whatever
        `pid` is.
        """
        if self.multi and places:
            try:
                return [self._attach_multi(path, places, pid)], {}
            except NetprofError:  # one of them is enough for that: the others go in one by one
                pass
        links: list[BpfLink] = []
        refused: dict[ProbePlace, NetprofError] = {}
        with all_or_nothing() as opened:
            for place in places:
                try:
                    links.append(opened.enter_context(self._attach_one(path, place, pid)))
                except NetprofError as error:
                    refused[place] = error
        return links, refused

    def _attach_one(self, path: str, place: ProbePlace, pid: int) -> BpfLink:
        if self.multi:
            return self._attach_multi(path, [place], pid)
        where = pid if place.at_return else _ANY_PROCESS
        return attach_uprobe_perf(self._program, path, place.offset, place.cookie, where, place.at_return)

    def _attach_multi(self, path: str, places: Sequence[ProbePlace], pid: int) -> BpfLink:
        offsets, cookies = [place.offset for place in places], [place.cookie for place in places]
        return attach_uprobe_multi(self._program_fd, path, offsets, cookies, pid, places[0].at_return)


def load_for_uprobes(
    name: str,
    program: str,
    *,
    reuse: Mapping[str, int],
    max_entries: Mapping[str, int] | None = None,
    rodata: Mapping[str, int] | None = None,
    multi: bool | None = None,
) -> tuple[BpfObject, Attacher]:
    """Load object `name` so that its `program` attaches by uprobe_multi where the kernel can do that, else perf events.

    `multi` chooses the way (None: the best that there is). Raises NotPermittedError or NetprofError.
    """
    if multi is not False:
        kinds = {program: TRACE_UPROBE_MULTI}
        try:
            loaded = BpfObject(name, rodata=rodata, max_entries=max_entries, reuse=reuse, expected_attach_type=kinds)
        except NotPermittedError:
            raise
        except NetprofError:
            if multi:
                raise
        else:
            with all_or_nothing() as opened:
                opened.enter_context(loaded)
                if multi or supports_multi(loaded.program_fd(program)):
                    return loaded, Attacher(loaded, program, multi=True)
            loaded.close()
    with all_or_nothing() as opened:
        loaded = opened.enter_context(BpfObject(name, rodata=rodata, max_entries=max_entries, reuse=reuse))
        return loaded, Attacher(loaded, program, multi=False)


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


def detach(attached: Iterable[dict[FileOfProcess, list[BpfLink]]], pid: int | None = None) -> None:
    """Detach from the files of one process, or of all, at once."""
    gone = [(links, key) for links in attached for key in links if pid in (None, key[0])]
    close_links([link for links, key in gone for link in links.pop(key)])


def refusal(error: NetprofError) -> str:
    """Say why the kernel refused a place, without the path by which it was attached."""
    reason = error.message.rpartition(": ")[2]
    return "it begins with an instruction that cannot be probed" if reason == os.strerror(_ENOTSUPP) else reason


def _answer(program_fd: int, pid: int) -> int:
    zero = (ctypes.c_uint64 * 1)(0)
    ctypes.set_errno(0)
    descriptor = libbpf().netprof_uprobe_multi(program_fd, b"/", zero, zero, 1, pid, False)
    return ctypes.get_errno() if descriptor < 0 else 0
