"""Steps that do not end: processes that train no more while the recording goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.iterations import Iterations
from netprof.analysis.events.waits import training_threads
from netprof.analysis.tables.columns import Int64, by_pid
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind

LONGEST_ITERATIONS = 10
"""Typical iterations after which a step that goes on is unfinished, and not just a long one."""
LONGER_THAN_EVER = 1.5
"""How much longer it has to go on than any step before: a job that pauses now and then goes on again."""
LEAST_NS = 2 * 10**9
"""The time that it goes on at least."""

_LEFT_BEHIND = 4
"""Iterations of all other processes after which one has not stood still: its marks ended, or were lost."""
_BY_COLLECTIVE = (
    MarkKind.COLLECTIVE_BEGIN,
    MarkKind.COLLECTIVE_SIZE,
    MarkKind.COLLECTIVE_PART,
    MarkKind.COLLECTIVE_GROUP,
    MarkKind.COLLECTIVE_ORDER,
)
_WAITS = (MarkKind.WORK_WAIT, MarkKind.HOROVOD_WAIT, MarkKind.POSTED_WAIT, MarkKind.DEVICE_WAIT)
"""A host that waits for its GPU for far longer than any step takes waits for a collective there."""
_IN_DDP_WAIT = (MarkKind.DDP_WAIT, MarkKind.BUCKET_DONE, MarkKind.WORK_WAIT)


@dataclass(frozen=True)
class Unfinished:
    """A step of a process that did not end within the recording; ns.

    Nothing that trains was seen of it since `since_ns`: since then it waits for communication (`in_wait`), or computes,
    loads data or stands still.
    """

    pid: int
    since_ns: int
    in_wait: bool


def find_unfinished(
    marks: Marks, iterations: Iterations, until_ns: int, earlier_ns: Sequence[Int64] = ()
) -> Mapping[int, Unfinished]:
    """Return the unfinished step of each process that has one, by pid; the recording goes on until `until_ns`.

    A process that has ended has none, and neither has one that all others went on without: they would have waited for
    it. `earlier_ns` is how long iterations before these took: what is too long is not known without any.
    """
    lengths = np.concatenate([*earlier_ns, iterations.duration_ns])
    if not len(lengths):
        return {}
    longest_ns = max(LONGEST_ITERATIONS * float(np.median(lengths)), LEAST_NS, LONGER_THAN_EVER * lengths.max())
    ended = marks.pid[marks.kind == MarkKind.PROCESS_EXIT]
    training = marks.where((marks.kind < MarkKind.PROCESS_FORK) & ~np.isin(marks.pid, ended))
    going_on = iterations.where(~np.isin(iterations.pid, ended))
    last = {pid: last_state(pid, rows) for pid, rows in by_pid(training, only=set(_training(training)))}
    return {
        pid: step
        for pid, step in last.items()
        if until_ns - step.since_ns > longest_ns and not _left_behind(step, going_on)
    }


def _left_behind(step: Unfinished, iterations: Iterations) -> bool:
    """Tell whether every other process began several iterations since; `iterations` are of those that go on."""
    others = iterations.where(iterations.pid != step.pid)
    pids = np.unique(others.pid)
    began = np.unique(others.pid[others.begin_ns > step.since_ns], return_counts=True)[1]
    return len(pids) > 0 and len(began) == len(pids) and bool((began >= _LEFT_BEHIND).all())


def _training(marks: Marks) -> list[int]:
    steps = marks.are(MarkKind.DDP_WAIT, MarkKind.OPTIMIZER_STEP)
    if not steps.any():  # compiled optimizers are not seen to step
        steps = marks.are(MarkKind.BACKWARD)
    pids: list[int] = np.unique(marks.pid[steps]).tolist()
    return pids


def last_state(pid: int, marks: Marks) -> Unfinished:
    """Return what the thread that trained last does since its last mark; of a wait, since that began.

    `marks` are the process's own, and tell of at least one step.
    """
    training = marks.where(np.isin(marks.tid, training_threads(marks)))
    last = int(training.time_ns[-1])
    thread = training.where(training.tid == training.tid[-1])
    waits_ns = _waits_since(thread, marks)
    return Unfinished(pid, last if waits_ns is None else waits_ns, waits_ns is not None)


def _waits_since(thread: Marks, marks: Marks) -> int | None:
    """Return when the wait began that a thread's last mark is a part of; None if it is of none that goes on."""
    last = MarkKind(int(thread.kind[-1]))
    if last is MarkKind.WORK_WAIT and not _goes_on(marks, thread.arg0[-1]):
        return None
    if last is MarkKind.HOROVOD_WAIT and (marks.of(MarkKind.HOROVOD_DONE).arg0 == thread.arg0[-1]).any():
        return None
    if last in _IN_DDP_WAIT and (since := _ddp_wait(thread)) is not None:
        return since
    if last in _BY_COLLECTIVE:
        return int(thread.times(MarkKind.COLLECTIVE_BEGIN)[-1]) if _begun(thread) else None
    return int(thread.time_ns[-1]) if last in _WAITS else None


def _goes_on(marks: Marks, work: int) -> bool:
    """Tell whether the last that is known of a work, but for waits, is that it is under way."""
    known = marks.of(MarkKind.COLLECTIVE_ENQUEUE, MarkKind.COLLECTIVE_BEGIN, MarkKind.COLLECTIVE_END)
    known = known.where(known.arg0 == work)
    return len(known) == 0 or int(known.kind[-1]) != MarkKind.COLLECTIVE_END


def _ddp_wait(thread: Marks) -> int | None:
    """Return when the wait for buckets began that has not ended on a thread."""
    edges = thread.of(MarkKind.DDP_WAIT, MarkKind.DDP_STATS, MarkKind.DDP_FORWARD, MarkKind.OPTIMIZER_STEP)
    return int(edges.time_ns[-1]) if len(edges) and edges.kind[-1] == MarkKind.DDP_WAIT else None


def _begun(thread: Marks) -> bool:
    edges = thread.of(MarkKind.COLLECTIVE_BEGIN, MarkKind.COLLECTIVE_END)
    return len(edges) > 0 and bool(edges.kind[-1] == MarkKind.COLLECTIVE_BEGIN and edges.arg2[-1] == 0)
