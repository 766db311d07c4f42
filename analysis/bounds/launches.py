"""What processes launch whose end no mark tells: what NCCL enqueues, what gloo is handed while nobody sees it done."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.collectives import find_collectives
from netprof.analysis.events.nccl import nccl_operations
from netprof.analysis.inference.infer import InferredIterations, infer_from_launches
from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Float64, Int64, by_pid, empty
from netprof.analysis.tables.marks import Marks
from netprof.schema import ENQUEUED, MarkKind

_LAUNCHES = (*ENQUEUED, MarkKind.BUCKET_LAUNCH, MarkKind.COLLECTIVE_ENQUEUE, MarkKind.COLLECTIVE_BEGIN)
_ENDS = (
    MarkKind.COLLECTIVE_END,
    MarkKind.HOROVOD_TRANSFER,
    MarkKind.HOROVOD_DONE,
    MarkKind.POSTED_WAIT_OVER,
)
_ENDS_OF_BUCKETS = (MarkKind.BUCKET_DONE, MarkKind.DDP_STATS)
"""On a GPU these are of the host, which is not done with anything then: it only orders the streams."""
_NOT_IN_A_BUCKET = (
    MarkKind.DDP_FORWARD,
    MarkKind.DDP_BACKWARD,
    MarkKind.DDP_WAIT,
    MarkKind.FORWARD,
    MarkKind.OPTIMIZER_STEP,
)
_FORWARDS = (MarkKind.DDP_FORWARD, MarkKind.FORWARD)
_FEW = 0.5


@dataclass(frozen=True, eq=False)
class Launches(Columns):
    """What one process launched for its gradients, ascending; ns, bytes. `bytes` is UNKNOWN where nothing says it."""

    time_ns: Int64
    bytes: Int64


@dataclass(frozen=True, eq=False)
class LaunchedSteps(Columns):
    """The launches of one process by step of the job, a row a whole step; ns.

    A step is from its forward pass to the next one's; from its first launch to the next one's where none is seen.
    `next_ns` is the next step's first launch, `wait_ns` when DDP began to wait, UNKNOWN where no mark tells, `launches`
    their number. `bytes` are those of all and `last_bytes` of the last one, UNKNOWN where nothing says it.
    """

    begin_ns: Int64
    end_ns: Int64
    first_ns: Int64
    last_ns: Int64
    wait_ns: Int64
    launches: Int64
    bytes: Int64
    last_bytes: Int64
    next_ns: Int64

    @property
    def last_share(self) -> Float64:
        """The last launch's share of the step's bytes, NaN where they are not known."""
        known = (self.bytes > 0) & (self.last_bytes >= 0)
        return np.where(known, self.last_bytes / np.maximum(self.bytes, 1), np.nan)


def without_ends(marks: Marks, on_gpu: Collection[int]) -> tuple[int, ...]:
    """Return the processes that launch collectives and are not seen to be done with any; `on_gpu` are those with a GPU.

    What NCCL is handed runs on the GPU, and so do buckets of a process that has one. That others are seen to end (a
    barrier, a loss that is averaged over gloo in each step) says nothing of those.
    """
    hidden_pids = []
    launching = set(marks.pid[marks.are(*_LAUNCHES)].tolist())
    for pid, of_process in by_pid(marks.of(*_LAUNCHES, *_ENDS, *_ENDS_OF_BUCKETS), only=launching):
        ends = int(of_process.are(*_ENDS).sum())
        if computes_on_gpu(pid, of_process, on_gpu):
            enqueued = int(of_process.are(*ENQUEUED).sum())
            buckets = int(of_process.are(MarkKind.BUCKET_LAUNCH).sum())
            performed = int(of_process.are(MarkKind.COLLECTIVE_END).sum())
            if enqueued >= buckets > 0 or enqueued > performed:
                ends -= performed  # NCCL has the gradients: the ends are another backend's
            hidden = ends < _FEW * max(enqueued, buckets)
        else:
            hidden = not ends and not of_process.are(*_ENDS_OF_BUCKETS).any()
        if hidden:
            hidden_pids.append(pid)
    return tuple(hidden_pids)


def computes_on_gpu(pid: int, marks: Marks, on_gpu: Collection[int]) -> bool:
    """Tell whether a process is known to compute on a GPU: its host then launches before the gradients exist."""
    return pid in on_gpu or bool(marks.are(*ENQUEUED).any())


def launches_of(marks: Marks, world_size: int | None) -> Launches:
    """Return what a process launches for its gradients: DDP's buckets where marks tell of them, else everything."""
    buckets = marks.times(MarkKind.BUCKET_LAUNCH)
    enqueued = nccl_operations(marks, world_size)
    if len(enqueued):
        kept = enqueued.where(_of_a_bucket(marks, enqueued.time_ns)) if len(buckets) else enqueued
        if len(kept):
            return Launches(kept.time_ns, kept.bytes)
    if len(buckets):
        return Launches(buckets, np.full(len(buckets), UNKNOWN))
    posted = find_collectives(marks, world_size).posted
    posted = posted.where(np.argsort(posted.posted_ns, kind="stable"))
    return Launches(posted.posted_ns, posted.bytes)


