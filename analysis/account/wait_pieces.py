"""What a rank waits for at each moment: the collectives that it waits for, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.axis import Axis
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Int64, closes, distinct
from netprof.analysis.tables.intervals import Intervals, row_at

NOTHING = -1
"""The row of a piece in which nothing is under way."""


@dataclass(frozen=True, eq=False)
class WaitPieces(Columns):
    """Disjoint pieces of a rank's waiting, ascending; ns. `row` is the collective that it waits for, or NOTHING."""

    begin_ns: Int64
    end_ns: Int64
    row: Int64

    def cut(self, at_ns: Int64) -> tuple[WaitPieces, WaitPieces]:
        """Return what of each piece lies before the instant of its own, and what after; empty ones are left out."""
        middle = np.clip(at_ns, self.begin_ns, self.end_ns)
        before = WaitPieces(self.begin_ns, middle, self.row)
        after = WaitPieces(middle, self.end_ns, self.row)
        return before.where(before.begin_ns < before.end_ns), after.where(after.begin_ns < after.end_ns)

    def split(self, times: Intervals) -> tuple[WaitPieces, WaitPieces]:
        """Return what of the pieces lies in some time, and what outside."""
        begin, end, row = cut_at(self.begin_ns, self.end_ns, distinct(times.begin_ns, times.end_ns))
        parts, inside = WaitPieces(begin, end, self.row[row]), contains(times, begin)
        return parts.where(inside), parts.where(~inside)

    @property
    def times(self) -> Intervals:
        """The time of all pieces."""
        return Intervals(self.begin_ns, self.end_ns)


def cut_at(begin_ns: Int64, end_ns: Int64, edges: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the parts that `edges` (ascending) cut stretches into, by begin and end, and whose part each is."""
    low, high = np.searchsorted(edges, begin_ns, "right"), np.searchsorted(edges, end_ns, "left")
    count = np.maximum(high - low, 0)
    row = np.repeat(np.arange(len(begin_ns)), count)
    offset = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    begin = np.concatenate((begin_ns, edges[np.repeat(low, count) + offset]))
    row = np.concatenate((np.arange(len(begin_ns)), row))
    order = np.lexsort((begin, row))
    begin, row = begin[order], row[order]
    return begin, np.where(closes(row), end_ns[row], np.append(begin[1:], 0)[: len(row)]), row


def contains(times: Intervals, at_ns: Int64) -> Bool:
    """Return which instants lie in some time."""
    return np.asarray(row_at(times.begin_ns, times.end_ns, at_ns) != UNKNOWN)


def pieces_of(axis: Axis, waits: Intervals, collectives: Collectives) -> WaitPieces:
    """Cut the waiting of ranks, on one axis, by the collectives that each waits for; `row` is a row of `collectives`.

    They are waited for in the order in which they were posted: at each moment for the first one that is not done.
    """
    order = np.lexsort((collectives.posted_ns, collectives.pid))
    done = np.maximum.accumulate(axis.at(collectives.pid[order], collectives.end_ns[order]))
    inside = done[contains(waits, done) & ~np.isin(done, waits.begin_ns)]
    begin = distinct(waits.begin_ns, inside)
    owner = np.searchsorted(waits.begin_ns, begin, "right") - 1
    end = np.minimum(waits.end_ns[owner], np.append(begin[1:], np.iinfo(np.int64).max)) if len(begin) else begin
    row = np.append(order, NOTHING)[np.searchsorted(done, begin, "right")]  # the first that is done after its begin
    of_another = np.append(collectives.pid, NOTHING)[row] != axis.pid_of(begin)
    return WaitPieces(begin, end, np.where(of_another, NOTHING, row))
