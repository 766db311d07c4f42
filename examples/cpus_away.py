"""How much of the time the CPUs of this machine were away: with the hypervisor's other guests, or held by an interrupt.

Jobs and links between namespaces are as real as the CPUs that play them. While those are away, no timer fires, so that
a shaped link that should be full stands still, and what was injected is no longer what the job waits for. A guest's own
count of stolen time need not know of it. So a real-time thread on every CPU asks to be woken every 5 ms, and the share
of times at which it came more than half a millisecond late is the share of time that the CPU was away: of an idle
machine or one that is busy with jobs 0 to 1 %. Programs that are busy do not count: they do not hold up timers.

    sudo python examples/cpus_away.py            a line every second
"""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType

_PERIOD_S, _LATE_S = 5e-3, 5e-4
_COUNTS = struct.Struct("=QQ")  # how often a CPU was asked, how often it came late
DISTURBED = 0.04  # from here on an experiment says more about the machine than about what is tried


class CpusAway:
    """Watches all CPUs from a process of its own until it is closed. Needs root."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            file.truncate((os.cpu_count() or 1) * _COUNTS.size)
            self._counts = mmap.mmap(file.fileno(), 0)
            command = [sys.executable, str(Path(__file__).absolute()), str(file.fileno())]
            self._watcher = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[file.fileno()])
        self._before = self._read()

    def begin(self) -> None:
        """Forget what was until now."""
        self._before = self._read()

    def share(self) -> float:
        """Return the share of the time since begin() that the CPU that was away the most was away."""
        pairs = zip(self._read(), self._before, strict=True)
        asked_late = [
            (asked - asked_before, late - late_before) for (asked, late), (asked_before, late_before) in pairs
        ]
        return max((late / asked for asked, late in asked_late if asked), default=0.0)

    def samples(self) -> int:
        """Return how often the CPU that was asked the least was asked since begin()."""
        pairs = zip(self._read(), self._before, strict=True)
        return min((asked - asked_before for (asked, _), (asked_before, _) in pairs), default=0)

    def close(self) -> None:
        """End the watching process."""
        self._watcher.communicate()

    def __enter__(self) -> CpusAway:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> list[tuple[int, int]]:
        return list(_COUNTS.iter_unpack(self._counts[:]))


def _watch(cpu: int, row: int, counts: mmap.mmap) -> None:
    """Ask to be woken on a CPU, for ever, and count."""
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_max(os.SCHED_FIFO)))
    asked = late = 0
    due_s = time.monotonic()
    while True:
        due_s += _PERIOD_S
        time.sleep(max(due_s - time.monotonic(), 0))
        late_s = time.monotonic() - due_s
        missed = int(late_s / _PERIOD_S)
        due_s += missed * _PERIOD_S
        asked += 1 + missed
        late += missed + (late_s > _LATE_S)
        _COUNTS.pack_into(counts, row * _COUNTS.size, asked, late)


def _watch_all(counts: mmap.mmap) -> None:
    """Watch all CPUs until standard input is closed, as it is when who started this ends."""
    for row, cpu in enumerate(sorted(os.sched_getaffinity(0))):
        threading.Thread(target=_watch, args=(cpu, row, counts), daemon=True).start()
    sys.stdin.buffer.read()


def main() -> int:
    """Watch for who started this, or print a line every second."""
    if len(sys.argv) > 1:
        _watch_all(mmap.mmap(int(sys.argv[1]), 0))
        return 0
    with CpusAway() as away:
        while True:
            away.begin()
            time.sleep(1)
            print(f"{away.share():.1%}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
