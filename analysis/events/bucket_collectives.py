"""Which collectives carry which bucket: those that its communication hook posted; by order where no mark tells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Int64, empty, followed
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind

_NEVER = np.iinfo(np.int64).max
_LONGEST_CHAIN = 16  # doublings: 65,536 collectives, each posted when the one before is done


@dataclass(frozen=True, eq=False)
class Carried(Columns):
    """When each bucket was under way and its bytes; the launch and UNKNOWN where no collective of it is known; ns."""

    begin_ns: Int64
    end_ns: Int64
    bytes: Int64
    known: Bool


def tells_postings(collectives: Collectives) -> bool:
    """Tell whether marks say when a process asked for its collectives."""
    return bool((collectives.posted_ns < collectives.begin_ns).any())


def by_posting(launch_ns: Int64, launch_tid: Int64, marks: Marks, collectives: Collectives) -> Carried:
    """Return what carries each bucket: all that was posted for it, from the first begin to the last end.

    That is what its thread posted between the launch and the next one or DDP's wait, and what was posted in turn by the
    threads that performed it, when it was done. What the job waits for by itself is none of it, be it a collective of
    the model's own (synchronized batch normalization) or DDP's exchange of which parameters were used; but a bucket of
    which nothing else is seen is carried by what the job waited for before DDP's wait.
    """
    if len(launch_ns) == 0:
        return empty(Carried)
    ddp_wait = marks.times(MarkKind.DDP_WAIT)
    bucket = _bucket_of_root(launch_ns, launch_tid, ddp_wait, collectives)
    bucket = bucket[_roots(collectives)]
    waited_ns = _waited_ns(marks, collectives)
    end_of_launch = np.append(ddp_wait, _NEVER)[np.searchsorted(ddp_wait, collectives.posted_ns, "right")]
    alone = (bucket != UNKNOWN) & (waited_ns == UNKNOWN)
    has_some = np.bincount(bucket[alone], minlength=len(launch_ns)) > 0
    hooks_own = (bucket != UNKNOWN) & (waited_ns != UNKNOWN) & (waited_ns < end_of_launch) & ~has_some[bucket]
    rows = np.flatnonzero(alone | hooks_own)
    return _carried(launch_ns, bucket[rows], collectives.where(rows))


def by_order(launch_ns: Int64, index: Int64, first_ns: Int64, done_ns: Int64, reduces: Collectives) -> Carried:
    """Lay the k-th bucket launched in an iteration beside the k-th all-reduce begun there.

    `index` is the iteration of each launch, which begin at `first_ns` and are done at `done_ns`. That holds where there
    are as many of both and none begins before its launch: gloo starts them in the order of the launches.
    """
    count = np.bincount(index, minlength=len(first_ns))
    first_launch = np.full(len(first_ns), _NEVER)
    np.minimum.at(first_launch, index, launch_ns)
    where = np.searchsorted(first_ns, reduces.begin_ns, "right") - 1
    known = np.maximum(where, 0)
    inside = (where >= 0) & (reduces.begin_ns >= first_launch[known]) & (reduces.begin_ns <= done_ns[known])
    reduces, where = reduces.where(inside), where[inside]  # ascending by begin, so also by iteration
    same = count == np.bincount(where, minlength=len(first_ns))
    buckets, partners = np.flatnonzero(same[index]), np.flatnonzero(same[where])
    early = reduces.begin_ns[partners] < launch_ns[buckets]
    same &= np.bincount(index[buckets], weights=early, minlength=len(first_ns)) == 0
    buckets, partners = np.flatnonzero(same[index]), np.flatnonzero(same[where])
    return _carried(launch_ns, buckets, reduces.where(partners))


def _carried(launch_ns: Int64, bucket: Int64, collectives: Collectives) -> Carried:
    """Add up the collectives `collectives` of each bucket."""
    begin, end = np.full(len(launch_ns), _NEVER), np.full(len(launch_ns), UNKNOWN)
    np.minimum.at(begin, bucket, collectives.begin_ns)
    np.maximum.at(end, bucket, collectives.end_ns)
    size, unsized = np.zeros(len(launch_ns), np.int64), np.zeros(len(launch_ns), bool)
    np.add.at(size, bucket, np.maximum(collectives.bytes, 0))
    unsized[bucket[collectives.bytes == UNKNOWN]] = True
    known = end != UNKNOWN
    return Carried(
        np.where(known, begin, launch_ns),
        np.where(known, end, launch_ns),
        np.where(known & ~unsized, size, UNKNOWN),
        known,
    )


def _bucket_of_root(launch_ns: Int64, launch_tid: Int64, ddp_wait: Int64, collectives: Collectives) -> Int64:
    """Return the launch during which a thread posted each collective, UNKNOWN where it did so at another time."""
    bucket = np.full(len(collectives), UNKNOWN)
    for tid in np.unique(launch_tid):
        mine = np.flatnonzero(launch_tid == tid)
        posted = np.flatnonzero((collectives.posted_tid == tid) & (collectives.posted_ns < collectives.begin_ns))
        before = np.searchsorted(launch_ns[mine], collectives.posted_ns[posted], "right") - 1
        launched = launch_ns[mine][np.maximum(before, 0)]
        until = np.append(ddp_wait, _NEVER)[np.searchsorted(ddp_wait, launched, "right")]
        inside = (before >= 0) & (collectives.posted_ns[posted] < until)
        bucket[posted[inside]] = mine[before[inside]]
    return bucket


def _roots(collectives: Collectives) -> Int64:
    """Return for each collective the first one of its chain: what a thread posts right after it performed another."""
    parent = np.arange(len(collectives))
    for tid in np.unique(collectives.tid):
        performed = np.flatnonzero(collectives.tid == tid)
        performed = performed[np.argsort(collectives.begin_ns[performed], kind="stable")]
        posted = np.flatnonzero((collectives.posted_tid == tid) & (collectives.posted_ns < collectives.begin_ns))
        before = np.searchsorted(collectives.begin_ns[performed], collectives.posted_ns[posted], "right") - 1
        candidate = performed[np.maximum(before, 0)]
        follows = (before >= 0) & (collectives.end_ns[candidate] <= collectives.posted_ns[posted])
        parent[posted[follows]] = candidate[follows]
    for _ in range(_LONGEST_CHAIN):
        parent = parent[parent]
    return parent


def _waited_ns(marks: Marks, collectives: Collectives) -> Int64:
    """Return when a thread began to wait for each collective by its work, UNKNOWN if none did.

    A work that was enqueued since then at the same address is another one's, also where it is not seen to end.
    """
    asked, enqueued = marks.of(MarkKind.WORK_WAIT), marks.of(MarkKind.COLLECTIVE_ENQUEUE)
    work = np.concatenate((enqueued.arg0, collectives.work, asked.arg0))
    times = np.concatenate((enqueued.time_ns, collectives.posted_ns, asked.time_ns))
    before, after = followed(times, work)  # stable: a collective follows its own enqueuing
    row, following = before - len(enqueued), after - len(enqueued)
    pairs = (row >= 0) & (row < len(collectives)) & (following >= len(collectives)) & (work[after] != 0)
    waited = np.full(len(collectives), UNKNOWN)
    waited[row[pairs]] = times[after[pairs]]
    return waited
