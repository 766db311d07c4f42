"""The account of a recording that goes on: cut into pieces at moments that tear no step, each concluded from once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from netprof.analysis.events.optimizer_steps import find_all_iterations
from netprof.analysis.evidence import Evidence
from netprof.analysis.live.inbox import Rows, chosen, length
from netprof.analysis.live.window import Window
from netprof.analysis.piece import ALL, Piece
from netprof.analysis.pieces import BEFORE_NS, end_of_piece, marks_since, open_since, sight_before
from netprof.analysis.tables.columns import by_pid, closes
from netprof.analysis.tables.marks import read_marks
from netprof.analysis.totals.sums import Totals
from netprof.analysis.wire.fold import WireFold
from netprof.model import Meta
from netprof.schema import LASTING, tables, time_column

_MOST_LASTING, _MOST_OPEN = 100_000, 50_000
_NO_COUNTERS: dict[str, Any] = {name: np.zeros(0, np.int64) for name in tables()["counters"].names}
_WHOLE = ("link_changes", "nccl_ranks")  # few rows, and each holds until the next of its device or rank
_AGE = {name: age for name in tables() if name not in _WHOLE and (age := time_column(name)) is not None}


class Backlog(Window):
    """A window whose wire is kept row by row, since where a piece ends is only known once its steps are over."""

    def __init__(self, bin_ns: int) -> None:
        super().__init__(bin_ns)
        self._wire: list[tuple[int, Rows]] = []  # the last bin of some rows, and the rows
        self._lasting: list[Rows] = []
        self._counters = _NO_COUNTERS  # of each series the last one that was let go of
        self._closed: set[int] = set()  # flows
        self.rows = 0
        """How many rows are kept."""

    def add(self, table: str, rows: Rows) -> None:
        """Add rows of one table."""
        super().add(table, rows)
        if table == "totals":
            self._closed.update(np.asarray(rows["flow_id"])[np.asarray(rows["closed"]) != 0].tolist())
        self.rows += length(rows)

    def _add_wire(self, rows: Rows) -> None:
        self._wire.append((int(np.max(rows["bin_start_ns"])), rows))

    def _in_use(self) -> set[int]:
        """Return the flows that have rows, and those that did not close: a job's own may rest for long."""
        moving = {flow for _, rows in self._wire for flow in np.unique(rows["flow_id"]).tolist()}
        self._closed &= self._flow_rows.keys()
        still_open = [flow for flow in self._flow_rows if flow not in self._closed]
        return moving | set(still_open[:_MOST_OPEN])

    def let_go(self, since_ns: int) -> None:
        """Forget what no later piece looks at: rows that are older than `since_ns`."""
        for table, parts in self._rows.items():
            name = _AGE.get(table)
            if name is None:
                continue
            old = [part for part in parts if np.max(part[name]) < since_ns]
            if table == "counters":
                self._counters = _last_of_each([self._counters, *old], since_ns)
            if table == "marks":
                self._note_lasting(old)
            gone = {id(part) for part in old}
            self._rows[table] = [part for part in parts if id(part) not in gone]
        self._wire = [part for part in self._wire if part[0] >= since_ns]
        kept = (*(rows for _, rows in self._wire), *(part for parts in self._rows.values() for part in parts))
        self.rows = sum(map(length, kept))

    def marks(self, since_ns: int) -> dict[str, Any]:
        """Return the marks since then, and older ones of what lasts."""
        seen = self.columns("marks", since_ns)
        parts = [*self._lasting_before(since_ns), seen]
        return {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in seen}

    def evidence_of(self, piece: Piece, meta: Meta, since_ns: int, known: Mapping[str, Any]) -> Evidence:
        """Return the evidence of a piece, with rows since `since_ns` in sight. `known` is found already."""

        def table(name: str) -> dict[str, Any]:
            if name == "marks":
                return self.marks(since_ns)
            rows = self.columns(name, since_ns)
            return self._with_earlier(rows, since_ns) if name == "counters" else rows

        def fold(evidence: Evidence) -> WireFold:
            folded = WireFold(evidence.flows, self.bin_ns, evidence.cells, piece=piece)
            folded.add_all(rows for last_ns, rows in self._wire if last_ns >= since_ns)
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

    def _note_lasting(self, parts: list[Rows]) -> None:
        for part in parts:
            rows = np.flatnonzero(np.isin(part["kind"], LASTING))
            if len(rows):
                self._lasting.append(chosen(part, rows))
        while sum(len(part["kind"]) for part in self._lasting) > _MOST_LASTING:
            self._lasting.pop(0)

    def _lasting_before(self, since_ns: int) -> list[Rows]:
        kept = [part for part in self._rows.get("marks", ()) if np.min(part["time_ns"]) < since_ns]
        return [
            chosen(part, np.isin(part["kind"], LASTING) & (np.asarray(part["time_ns"]) < since_ns))
            for part in (*self._lasting, *kept)
        ]

    def _with_earlier(self, rows: dict[str, Any], since_ns: int) -> dict[str, Any]:
        """Put before some counters the value that each series had until then."""
        kept = [part for part in self._rows.get("counters", ()) if np.min(part["time_ns"]) < since_ns]
        last = _last_of_each([self._counters, *kept], since_ns)
        return {name: np.concatenate([last[name], np.asarray(values)]) for name, values in rows.items()}


def _last_of_each(parts: Sequence[Rows], before_ns: int) -> dict[str, Any]:
    """Return the last counter of each series before some time."""
    rows = {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in _NO_COUNTERS}
    before = np.flatnonzero(rows["time_ns"].astype(np.int64) < before_ns)
    order = before[np.lexsort((rows["time_ns"][before], rows["series"][before]))]
    last = order[closes(rows["series"][order])]
    return {name: values[last] for name, values in rows.items()}


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
        marks = marks_since(read_marks(self._backlog.marks(self._since_ns)), self._own_since_ns, self._since_ns)
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
