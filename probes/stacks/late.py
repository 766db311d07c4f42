"""Who is waited for just now: of the processes that train, the one that waits the least while others wait."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from netprof.probes.probe import Columns
from netprof.schema import MarkKind

_BEGINS = tuple(map(int, (MarkKind.DDP_WAIT, MarkKind.POSTED_WAIT, MarkKind.HOROVOD_WAIT)))
_ENDS = tuple(map(int, (MarkKind.DDP_STATS, MarkKind.DDP_FORWARD, MarkKind.POSTED_WAIT_OVER, MarkKind.OPTIMIZER_STEP)))
_MATTERS = 0.15
"""Share of the time by which one waits less than the others."""
_FORGET = 0.5
"""What was seen earlier counts so much of what was seen since."""


class LateRank:
    """Learns from marks for how long each process waits."""

    def __init__(self) -> None:
        self._since_ns: dict[int, int] = {}
        self._waited_ns: dict[int, float] = {}
        self._seen_ns = 0
        self._span_ns = 0.0

    def see(self, marks: Columns) -> None:
        """Take a batch of marks."""
        time_ns, pid, kind = (np.asarray(marks[name], np.int64) for name in ("time_ns", "pid", "kind"))
        rows = np.flatnonzero(np.isin(kind, (*_BEGINS, *_ENDS)))
        for row in rows[np.argsort(time_ns[rows], kind="stable")].tolist():
            own, at_ns = int(pid[row]), int(time_ns[row])
            self._waited_ns.setdefault(own, 0.0)
            if int(kind[row]) in _BEGINS:
                self._since_ns.setdefault(own, at_ns)
            elif (since_ns := self._since_ns.pop(own, None)) is not None:
                self._waited_ns[own] += at_ns - since_ns
        newest_ns = int(time_ns.max(initial=0))
        if self._seen_ns:
            self._span_ns += max(0, newest_ns - self._seen_ns)
        self._seen_ns = max(self._seen_ns, newest_ns)

    def named(self, now_ns: int, among: Collection[int]) -> int | None:
        """Return who is waited for, None where nobody is; what was seen so far is half forgotten then."""
        span_ns = self._span_ns + max(0, now_ns - self._seen_ns) * bool(self._seen_ns)
        waits = {pid: self._waited_ns.get(pid, 0.0) for pid in among}
        for pid, since_ns in self._since_ns.items():
            if pid in waits:
                waits[pid] += max(0, now_ns - max(since_ns, now_ns - int(span_ns)))
        for pid in self._waited_ns:
            self._waited_ns[pid] *= _FORGET
        self._span_ns *= _FORGET
        if len(waits) < 2 or span_ns <= 0:
            return None
        least, *others = sorted(waits, key=lambda pid: waits[pid])
        return least if waits[others[0]] - waits[least] >= _MATTERS * span_ns else None
