"""When a job does nothing but wait for communication."""

from __future__ import annotations

import numpy as np

from netprof.analysis.events.collectives import Collectives, find_collectives
from netprof.analysis.events.reducers import DDP_MARKS, Passes
from netprof.analysis.tables.columns import UNKNOWN, Bool, Int64, followed
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


def beside_training(marks: Marks, collectives: Collectives) -> Bool:
    """Return which collectives a thread that does not train asks and waits for: a checkpoint's, a heartbeat's."""
    beside = np.zeros(len(collectives), bool)
    rows = np.flatnonzero((collectives.work != 0) & (collectives.posted_tid != collectives.tid))
    queued, asked = collectives.where(rows), marks.of(MarkKind.WORK_WAIT)
    time_ns, work = np.append(queued.posted_ns, asked.time_ns), np.append(queued.work, asked.arg0)
    before, after = followed(time_ns, work, np.append(queued.pid, asked.pid))
    pairs = (before < len(rows)) & (after >= len(rows))
    mine, wait = before[pairs], after[pairs] - len(rows)
    mine = mine[queued.posted_tid[mine] == asked.tid[wait]]
    for pid in np.unique(queued.pid[mine]).tolist():
        others = mine[queued.pid[mine] == pid]
        beside[rows[others[~np.isin(queued.posted_tid[others], training_threads(marks.of_pid(pid)))]]] = True
    return beside


def waits(marks: Marks, passes: Passes | None = None) -> Intervals:
    """Return when any thread of a process that trains waits for communication, from the call to its end.

    It waits for a model's buckets (`passes`), for a collective that it performs itself, or for one that was begun.
    """
    threads = training_threads(marks)
    training = marks.where(np.isin(marks.tid, threads))
    horovod = training.of(MarkKind.HOROVOD_WAIT)
    waiting = until_done(horovod.time_ns, horovod.arg0, marks.of(MarkKind.HOROVOD_DONE))
    waiting = _work_waits(marks, threads) | waiting | blocked(training)
    if passes is None:
        return waiting
    ended = passes.where(passes.done_ns != UNKNOWN)
    return waiting | merge(ended.wait_ns, ended.done_ns)


def blocked(marks: Marks) -> Intervals:
    """Return when the threads that these marks are of are inside of a collective or wait for a posted one.

    A collective on another thread is no wait by itself: the job waits only where it asks for the result.
    """
    posted = from_to(marks, MarkKind.POSTED_WAIT, MarkKind.POSTED_WAIT_OVER)
    if not marks.are(MarkKind.COLLECTIVE_BEGIN).any():
        return posted
    performed = find_collectives(marks).collectives
    return posted | merge(performed.begin_ns, performed.end_ns)


def from_to(marks: Marks, begin: MarkKind, end: MarkKind) -> Intervals:
    """Pair each mark of one kind with the one of another that follows it on its thread, of one process."""
    rows = marks.of(begin, end)
    if len(rows) == 0:
        return NOTHING
    before, after = followed(rows.time_ns, rows.tid)
    paired = (rows.kind[before] == begin) & (rows.kind[after] == end)
    return merge(rows.time_ns[before[paired]], rows.time_ns[after[paired]])


def _work_waits(marks: Marks, threads: Int64) -> Intervals:
    """Pair WORK_WAIT with the next COLLECTIVE_END of the work, unless that is done already.

    Works are told apart by their address, which a later one may have again: the last mark before the wait says whether
    it is done (an end) or under way.
    """
    rows = marks.of(MarkKind.COLLECTIVE_ENQUEUE, MarkKind.COLLECTIVE_BEGIN, MarkKind.COLLECTIVE_END, MarkKind.WORK_WAIT)
    rows = rows.where((rows.arg0 != 0) & (rows.arg0 != UNKNOWN))
    rows = rows.sorted_by("arg0", "time_ns")
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
