"""When a job does nothing but wait for communication."""

from __future__ import annotations

import numpy as np

from netprof.analysis.events.blocking import blocked
from netprof.analysis.events.reducers import DDP_MARKS, Passes
from netprof.analysis.tables.columns import UNKNOWN, Int64
from netprof.analysis.tables.intervals import NOTHING, Intervals, merge
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind

_TRAINING = (*DDP_MARKS, MarkKind.OPTIMIZER_STEP, MarkKind.BACKWARD, MarkKind.FORWARD)


def training_threads(marks: Marks) -> Int64:
    """Return the threads of a process that train: others (a checkpoint's, a heartbeat's) keep nobody waiting.

    Where no mark tells which those are, all of them.
    """
    trains = marks.are(*_TRAINING)
    return np.unique(marks.tid[trains] if trains.any() else marks.tid[marks.kind < MarkKind.PROCESS_FORK])


def waits(marks: Marks, passes: Passes | None = None) -> Intervals:
    """Return when any thread of a process that trains waits for communication, from the call to its end.

    It waits for a model's buckets (`passes`), for a collective that it performs itself, or for one that was begun.
    """
    threads = training_threads(marks)
    own = marks.where(np.isin(marks.tid, threads))
    horovod = own.of(MarkKind.HOROVOD_WAIT)
    found = until_done(horovod.time_ns, horovod.arg0, marks.of(MarkKind.HOROVOD_DONE))
    found = _work_waits(marks, threads) | found | blocked(own)
    return found if passes is None else found | _bucket_waits(passes)


def _bucket_waits(passes: Passes) -> Intervals:
    ended = passes.where(passes.done_ns != UNKNOWN)
    return merge(ended.wait_ns, ended.done_ns)


def _work_waits(marks: Marks, threads: Int64) -> Intervals:
    """Pair WORK_WAIT with the next COLLECTIVE_END of the work, unless that is done already.

    Works are told apart by their address, which a later one may have again: the last mark before the wait says whether
    it is done (an end) or under way.
    """
    kinds = (
        MarkKind.COLLECTIVE_ENQUEUE,
        MarkKind.COLLECTIVE_BEGIN,
        MarkKind.COLLECTIVE_END,
        MarkKind.WORK_WAIT,
    )
    rows = marks.of(*kinds)
    rows = rows.where((rows.arg0 != 0) & (rows.arg0 != UNKNOWN))
    rows = rows.where(np.lexsort((rows.time_ns, rows.arg0)))
    if len(rows) == 0:
        return NOTHING
    is_wait, is_end = rows.kind == MarkKind.WORK_WAIT, rows.kind == MarkKind.COLLECTIVE_END
    position = np.arange(len(rows))
    news = np.maximum.accumulate(np.where(~is_wait, position, -1))  # the last mark of the work before each row
    under_way = (news >= 0) & ~is_end[np.maximum(news, 0)] & (rows.arg0[np.maximum(news, 0)] == rows.arg0)
    next_end = np.minimum.accumulate(np.where(is_end, position, len(rows))[::-1])[::-1]
    ends = np.minimum(next_end, len(rows) - 1)
    paired = is_wait & under_way & (next_end < len(rows)) & (rows.arg0[ends] == rows.arg0)
    paired &= np.isin(rows.tid, threads)
    return merge(rows.time_ns[paired], rows.time_ns[ends[paired]])


def until_done(time_ns: Int64, handle: Int64, done: Marks) -> Intervals:
    """Return the time from some instants until Horovod's operation of each handle is done, on whichever thread."""
    if len(time_ns) == 0 or len(done) == 0:
        return NOTHING
    handles, first = np.unique(done.arg0, return_index=True)
    index = np.minimum(np.searchsorted(handles, handle), len(handles) - 1)
    known = handles[index] == handle
    return merge(time_ns[known], done.time_ns[first[index[known]]])
