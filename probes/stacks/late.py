"""Who is waited for just now: of the processes that train, the one that waits the least while others wait."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from netprof.probes.probe import Columns
from netprof.schema import MarkKind

_BEGINS = tuple(map(int, (MarkKind.DDP_WAIT, MarkKind.POSTED_WAIT, MarkKind.HOROVOD_WAIT)))
_ENDS = tuple(map(int, (MarkKind.DDP_STATS, MarkKind.DDP_FORWARD, MarkKind.POSTED_WAIT_OVER, MarkKind.OPTIMIZER_STEP)))
_OF_A_WORK = tuple(
    map(int, (MarkKind.COLLECTIVE_ENQUEUE, MarkKind.COLLECTIVE_BEGIN, MarkKind.COLLECTIVE_END, MarkKind.WORK_WAIT))
)
_BY_TRAINER = tuple(map(int, (MarkKind.DDP_FORWARD, MarkKind.FORWARD, MarkKind.OPTIMIZER_STEP)))
_MOST_WORKS = 4096
_ANY = -1
"""Stands for the work of a wait that no work names."""
_LEAST_NS = 800_000_000
"""How long marks have to be seen: the wait that goes on as the recording begins was not seen to begin."""
_STANDS_NS = 1_000_000_000
"""How long after the last mark that was read a wait is taken to go on."""
_MATTERS = 0.15
"""Share of the time by which one waits less than the others."""
_FORGET = 0.5
"""What was seen earlier counts so much of what was seen since."""


class LateRank:
    """Learns from marks for how long each process waits."""

    def __init__(self) -> None:
        self._waits: dict[int, tuple[int, int]] = {}  # by process: since when, and for which work
        self._under_way: dict[int, set[int]] = {}  # works that are not done, by process
        self._waited_ns: dict[int, float] = {}
        self._trainers: dict[int, int] = {}  # the thread that trains, by process
        self._first_ns = self._seen_ns = 0
        self._span_ns = 0.0

    def see(self, marks: Columns) -> None:
        """Take a batch of marks."""
        names = ("time_ns", "pid", "tid", "kind", "arg0", "arg2")
        time_ns, pid, tid, kind, work, posted = (np.asarray(marks[name]).astype(np.int64) for name in names)
        trains = np.isin(kind, _BY_TRAINER)
        for process, thread in zip(pid[trains].tolist(), tid[trains].tolist(), strict=True):
            if self._trainers.get(process) != process:  # the main thread, if that trains
                self._trainers[process] = thread
        rows = np.flatnonzero(np.isin(kind, (*_BEGINS, *_ENDS, *_OF_A_WORK, MarkKind.PROCESS_EXIT)))
        for row in rows[np.argsort(time_ns[rows], kind="stable")].tolist():
            process, at_ns, what = int(pid[row]), int(time_ns[row]), int(kind[row])
            self._waited_ns.setdefault(process, 0.0)
            if what in _OF_A_WORK:
                self._see_work(process, at_ns, what, int(work[row]), posted=bool(posted[row]))
            elif what in _BEGINS:
                self._waits.setdefault(process, (at_ns, _ANY))
            elif what in _ENDS:
                self._end(process, at_ns)
            else:
                self._waits.pop(process, None)
                self._under_way.pop(process, None)
                self._waited_ns.pop(process, None)
                self._trainers.pop(process, None)
        newest_ns = int(time_ns.max(initial=0))
        if self._seen_ns:
            self._span_ns += max(0, newest_ns - self._seen_ns)
        self._seen_ns = max(self._seen_ns, newest_ns)
        self._first_ns = self._first_ns or newest_ns

    def _see_work(self, process: int, at_ns: int, what: int, work: int, *, posted: bool) -> None:
        """Take a mark of a collective: a thread waits for its work, or performs it by itself if it has none."""
        works = self._under_way.setdefault(process, set())
        if what == MarkKind.COLLECTIVE_END:
            works.discard(work)
            if self._waits.get(process, (0, _ANY))[1] == work:
                self._end(process, at_ns)
        elif what != MarkKind.WORK_WAIT and work:
            if len(works) >= _MOST_WORKS:  # of which no end was seen
                works.clear()
            works.add(work)
        elif not posted and (not work or work in works):
            self._waits.setdefault(process, (at_ns, work))

    def _end(self, process: int, at_ns: int) -> None:
        if (wait := self._waits.pop(process, None)) is not None:
            self._waited_ns[process] += at_ns - wait[0]

    def trainer_of(self, pid: int) -> int:
        """Return which thread of a process trains: the main thread, where no mark tells of another one."""
        return self._trainers.get(pid, pid)

    def named(self, now_ns: int, among: Collection[int]) -> int | None:
        """Return who is waited for, None where nobody is; what was seen so far is half forgotten then."""
        until_ns = now_ns if now_ns - self._seen_ns > _STANDS_NS else self._seen_ns
        span_ns = self._span_ns + (until_ns - self._seen_ns) * bool(self._seen_ns)
        waits = {pid: self._waited_ns[pid] for pid in among if pid in self._waited_ns}  # others are in no step
        for pid, (since_ns, _) in self._waits.items():
            if pid in waits:
                waits[pid] += max(0, until_ns - max(since_ns, until_ns - int(span_ns)))
        for pid in self._waited_ns:
            self._waited_ns[pid] *= _FORGET
        self._span_ns *= _FORGET
        if len(waits) < 2 or span_ns <= 0 or now_ns - self._first_ns < _LEAST_NS:
            return None
        least, *others = sorted(waits, key=lambda pid: waits[pid])
        return least if waits[others[0]] - waits[least] >= _MATTERS * span_ns else None