def _of_a_bucket(marks: Marks, at_ns: Int64) -> Bool:
    """Return what was enqueued while a bucket was launched: the last thing before that DDP did."""
    steps = marks.where(marks.are(MarkKind.BUCKET_LAUNCH, *_NOT_IN_A_BUCKET))
    before = np.searchsorted(steps.time_ns, at_ns, "right") - 1
    return np.asarray((before >= 0) & (steps.kind[np.maximum(before, 0)] == MarkKind.BUCKET_LAUNCH))


def launched_steps(marks: Marks, launches: Launches) -> LaunchedSteps:
    """Return the whole steps of a process: the last launches of a recording have no end."""
    begins = _begins(marks, launches)
    index = np.searchsorted(begins, launches.time_ns, "right") - 1
    inside = index >= 0
    time_ns, size, index = launches.time_ns[inside], launches.bytes[inside], index[inside]
    if len(time_ns) == 0:
        return empty(LaunchedSteps)
    opens = np.flatnonzero(np.diff(index, prepend=-1))
    last = np.append(opens[1:], len(time_ns)) - 1
    known = np.minimum.reduceat(size, opens) >= 0
    begin = begins[index[opens]]
    return LaunchedSteps(
        begin_ns=begin[:-1],
        end_ns=begin[1:],
        first_ns=time_ns[opens][:-1],
        last_ns=time_ns[last][:-1],
        wait_ns=_first_between(marks.times(MarkKind.DDP_WAIT), time_ns[last], np.append(time_ns[opens][1:], 0))[:-1],
        launches=np.diff(opens),
        bytes=np.where(known, np.add.reduceat(size, opens), UNKNOWN)[:-1],
        last_bytes=size[last][:-1],
        next_ns=time_ns[opens][1:],
    )


def _begins(marks: Marks, launches: Launches) -> Int64:
    """Return where steps begin: at forward passes, else where the launches themselves come round again."""
    for kind in _FORWARDS:
        if len(times := marks.times(kind)):
            return times
    buckets = marks.of(MarkKind.BUCKET_LAUNCH)
    if len(buckets):
        return _first_buckets(buckets)
    inferred = infer_from_launches(launches.time_ns, launches.bytes)
    if not isinstance(inferred, InferredIterations):
        return np.zeros(0, np.int64)
    return np.append(inferred.begin_ns, inferred.end_ns[-1:])


def _first_buckets(buckets: Marks) -> Int64:
    """Return when the first bucket of each step is launched: the one before which nothing is for the longest."""
    since = np.diff(buckets.time_ns, prepend=buckets.time_ns[0])
    names, index = np.unique(buckets.arg0, return_inverse=True)
    first = max(range(len(names)), key=lambda name: float(np.median(since[index == name])))
    begins: Int64 = buckets.time_ns[index == first]
    return begins


def _first_between(times: Int64, low_ns: Int64, high_ns: Int64) -> Int64:
    """Return the first of some times after each `low_ns`, UNKNOWN if that is not before `high_ns`."""
    first_ns = np.append(times, np.iinfo(np.int64).max)[np.searchsorted(times, low_ns, "left")]
    return np.where(first_ns < high_ns, first_ns, UNKNOWN)
