"""The marks table as columns, in the order of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.tables.columns import Bool, Columns, Int64, read_columns
from netprof.schema import MarkKind


@dataclass(frozen=True, eq=False)
class Marks(Columns):
    """Points in the job's life, sorted by time; times in ns, `arg0..arg2` as MarkKind says."""

    time_ns: Int64
    pid: Int64
    tid: Int64
    kind: Int64
    arg0: Int64
    arg1: Int64
    arg2: Int64

    def of(self, *kinds: MarkKind) -> Marks:
        """Return the marks of these kinds."""
        return self.where(self.are(*kinds))

    def are(self, *kinds: MarkKind) -> Bool:
        """Tell which marks are of these kinds; compared one by one, which beats `np.isin` for so few."""
        is_one = np.zeros(len(self), bool)
        for kind in kinds:
            is_one |= self.kind == int(kind)
        return is_one

    def times(self, kind: MarkKind) -> Int64:
        """Return the times of one kind of mark, ascending."""
        times: Int64 = self.time_ns[self.kind == int(kind)]
        return times


def read_marks(table: Any) -> Marks:
    """Return the `marks` table (Arrow, DataFrame or mapping of columns, rows in any order) sorted by time."""
    return read_columns(Marks, table).sorted_by("time_ns")
