"""Iterations of processes without a DDP reducer: from the autograd engine, the optimizer and what the job waits for."""

from __future__ import annotations

import numpy as np

from netprof.analysis.events.blocking import blocked
from netprof.analysis.events.iterations import Dropped, FoundIterations, Iterations, find_iterations
from netprof.analysis.tables.columns import UNKNOWN, Bool, Int64, concatenate, empty
from netprof.analysis.tables.intervals import NOTHING, Intervals, covered_until, merge
from netprof.analysis.tables.marks import Marks
from netprof.schema import ENQUEUED, MarkKind


def find_all_iterations(marks: Marks) -> FoundIterations:
    """Find the whole iterations of every process: from DDP's marks where there are any, else from optimizer steps."""
    ddp = find_iterations(marks)
    with_iterations = frozenset(np.unique(ddp.iterations.pid).tolist())
    stepped = find_steps(marks, with_iterations)
    return FoundIterations(
        concatenate(Iterations, [ddp.iterations, stepped.iterations]),
        ddp.dropped | stepped.dropped,
        ddp.turns,
        stepped.stepped,
    )


def find_steps(marks: Marks, known: frozenset[int]) -> FoundIterations:
    """Find the iterations of every process that trains without DDP (`definitions.STEPS`); `known` ones are left out.

    A process that is only seen to enqueue (NCCL) waits on the GPU, where no mark sees it, and one whose calls are not
    seen to return waits in them: its phases are unknown, and its iterations are left to inference.
    """
    parts: list[Iterations] = []
    dropped: dict[int, Dropped] = {}
    for pid in np.unique(marks.pid[marks.kind == MarkKind.OPTIMIZER_STEP]).tolist():
        own = marks.where(marks.pid == pid)
        if pid not in known and not _only_enqueues(own):
            iterations, cut = _of_process(pid, own)
            if len(iterations):
                parts.append(iterations)
                dropped[pid] = cut
    return FoundIterations(concatenate(Iterations, parts), dropped, stepped=tuple(dropped))


def waits(marks: Marks) -> Intervals:
    """Return when some thread of a process waits for a collective: from the call to the end of what it waits for."""
    return _work_waits(marks) | _horovod_waits(marks) | blocked(marks)


def _only_enqueues(marks: Marks) -> bool:
    begun = np.isin(marks.kind, [*ENQUEUED, MarkKind.COLLECTIVE_BEGIN])
    ended = np.isin(marks.kind, [MarkKind.COLLECTIVE_END, MarkKind.POSTED_WAIT_OVER, MarkKind.HOROVOD_TRANSFER])
    return bool(begun.any() and not ended.any())


def _of_process(pid: int, marks: Marks) -> tuple[Iterations, Dropped]:
    """Cut at the first backward pass after each optimizer step.

    The waiting may be spread over the iteration: it is counted together, between backward pass and rest, so that the
    phases add up. The part of the backward phase that was waiting is taken off it, and so for the rest.
    """
    step, backward = marks.times(MarkKind.OPTIMIZER_STEP), marks.times(MarkKind.BACKWARD)
    first = _first_of_each(np.searchsorted(step, backward))
    begin = backward[first]
    begin = begin[begin > step[0]]  # the pass that was going on, or the one before the first step, may be cut off
    if len(begin) < 2:
        return empty(Iterations), Dropped(incomplete=1)
    begin, end = begin[:-1], begin[1:]
    stepped = step[np.searchsorted(step, begin, "right")]
    waited = waits(marks)
    before_step, after_step = overlap(waited, begin, stepped), overlap(waited, stepped, end)
    wait = stepped - before_step
    done = wait + before_step + after_step
    return Iterations(np.full(len(begin), pid), begin, begin, wait, done, end), Dropped(incomplete=2)


def _first_of_each(groups: Int64) -> Bool:
    return np.concatenate(([True], groups[1:] != groups[:-1])) if len(groups) else np.zeros(0, bool)


def overlap(times: Intervals, begin_ns: Int64, end_ns: Int64) -> Int64:
    """Return for each window [begin_ns, end_ns) how much of `times` lies in it, ns."""
    return covered_until(times, end_ns) - covered_until(times, begin_ns)


def _work_waits(marks: Marks) -> Intervals:
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
    return merge(rows.time_ns[paired], rows.time_ns[ends[paired]])


def _horovod_waits(marks: Marks) -> Intervals:
    """Pair HOROVOD_WAIT with the HOROVOD_DONE of its handle."""
    wait, done = marks.of(MarkKind.HOROVOD_WAIT), marks.of(MarkKind.HOROVOD_DONE)
    if len(wait) == 0 or len(done) == 0:
        return NOTHING
    handles, first = np.unique(done.arg0, return_index=True)
    index = np.minimum(np.searchsorted(handles, wait.arg0), len(handles) - 1)
    known = handles[index] == wait.arg0
    return merge(wait.time_ns[known], done.time_ns[first[index[known]]])
