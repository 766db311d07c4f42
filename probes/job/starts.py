"""Programs that were started on this machine, as the kernel tells of each."""

from __future__ import annotations

import numpy as np

from netprof.probes.kernel.loader import BpfObject, RingBuffer
from netprof.probes.kernel.types import for_this_kernel


class Starts:
    """Learns of every program that is started, from now on. Raises NotPermittedError or NetprofError."""

    def __init__(self) -> None:
        self._object = BpfObject(for_this_kernel("job"))
        self._ring = RingBuffer(self._object, "starts", np.dtype("u8"))
        self._object.attach("program_started")
        self._missed = 0

    def drain(self) -> tuple[set[int], bool]:
        """Return the processes that were started as programs since the last call, and whether those are all."""
        records = self._ring.drain()
        if not len(records):
            return set(), True
        pids = set(records.tolist())
        before, self._missed = self._missed, self._object.counters("missed")["missed"]
        return pids, self._missed == before

    def close(self) -> None:
        """Detach. May be called twice."""
        self._ring.close()
        self._object.close()
