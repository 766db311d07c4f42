"""When a process waits for communication, and for which of its collectives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.waits import training_threads
from netprof.analysis.tables.columns import Bool, Int64, distinct
from netprof.analysis.tables.intervals import Intervals
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind


@dataclass(frozen=True, eq=False)
class Waits:
    """The waits of one process, by begin, (J,): also those of no length, for what was there already.

    `asked` are pairs (wait, row of the collective), shape (A, 2), where a mark says what the wait is for, and
    `at_begin` whether that mark is the wait's begin. A wait that begins otherwise (DDP's) is for everything that was
    posted before its end and had arrived by then.
    """

    begin_ns: Int64
    end_ns: Int64
    asked: Int64
    at_begin: Bool

    def __len__(self) -> int:
        return len(self.begin_ns)


def find_waits(marks: Marks, collectives: Collectives, times: Intervals) -> Waits:
    """Return the waits of a process: the `times` in which it does nothing else, and calls that return at once.

    All of one process; `collectives` are numbered by row.
    """
    called_ns, row = _asked_for(marks, collectives)
    index = np.searchsorted(times.begin_ns, called_ns, "right") - 1
    inside = _within(times, called_ns, index)
    at_once = distinct(called_ns[~inside])
    begin = np.concatenate((times.begin_ns, at_once))
    end = np.concatenate((times.end_ns, at_once))
    order = np.argsort(begin, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    number = np.where(inside, index, len(times) + np.searchsorted(at_once, called_ns))
    wait = place[number]
    return Waits(begin[order], end[order], np.column_stack((wait, row)), called_ns == begin[order][wait])


def _within(times: Intervals, at_ns: Int64, index: Int64) -> Bool:
    if len(times) == 0:
        return np.zeros(len(at_ns), bool)
    return np.asarray((index >= 0) & (at_ns < times.end_ns[np.maximum(index, 0)]))


def _asked_for(marks: Marks, collectives: Collectives) -> tuple[Int64, Int64]:
    """Return when WORK_WAIT was called, and for which row: the last one of that address that was posted before.

    Only by threads that train: a callback that waits on another one keeps nobody waiting.
    """
    calls = marks.of(MarkKind.WORK_WAIT)
    calls = calls.where(np.isin(calls.tid, training_threads(marks)))
    if len(calls) == 0 or len(collectives) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.lexsort((collectives.posted_ns, collectives.work))
    work, posted = collectives.work[order], collectives.posted_ns[order]
    merged = np.concatenate((work, calls.arg0))
    times = np.concatenate((posted, calls.time_ns))
    is_call = np.repeat([0, 1], [len(work), len(calls)])
    together = np.lexsort((is_call, times, merged))
    position = np.where(is_call[together] == 0, np.arange(len(together)), -1)
    last = np.maximum.accumulate(position)
    mine = np.flatnonzero(is_call[together] == 1)
    found = last[mine]
    known = (found >= 0) & (merged[together[np.maximum(found, 0)]] == merged[together[mine]])
    known &= merged[together[mine]] != 0
    call = together[mine[known]] - len(work)
    return calls.time_ns[call], order[together[found[known]]]
