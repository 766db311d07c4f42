"""What a rank waits for at each moment: the collectives that it waits for, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.tables.columns import Columns, Int64, distinct
from netprof.analysis.tables.intervals import Intervals

NOTHING = -1
"""The row of a piece in which nothing is under way."""


@dataclass(frozen=True, eq=False)
class Pieces(Columns):
    """Disjoint pieces of a rank's waiting, ascending; ns. `row` is the collective that it waits for, or NOTHING."""

    begin_ns: Int64
    end_ns: Int64
    row: Int64

    def cut(self, at_ns: Int64) -> tuple[Pieces, Pieces]:
        """Return what of each piece lies before the instant of its own, and what after; empty ones are left out."""
        middle = np.clip(at_ns, self.begin_ns, self.end_ns)
        before = Pieces(self.begin_ns, middle, self.row)
        after = Pieces(middle, self.end_ns, self.row)
        return before.where(before.begin_ns < before.end_ns), after.where(after.begin_ns < after.end_ns)

    @property
    def times(self) -> Intervals:
        """The time of all pieces."""
        return Intervals(self.begin_ns, self.end_ns)


def pieces_of(waits: Intervals, own: Collectives) -> Pieces:
    """Cut a rank's waiting by the collectives that it waits for; `row` is a row of `own`.

    They are waited for in the order in which they were posted: at each moment for the first one that is not done.
    """
    order = np.argsort(own.posted_ns, kind="stable")
    done = np.maximum.accumulate(own.end_ns[order]) if len(order) else own.end_ns
    inside = done[_contains(waits, done)]
    begin = distinct(waits.begin_ns, inside)
    owner = np.searchsorted(waits.begin_ns, begin, "right") - 1
    end = np.minimum(waits.end_ns[owner], np.append(begin[1:], np.iinfo(np.int64).max)) if len(begin) else begin
    index = np.searchsorted(done, begin, "right")  # the first that is done after the piece's begin
    row = np.where(index < len(order), np.append(order, NOTHING)[np.minimum(index, len(order))], NOTHING)
    return Pieces(begin, end, row)


def _contains(waits: Intervals, at_ns: Int64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which instants lie inside of an interval, beyond its begin."""
    if len(waits) == 0:
        return np.zeros(len(at_ns), bool)
    index = np.maximum(np.searchsorted(waits.begin_ns, at_ns, "left") - 1, 0)
    return np.asarray((waits.begin_ns[index] < at_ns) & (at_ns < waits.end_ns[index]))
