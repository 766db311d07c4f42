"""Marks to collectives: begin, size and end belong together per thread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Int64
from netprof.analysis.tables.marks import Marks
from netprof.schema import CollectiveKind, MarkKind


@dataclass(frozen=True, eq=False)
class Collectives(Columns):
    """Collectives that a rank saw begin and end, by begin; ns, bytes.

    `bytes` is the size of the buffer and `kind` a CollectiveKind; both are UNKNOWN where no size was recorded.
    """

    pid: Int64
    tid: Int64
    begin_ns: Int64
    end_ns: Int64
    bytes: Int64
    kind: Int64

    @property
    def duration_ns(self) -> Int64:
        """The time from begin to end; on gloo's worker threads this is the true time of the collective."""
        return self.end_ns - self.begin_ns

    def all_reduces(self) -> Collectives:
        """Return those that are known to be all-reduces."""
        return self.where((self.bytes != UNKNOWN) & (self.kind == CollectiveKind.ALL_REDUCE))


@dataclass(frozen=True, eq=False)
class FoundCollectives:
    """The whole collectives of all processes, and how many marks found no partner."""

    collectives: Collectives
    unpaired: int


def find_collectives(marks: Marks) -> FoundCollectives:
    """Pair each COLLECTIVE_BEGIN with the first COLLECTIVE_END after it on its thread, and the sizes between them.

    A begin without an end (or the reverse: the recording began in between, or a mark was lost) is counted and
    dropped. Threads do not mix, so gloo's two workers may overlap.
    """
    rows = marks.of(MarkKind.COLLECTIVE_BEGIN, MarkKind.COLLECTIVE_SIZE, MarkKind.COLLECTIVE_END)
    rows = rows.where(np.lexsort((rows.time_ns, rows.tid, rows.pid)))
    is_begin = rows.kind == MarkKind.COLLECTIVE_BEGIN
    owner = np.cumsum(is_begin) - 1  # the begin before each row
    begins = rows.where(is_begin)
    position = np.maximum(owner, 0)
    same = owner >= 0
    if len(begins):
        same &= (begins.tid[position] == rows.tid) & (begins.pid[position] == rows.pid)
    ends = np.flatnonzero(same & (rows.kind == MarkKind.COLLECTIVE_END))
    closed, first = np.unique(owner[ends], return_index=True)
    end_row = np.full(len(begins), -1)
    end_row[closed] = ends[first]
    size, kind = _sizes(rows, owner, same, end_row)
    whole = end_row >= 0
    found = Collectives(
        begins.pid, begins.tid, begins.time_ns, rows.time_ns[end_row] if len(rows) else end_row, size, kind
    )
    found = found.where(whole)
    end_count = int((rows.kind == MarkKind.COLLECTIVE_END).sum())
    unpaired = int((~whole).sum()) + end_count - int(whole.sum())
    return FoundCollectives(found.where(np.argsort(found.begin_ns, kind="stable")), unpaired)


def _sizes(rows: Marks, owner: Int64, same: Bool, end_row: Int64) -> tuple[Int64, Int64]:
    """Return each begin's bytes, the sum of the sizes between it and its end, and the kind that the first one names."""
    size_rows = np.flatnonzero(same & (rows.kind == MarkKind.COLLECTIVE_SIZE))
    size_rows = size_rows[size_rows < end_row[owner[size_rows]]]
    total = np.zeros(len(end_row), np.int64)
    np.add.at(total, owner[size_rows], rows.arg0[size_rows] * rows.arg1[size_rows])
    sized, first = np.unique(owner[size_rows], return_index=True)
    kind = np.full(len(end_row), UNKNOWN)
    kind[sized] = rows.arg2[size_rows[first]]
    return np.where((kind != UNKNOWN) & (total >= 0), total, UNKNOWN), kind
