"""Adoption: the sockets that the job's processes came to hold without our seeing it, however that was."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.errors import NetprofError
from netprof.probes.kernel.btf import layout
from netprof.probes.kernel.loader import BpfObject, map_delete, map_keys, map_lookup, map_update, run_iterator
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kernel.targets import TargetMap

LOOK_EVERY_S = 0.3  # less than from one drain to the next, so that each looks
_WITHIN_S = 0.6  # of whatever happened; with the wait for a drain that is a second
_SHARE = 0.01  # of a core, for looking where nothing seems to have happened: 100,000 sockets take 40 ms
_FIRST_LOOKS = 8  # a table of sockets to be adopted holds 65,536
_HOLDER = np.dtype([("netns", "u4"), ("pid", "u4")])
_WANTED = layout("flow", "wanted")
_ADDRESS_BYTES = 8


class Adoption:
    """Looks through the files of the job's processes for sockets that are not known, and has them adopted."""

    def __init__(self, loaded: BpfObject, targets: TargetMap) -> None:
        self._object, self._targets = loaded, targets
        self._find = loaded.attach_iterator("find_sockets")
        self._adopt = loaded.attach_iterator("adopt_sockets")
        self._next_s = self._soonest_s = 0.0
        self._open_files = 0  # of the job, where looks are dear; else, and where the kernel does not say, 0

    def begin(self) -> int:
        """Adopt all that is there, and return when that was done (CLOCK_MONOTONIC ns): what comes later is late."""
        for _ in range(_FIRST_LOOKS):
            if not self.look():
                break
        self._object.set_counter("late", 1)
        return time.monotonic_ns()

    def look_if_due(self) -> None:
        """Look again, if that was not done just now.

        Of a job with so many files that a look is dear, their number tells whether there is anything to be found: only
        a socket that takes the place of another then waits for its turn, or for its end.
        """
        now_s = time.monotonic()
        if now_s >= self._next_s or (now_s >= self._soonest_s and self._count_files() != self._open_files):
            self.look()

    def look(self) -> bool:
        """Adopt every socket that is not known yet; tell whether there was any."""
        begin_s = time.monotonic()
        if self._open_files:
            self._open_files = self._count_files()  # before: what comes meanwhile is not in it
        counted = self._open_files > 0
        holders = run_iterator(self._find)
        if holders:
            self._adopt_all(np.unique(np.frombuffer(holders, _HOLDER)))
        dear_s = (time.monotonic() - begin_s) / _SHARE
        if not counted and dear_s > _WITHIN_S:
            self._open_files = 1  # no such number: the next look is not put off, and counts
        wait_s = dear_s if counted and not holders else min(dear_s, _WITHIN_S)
        self._next_s = begin_s + max(LOOK_EVERY_S, wait_s)
        self._soonest_s = begin_s + max(LOOK_EVERY_S, min(dear_s, _WITHIN_S))
        return bool(holders)

    def _count_files(self) -> int:
        """Return how many files the job's processes have open."""
        total = 0
        for pid in self._targets.pids():
            with suppress(OSError):  # it has ended
                total += Path(f"/proc/{pid}/fd").stat().st_size
        return total

    def _adopt_all(self, holders: NDArray[Any]) -> None:
        """Adopt the wanted sockets of the namespaces of `holders`, processes that hold one each."""
        for netns in np.unique(holders["netns"]).tolist():
            self._adopt_in(netns, holders["pid"][holders["netns"] == netns].tolist())
        self._note_missed()

    def _adopt_in(self, netns: int, pids: list[int]) -> None:
        """Adopt the sockets of a network namespace, which one of `pids` is in."""
        if netns == Path("/proc/thread-self/ns/net").stat().st_ino:
            run_iterator(self._adopt)
            return
        for pid in pids:
            with suppress(NetprofError), NetworkNamespace.of(pid) as namespace:
                if namespace.inode == netns:
                    namespace.run(lambda: run_iterator(self._adopt))
                    return

    def _note_missed(self) -> None:
        """Mark what could not be adopted, so that the next look does it without TCP's lock; then drop it."""
        descriptor = self._object.map_fd("wanted_sockets")
        for address in list(map_keys(descriptor, _ADDRESS_BYTES)):
            wanted = map_lookup(descriptor, address, _WANTED.itemsize)
            if wanted is None:
                continue
            row = np.frombuffer(wanted, _WANTED)[0].copy()
            if row["missed"]:
                map_delete(descriptor, address)
            else:
                row["missed"] = 1
                map_update(descriptor, address, row.tobytes())
