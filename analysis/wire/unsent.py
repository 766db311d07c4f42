"""When a process had bytes that it had not sent although nothing moved: its TCP held them back, not the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.analysis.tables.columns import Columns, Int64, closes, concatenate, grouped, int64_column, opens
from netprof.analysis.tables.flow_table import Flows
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.schema import RECEIVE, Unsent

_MAIN = 0.1
"""Share of the largest flow's bytes from which on what another one has to send matters too."""
_EVER = np.iinfo(np.int64).max >> 1


@dataclass(frozen=True, eq=False)
class UnsentFlows(Columns):
    """What the end of a flow (by its row) had to send, an `Unsent`, from an instant on until its next row; by both."""

    flow: Int64
    time_ns: Int64
    unsent: Int64

    def times(self, what: Unsent) -> dict[int, Intervals]:
        """Return when that was the case, by flow; flows of which it ever was."""
        by_flow = self.sorted_by("flow", "time_ns")
        until_ns = np.where(closes(by_flow.flow), _EVER, np.append(by_flow.time_ns[1:], _EVER)[: len(by_flow)])
        rows = by_flow.unsent == what
        flows, begin, end = by_flow.flow[rows], by_flow.time_ns[rows], until_ns[rows]
        return {int(flows[own[0]]): merge(begin[own], end[own]) for own in grouped(flows)}


class UnsentCollector:
    """Collects it while the `wire` table is folded: where it changes, as it mostly does not from bin to bin."""

    def __init__(self, flow_count: int) -> None:
        self._last = np.zeros(flow_count, np.int64)
        self._parts: list[UnsentFlows] = []

    def add(self, flow: Int64, direction: Int64, columns: dict[str, npt.NDArray[Any]]) -> None:
        """Add wire rows: the flow's row in the flow table, the direction, and the columns of `wire`."""
        unsent = int64_column(columns, "unsent")
        rows = np.flatnonzero(direction == RECEIVE)
        last_ns = int64_column(columns, "last_ns")
        rows = rows[np.lexsort((last_ns[rows], flow[rows]))]
        if len(rows) == 0:
            return
        owner, now = flow[rows], unsent[rows]
        before = np.where(opens(owner), self._last[owner], np.append(0, now[:-1]))
        changed = np.flatnonzero(now != before)
        self._parts.append(UnsentFlows(owner[changed], last_ns[rows][changed], now[changed]))
        ends = closes(owner)
        self._last[owner[ends]] = now[ends]

    @property
    def unsent(self) -> UnsentFlows:
        """What was added so far."""
        return concatenate(UnsentFlows, self._parts)


def main_flows(flows: Flows, sent_bytes: Int64) -> dict[int, set[int]]:
    """Return the flows, by row, that carry what each process sends, but for those that carry hardly any of it."""
    main: dict[int, set[int]] = {}
    for pid in np.unique(flows.pid).tolist():
        rows = flows.rows_of(pid)
        main[pid] = set(rows[sent_bytes[rows] >= _MAIN * sent_bytes[rows].max()].tolist())
    return main
