"""The account of a recording that goes on: cut into pieces at moments that tear no step, each concluded from once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from netprof.analysis.events.optimizer_steps import find_all_iterations
from netprof.analysis.evidence import Evidence
from netprof.analysis.live.window import Window
from netprof.analysis.piece import ALL, Piece
from netprof.analysis.pieces import BEFORE_NS, end_of_piece, marks_since, open_since, sight_before
from netprof.analysis.tables.columns import by_pid
from netprof.analysis.tables.marks import read_marks
from netprof.analysis.totals.sums import Totals
from netprof.analysis.wire.fold import WireFold
from netprof.model import Meta
from netprof.trace.store import ALWAYS, Rows, Store, chosen

_MOST_OPEN, _MOST_CLOSED = 50_000, 4096
"""Flows: a job's own may rest for long, while others come and go."""


class Backlog(Window):
    """A window whose wire is kept row by row, since where a piece ends is only known once its steps are over."""

    def _new_store(self) -> Store:
        return Store(_MOST_OPEN, _MOST_CLOSED, self._in_use)

    @property
    def rows(self) -> int:
        """How many rows are kept."""
        return self._store.rows

    def _add_wire(self, rows: Rows) -> None:
        self._store.add("wire", rows)

    def _in_use(self) -> set[int]:
        """Return the flows that have rows."""
        return set(np.unique(self.columns("wire", ALWAYS)["flow_id"]).tolist())

    def let_go(self, since_ns: int) -> None:
        """Forget what no later piece looks at: rows that are older than `since_ns`."""
        self._store.let_go(since_ns)

    def evidence_of(self, piece: Piece, meta: Meta, since_ns: int, known: Mapping[str, Any]) -> Evidence:
        """Return the evidence of a piece, with rows since `since_ns` in sight. `known` is found already."""

        def table(name: str) -> dict[str, Any]:
            return self.columns(name, since_ns)

        def fold(evidence: Evidence) -> WireFold:
            folded = WireFold(evidence.flows, self.bin_ns, evidence.cells, piece=piece)
            folded.add(self.columns("wire", since_ns))
            return folded

        kept = {
            "flows": self._flow_table(),
            "communicator_ranks": self._communicator_ranks,
            "workers": frozenset(self._workers),
        }
        evidence = Evidence(meta, table, fold, piece=piece, known=kept | dict(known), is_recent=True)
        evidence.hosts = self.hosts or evidence.hosts
        return evidence

    def late_bytes(self, rows: list[Rows]) -> WireFold:
        """Return rows that came after their piece was concluded from, folded."""
        folded = WireFold(self._flow_table(), self.bin_ns)
        folded.add_all(rows)
        return folded


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
            self._late.append(chosen(rows, late))
        self._backlog.add(table, rows)

    def conclude(self, meta: Meta, through_ns: int, *, final: bool = False) -> bool:
        """Add the next piece of what was handed over until `through_ns`; tell whether there is one.

        `final`: nothing follows. Raises TraceError for rows that cannot be believed; the next piece begins after them.
        """
        begin_ns = self._begin_ns
        try:
            return self._conclude(meta, through_ns, final)
        except Exception:
            if self._begin_ns == begin_ns:
                self._go_on(max(begin_ns, through_ns - _SETTLED_NS), {})
            raise

    def _conclude(self, meta: Meta, through_ns: int, final: bool) -> bool:
        self._backlog.set_ranks(meta)
        if self._late:
            self.totals.add_bytes(self._backlog.late_bytes(self._late))
            self._late.clear()
        cut_ns = ALL.end_ns if final else through_ns
        seen = read_marks(self._backlog.columns("marks", self._since_ns))
        marks = marks_since(seen, self._own_since_ns, self._since_ns)
        marks = marks if final else marks.where(marks.time_ns <= through_ns)
        steps = find_all_iterations(marks)
        for pid, iterations in by_pid(steps.iterations):
            if (ended_ns := int(iterations.end_ns.max())) > self._begin_ns:  # else it is known, or forgotten
                self.last_step_ns[pid] = ended_ns
        open_ns = [] if final else open_since(steps, marks, self._begin_ns)
        if self._begin_ns in open_ns and not self._takes_too_long(through_ns):
            return False
        end_ns = end_of_piece(open_ns, marks, self._begin_ns, cut_ns)
        piece = Piece(self._begin_ns, end_ns if final else min(end_ns, through_ns - _SETTLED_NS))
        if piece.end_ns <= max(self._begin_ns, meta.started_ns):
            return False
        evidence = self._backlog.evidence_of(piece, meta, self._since_ns, {"marks": marks, "marked": steps})
        try:
            self.totals.add(evidence)
            self.last = evidence
        finally:  # what it has added by then is in the totals, and is not added once more
            self._go_on(piece.end_ns, sight_before(steps, marks, piece.end_ns))
        return True

    def _go_on(self, end_ns: int, own_since_ns: dict[int, int]) -> None:
        """Begin the next piece, and let go of what it does not look at."""
        self._begin_ns, self._own_since_ns = end_ns, own_since_ns
        self._since_ns = min([self._begin_ns - BEFORE_NS, *self._own_since_ns.values()])
        self._backlog.let_go(self._since_ns)

    def forget(self, pids: set[int]) -> None:
        """Drop the totals of processes that are gone for good."""
        self.totals.forget(pids)
        self.last_step_ns = {pid: at_ns for pid, at_ns in self.last_step_ns.items() if pid not in pids}

    def _takes_too_long(self, through_ns: int) -> bool:
        has_begun = self._begin_ns != ALL.begin_ns
        return self.rows > _MOST_ROWS or (has_begun and through_ns - self._begin_ns > _LONGEST_STEP_NS)
