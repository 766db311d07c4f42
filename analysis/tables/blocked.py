"""What the threads that train were off their CPUs for, as the kernel's scheduler saw it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import numpy as np

from netprof.analysis.tables.columns import column, grouped, int64_column
from netprof.analysis.tables.intervals import NOTHING, Intervals, merge, union
from netprof.schema import BlockedIn

ThreadWaits = Mapping[BlockedIn, Intervals]
"""When a thread was off its CPU for what."""


@dataclass(frozen=True, eq=False)
class Blocked:
    """By process and thread; without any, it is not known."""

    threads: Mapping[int, Mapping[int, ThreadWaits]]

    def __len__(self) -> int:
        return len(self.threads)

    def of_process(self, pid: int, trainers: Iterable[int] = ()) -> ThreadWaits:
        """Return when a process was off its CPUs, by what for: while all of its threads that train were.

        Those are `trainers`; where none of them was watched, all threads that were. Where they wait for different
        things, what keeps a thread from running comes first, another thread's doing last. Of threads of which it is
        not known which trains, the main one tells what they wait for.
        """
        threads = self.threads.get(pid, {})
        watched = [threads[tid] for tid in trainers if tid in threads]
        telling = watched
        if not watched and pid in threads:
            watched, telling = [_with_rest(each) for each in threads.values()], [threads[pid], *_held_back(threads)]
        if not watched:
            return {}
        left = reduce(and_, (union(list(each.values())) for each in watched))
        by_kind: dict[BlockedIn, Intervals] = {}
        for kind in _FIRST:
            times = left & union([each[kind] for each in telling if kind in each])
            if len(times):
                by_kind[kind] = times
                left = left - times
        return by_kind


def _with_rest(waits: ThreadWaits) -> ThreadWaits:
    """Return what a thread was off its CPU for, with the time before it was seen and after: it may not have lived."""
    times = union(list(waits.values()))
    outside = Intervals(np.array([_EVER.min, times.end_ns[-1]]), np.array([times.begin_ns[0], _EVER.max]))
    return {**waits, BlockedIn.OTHER: outside | waits.get(BlockedIn.OTHER, NOTHING)}


def _held_back(threads: Mapping[int, ThreadWaits]) -> list[ThreadWaits]:
    """Return what of the waiting of threads is for something to run on: a process does not wait for others then."""
    return [{kind: each[kind] for kind in _TO_RUN if kind in each} for each in threads.values()]


_EVER = np.iinfo(np.int64)
_TO_RUN = (BlockedIn.STOPPED, BlockedIn.CPU, BlockedIn.MEMORY)
_FIRST = (
    *_TO_RUN,
    BlockedIn.SLEEP,
    BlockedIn.FILE,
    BlockedIn.PIPE,
    BlockedIn.CHILD,
    BlockedIn.DEVICE,
    BlockedIn.SOCKET,
    BlockedIn.POLL,
    BlockedIn.OTHER,
    BlockedIn.LOCK,
)


def read_blocked(table: Any) -> Blocked:
    """Return the rows of table `blocked`, put together; kinds that are not known are OTHER."""
    pid, tid, end_ns = (int64_column(table, name) for name in ("pid", "tid", "time_ns"))
    kind = column(table, "kind").astype(np.int64)
    kind = np.where(np.isin(kind, [int(each) for each in BlockedIn]), kind, int(BlockedIn.OTHER))
    begin_ns = end_ns - np.maximum(int64_column(table, "period_ns"), 0)
    threads: dict[int, dict[int, dict[BlockedIn, Intervals]]] = {}
    for rows in grouped(pid, tid, kind):
        first = rows[0]
        times = threads.setdefault(int(pid[first]), {}).setdefault(int(tid[first]), {})
        times[BlockedIn(int(kind[first]))] = merge(begin_ns[rows], end_ns[rows])
    return Blocked(threads)
