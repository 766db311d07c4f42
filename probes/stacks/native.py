"""Native and kernel frames of one thread while it is on a CPU, by a BPF program at a perf event of that thread.

Callers are found by frame pointers: of libraries compiled without them, as torch's are, the innermost frame is certain
and others may be missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import queue
import struct
import threading
import time
from collections.abc import Iterator
from itertools import takewhile

import numpy as np

from netprof.closing import Closing, all_or_nothing
from netprof.errors import NetprofError
from netprof.probes.kernel.btf import layout
from netprof.probes.kernel.loader import BpfLink, BpfObject, RingBuffer
from netprof.probes.marks.reading import ReadingTime
from netprof.probes.probe import Columns
from netprof.probes.stacks.frame_names import FrameNames, frame

SAMPLE = layout("stacks", "sample")
"""`struct sample` of stacks.h."""

_PERF_EVENT_OPEN = 241 if platform.machine() == "aarch64" else 298
_SOFTWARE, _CPU_CLOCK, _FREQUENCY, _CLOSE_ON_EXEC = 1, 0, 1 << 10, 8
_ENDS_WITHIN_S = 1.0

_Sampled = tuple[int, np.ndarray[tuple[int], np.dtype[np.void]]]


class NativeStacks(Closing):
    """Samples one thread at a time. Names are found in a thread of its own: the files are the job's.

    Raises NotPermittedError or NetprofError where the program cannot be loaded.
    """

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        with all_or_nothing() as opened:
            self.object = opened.enter_context(BpfObject("stacks"))
            self._ring = opened.enter_context(RingBuffer(self.object, "samples", SAMPLE))
        self._link: BpfLink | None = None
        self._pid = 0
        self._taken: queue.SimpleQueue[_Sampled | None] = queue.SimpleQueue()
        self._named: queue.SimpleQueue[Columns] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._name, name="netprof-stacks", daemon=True)
        self.naming_s = 0.0
        """CPU time that finding names has taken."""
        self.missed = 0
        """Samples that found the ring full."""

    def begin(self, pid: int, tid: int) -> None:
        """Sample a thread of a process from now on. Raises NetprofError."""
        event = struct.pack("<IIQQQQQIIQ", _SOFTWARE, 64, _CPU_CLOCK, self._rate_hz, 0, 0, _FREQUENCY, 0, 0, 0)
        call = ctypes.CDLL(None, use_errno=True).syscall
        descriptor = call(_PERF_EVENT_OPEN, event, tid, -1, -1, ctypes.c_ulong(_CLOSE_ON_EXEC))
        if descriptor < 0:
            raise NetprofError(f"the kernel refuses a perf event: {os.strerror(ctypes.get_errno())}")
        self._pid, self._link = pid, self.object.attach_perf_event("tick", descriptor)

    def waiting(self) -> int:
        """Return how many samples were taken since the last end."""
        return self._ring.waiting()

    def end(self) -> None:
        """Stop sampling, and have the frames named."""
        if self._link is None:
            return
        self._link.close()
        self._link = None
        self._taken.put((self._pid, self._ring.drain()))
        self.missed = self.object.counters("missed")["missed"]
        if self._thread.ident is None:
            self._thread.start()

    def rows(self, *, final: bool = False) -> Iterator[Columns]:
        """Yield what has been named since the last call; at the end that is waited for, for a second."""
        if final and self._thread.ident is not None:
            self._taken.put(None)
            self._thread.join(_ENDS_WITHIN_S)
        while not self._named.empty():
            yield self._named.get()

    def close(self) -> None:
        """Detach and unload. May be called twice."""
        if self._link is not None:
            self._link.close()
            self._link = None
        self._ring.close()
        self.object.close()

    def _name(self) -> None:
        reading, names = ReadingTime(), dict[int, FrameNames]()
        while (taken := self._taken.get()) is not None:
            pid, samples = taken
            with contextlib.suppress(NetprofError):
                if pid not in names:
                    names[pid] = FrameNames(pid, reading)
                names[pid].look_again()
                self._named.put(self._columns(pid, samples, names[pid]))
            self.naming_s = time.thread_time()
        for of_process in names.values():
            of_process.close()

    def _columns(self, pid: int, samples: np.ndarray[tuple[int], np.dtype[np.void]], names: FrameNames) -> Columns:
        return {
            "time_ns": samples["time_ns"],
            "period_ns": [10**9 // self._rate_hz] * len(samples),
            "pid": [pid] * len(samples),
            "frames": [_frames(names, sample) for sample in samples],
        }


def _frames(names: FrameNames, sample: np.void) -> str:
    """Return a stack, outermost frame first; it ends where no file is mapped: the caller was not found."""
    user = list(takewhile(bool, map(names.of, sample["user"][: int(sample["frames"])].tolist())))
    kernel = [part for part in bytes(sample["kernel"]).decode("ascii", "replace").split(";") if part not in ("", "0x0")]
    return ";".join([*reversed(user), *(frame(part, "kernel") for part in reversed(kernel))])
