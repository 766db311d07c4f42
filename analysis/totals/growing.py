"""The account of a recording that goes on: cut into pieces at moments that tear no step, each concluded from once."""

from __future__ import annotations

import numpy as np

from netprof.analysis.events.steps import find_all_iterations
from netprof.analysis.evidence import Evidence
from netprof.analysis.live.inbox import Rows
from netprof.analysis.piece import ALL, Piece
from netprof.analysis.pieces import BEFORE_NS, end_of_piece, marks_since, open_since, sight_before
from netprof.analysis.tables.columns import by_pid
from netprof.analysis.tables.marks import read_marks
from netprof.analysis.totals.backlog import Backlog
from netprof.analysis.totals.sums import Totals
from netprof.model import Meta

_SETTLED_NS = 1_500_000_000
"""Rows of a bin are handed over by then, and what began before is seen to its end."""
_LONGEST_STEP_NS, _MOST_ROWS = 600 * 10**9, 2_000_000
"""What one step may take, in time and rows, before the account goes on without it."""


class GrowingAccount:
    """Adds up a recording while it goes on: `add` rows as they come, and `conclude` now and then.

    A step is in the totals once it and all that began before it are over, every one once.
    """

    def __init__(self, bin_ns: int) -> None:
        self.totals = Totals()
        self.last: Evidence | None = None
        """The piece that was added last."""
        self.last_step_ns: dict[int, int] = {}
        """When the last whole step of each process ended, also of steps that are not in the totals yet."""
        self._backlog = Backlog(bin_ns)
        self._begin_ns = self._since_ns = ALL.begin_ns
        self._own_since_ns: dict[int, int] = {}
        self._late: list[Rows] = []

    @property
    def rows(self) -> int:
        """How many rows are kept in memory."""
        return self._backlog.rows

    @property
    def through_ns(self) -> int | None:
        """Until when everything is in the totals (CLOCK_MONOTONIC); None before the first piece."""
        return None if self._begin_ns == ALL.begin_ns else self._begin_ns

    def add(self, table: str, rows: Rows) -> None:
        """Take rows of a table; they must not change any more."""
        if table == "wire" and (late := np.asarray(rows["bin_start_ns"]).astype(np.int64) < self._begin_ns).any():
            self._late.append({name: np.asarray(values)[late] for name, values in rows.items()})
        self._backlog.add(table, rows)

    def conclude(self, meta: Meta, through_ns: int, *, final: bool = False) -> bool:
        """Add the next piece of what was handed over until `through_ns`; tell whether there is one.

        `final`: nothing follows. Raises TraceError for rows that cannot be believed.
        """
        self._backlog.set_ranks(meta)
        if self._late:
            self.totals.add_bytes(self._backlog.late_bytes(self._late))
            self._late.clear()
        cut_ns = ALL.end_ns if final else through_ns
        marks = marks_since(read_marks(self._backlog.marks(self._since_ns)), self._own_since_ns, self._since_ns)
        marks = marks if final else marks.where(marks.time_ns <= through_ns)
        found = find_all_iterations(marks)
        for pid, own in by_pid(found.iterations):
            self.last_step_ns[pid] = int(own.end_ns.max())
        open_ns = [] if final else open_since(found, marks, self._begin_ns)
        if self._begin_ns in open_ns and not self._takes_too_long(through_ns):
            return False
        end_ns = end_of_piece(open_ns, marks, self._begin_ns, cut_ns)
        piece = Piece(self._begin_ns, end_ns if final else min(end_ns, through_ns - _SETTLED_NS))
        if piece.end_ns <= max(self._begin_ns, meta.started_ns):
            return False
        self.last = self._backlog.evidence_of(piece, meta, self._since_ns, {"marks": marks, "marked": found})
        self.totals.add(self.last)
        self._begin_ns, self._own_since_ns = piece.end_ns, sight_before(found, piece.end_ns)
        self._since_ns = min([self._begin_ns - BEFORE_NS, *self._own_since_ns.values()])
        self._backlog.let_go(self._since_ns)
        return True

    def forget(self, pids: set[int]) -> None:
        """Drop the totals of processes that are gone for good."""
        self.totals.forget(pids)
        self.last_step_ns = {pid: at_ns for pid, at_ns in self.last_step_ns.items() if pid not in pids}

    def _takes_too_long(self, through_ns: int) -> bool:
        if self._begin_ns == ALL.begin_ns:
            return self.rows > _MOST_ROWS
        return through_ns - self._begin_ns > _LONGEST_STEP_NS or self.rows > _MOST_ROWS
