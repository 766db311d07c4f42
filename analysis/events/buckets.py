"""Gradient buckets: from launch to arrival, and when any of them is outstanding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.bucket_collectives import by_order, by_posting, tells_postings
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.tables.columns import UNKNOWN, Columns, Int64, by_pid, concatenate, empty
from netprof.analysis.tables.intervals import Intervals, merge, row_at
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind


@dataclass(frozen=True, eq=False)
class Buckets(Columns):
    """Buckets launched in whole iterations, by process and launch; ns, bytes. See `definitions.OUTSTANDING`.

    `iteration` is the row in Iterations. `unpacked_ns` is the BUCKET_DONE mark: the job's own loop took the bucket
    up then, which is never before `ddp_wait`. `end_ns` is when it arrived: the end of its collective where that is
    known (`from_collective` is 1), else `unpacked_ns`. `bytes` is UNKNOWN without a collective.
    """

    pid: Int64
    iteration: Int64
    launch_ns: Int64
    unpacked_ns: Int64
    begin_ns: Int64
    end_ns: Int64
    bytes: Int64
    from_collective: Int64


_TELLING = (
    *(MarkKind.BUCKET_LAUNCH, MarkKind.BUCKET_DONE, MarkKind.DDP_WAIT),
    *(MarkKind.WORK_WAIT, MarkKind.COLLECTIVE_ENQUEUE),
)
"""The marks that say when buckets are launched and waited for, and what carries them."""


def find_buckets(marks: Marks, iterations: Iterations, collectives: Collectives) -> Buckets:
    """Find the buckets of every whole iteration and lay each beside the collectives that carried it.

    A bucket whose done mark is missing ends at `ddp_done`, which comes after all of them.
    """
    parts, carrying = [], dict(by_pid(collectives))
    for pid, rows_of_pid in by_pid(marks.of(*_TELLING), only=set(iterations.pid.tolist())):
        rows = iterations.rows_of(pid)
        parts.append(_of_process(rows_of_pid, iterations, rows, carrying.get(pid, empty(Collectives))))
    return concatenate(Buckets, parts)


def outstanding_by_process(
    iterations: Iterations,
    buckets: Buckets,
    collectives: Collectives,
    known: Mapping[int, Intervals] | None = None,
) -> dict[int, Intervals]:
    """Return for each process with iterations when a bucket is outstanding (`definitions.OUTSTANDING`).

    `known` says it of processes that have no DDP buckets (`communication.outstanding_without_ddp`).

    Where no bucket was recorded the all-reduces within the iterations stand in, and where there are none of those
    either, the exposed communication itself: the job waits for buckets then, by definition.
    """
    reduces = collectives.all_reduces()
    result = {}
    for pid in np.unique(iterations.pid):
        steps = iterations.of_pid(pid)
        mine, reduced = buckets.of_pid(pid), reduces.of_pid(pid)
        times = merge(mine.launch_ns, mine.end_ns) if len(mine) else merge(reduced.begin_ns, reduced.end_ns)
        if not len(mine) and known and int(pid) in known:
            times = known[int(pid)]
        result[int(pid)] = _fill(steps, times & merge(steps.begin_ns, steps.end_ns))
    return result


def _fill(iterations: Iterations, times: Intervals) -> Intervals:
    """Add the exposed communication of the iterations in which nothing is known to be outstanding."""
    if len(times):
        next_one = np.searchsorted(times.end_ns, iterations.begin_ns, "right")
        begin = np.append(times.begin_ns, np.iinfo(np.int64).max)[next_one]
        iterations = iterations.where(begin >= iterations.end_ns)
    return times | merge(iterations.wait_ns, iterations.done_ns)


def _of_process(marks: Marks, iterations: Iterations, rows: Int64, collectives: Collectives) -> Buckets:
    launch, tid, unpacked = _pair(marks)
    steps = iterations.where(rows)
    index = row_at(steps.begin_ns, steps.end_ns, launch)
    inside = index != UNKNOWN
    if tells_postings(collectives):
        carried = by_posting(launch, tid, marks, collectives).where(inside)
    else:
        reduces = collectives.all_reduces()
        carried = by_order(launch[inside], index[inside], steps.begin_ns, steps.done_ns, reduces)
    launch, unpacked, index = launch[inside], unpacked[inside], index[inside]
    done = steps.done_ns[index]
    unpacked = np.where((unpacked == UNKNOWN) | (unpacked > done), done, unpacked)
    return Buckets(
        pid=np.full(len(launch), steps.pid[0]),
        iteration=rows[index],
        launch_ns=launch,
        unpacked_ns=unpacked,
        begin_ns=carried.begin_ns,
        end_ns=np.where(carried.known, carried.end_ns, unpacked),
        bytes=carried.bytes,
        from_collective=carried.known.astype(np.int64),
    )


def _pair(marks: Marks) -> tuple[Int64, Int64, Int64]:
    """Return launch times, ascending, their threads, and the next done mark of the same bucket, UNKNOWN if missing."""
    moves = marks.of(MarkKind.BUCKET_LAUNCH, MarkKind.BUCKET_DONE)
    moves = moves.sorted_by("arg0", "time_ns")
    launches = moves.kind == MarkKind.BUCKET_LAUNCH
    paired = np.zeros(len(moves), bool)
    paired[:-1] = launches[:-1] & ~launches[1:] & (moves.arg0[:-1] == moves.arg0[1:])
    done = np.where(paired, np.roll(moves.time_ns, -1), UNKNOWN)
    launch, tid, done = moves.time_ns[launches], moves.tid[launches], done[launches]
    order = np.argsort(launch, kind="stable")
    return launch[order], tid[order], done[order]
