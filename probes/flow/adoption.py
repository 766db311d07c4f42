"""Adoption: the sockets that the job's processes came to hold without our seeing it, however that was."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from netprof.errors import NetprofError
from netprof.probes.kernel.loader import BpfObject, map_delete, map_keys, map_lookup, map_update, run_iterator
from netprof.probes.kernel.netns import NetworkNamespace

LOOK_EVERY_S = 0.4
_AT_MOST_EVERY_S = 0.8  # within a second of whatever happened, drains included
_SHARE = 0.01  # of a core, for looking, where the promise allows
_FIRST_LOOKS = 8  # a table of sockets to be adopted holds 65,536
_PLACE = np.dtype([("netns", "u4"), ("pid", "u4")])
_WANTED = np.dtype([("pid", "u4"), ("waiting", "u4"), ("missed", "u4")])
_ADDRESS_BYTES = 8


class Adoption:
    """Looks through the files of the job's processes for sockets that are not known, and has them adopted."""

    def __init__(self, loaded: BpfObject) -> None:
        self._object = loaded
        self._find = loaded.attach_iterator("find_sockets")
        self._adopt = loaded.attach_iterator("adopt_sockets")
        self._next_s = 0.0

    def begin(self) -> int:
        """Adopt all that is there, and return when that was done (CLOCK_MONOTONIC ns): what comes later is late."""
        for _ in range(_FIRST_LOOKS):
            if not self.look():
                break
        self._object.set_counter("late", 1)
        return time.monotonic_ns()

    def look_if_due(self) -> None:
        """Look again, if that was not done just now."""
        if time.monotonic() >= self._next_s:
            self.look()

    def look(self) -> bool:
        """Adopt every socket that is not known yet; tell whether there was any."""
        begin_s = time.monotonic()
        places = np.unique(np.frombuffer(run_iterator(self._find), _PLACE))
        for netns in np.unique(places["netns"]).tolist():
            self._adopt_in(netns, places["pid"][places["netns"] == netns].tolist())
        if places.size:
            self._note_missed()
        spent_s = time.monotonic() - begin_s
        self._next_s = begin_s + min(max(LOOK_EVERY_S, spent_s / _SHARE), _AT_MOST_EVERY_S)
        return bool(places.size)

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
