"""What a thread waits for by itself: a collective that it performs, or something that it posted before."""

from __future__ import annotations

from netprof.analysis.events.collectives import find_collectives
from netprof.analysis.tables.columns import followed
from netprof.analysis.tables.intervals import NOTHING, Intervals, merge
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind


def blocked(marks: Marks) -> Intervals:
    """Return when the threads that these marks are of are inside of a collective or wait for a posted one.

    A collective on another thread is no wait by itself: the job waits only where it asks for the result.
    """
    return _inside_collectives(marks) | from_to(marks, MarkKind.POSTED_WAIT, MarkKind.POSTED_WAIT_OVER)


def _inside_collectives(marks: Marks) -> Intervals:
    if not marks.are(MarkKind.COLLECTIVE_BEGIN).any():
        return NOTHING
    performed = find_collectives(marks).collectives
    return merge(performed.begin_ns, performed.end_ns)


def from_to(marks: Marks, begin: MarkKind, end: MarkKind) -> Intervals:
    """Pair each mark of one kind with the one of another that follows it on its thread, of one process."""
    rows = marks.of(begin, end)
    if len(rows) == 0:
        return NOTHING
    before, after = followed(rows.time_ns, rows.tid)
    paired = (rows.kind[before] == begin) & (rows.kind[after] == end)
    return merge(rows.time_ns[before[paired]], rows.time_ns[after[paired]])
