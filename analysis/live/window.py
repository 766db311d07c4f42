"""The last part of a recording, kept so that looking at it costs the same however long the recording has been."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from netprof.analysis.events.flows_by_iteration import FlowsByIteration
from netprof.analysis.events.steps import find_all_iterations
from netprof.analysis.findings.ranks import ranks_by_pid
from netprof.analysis.live.fold import RecentFold
from netprof.analysis.live.inbox import Rows
from netprof.analysis.pipeline import conclude
from netprof.analysis.result import Analysis
from netprof.analysis.tables.flow_table import Flows, LaneKey, read_flows
from netprof.analysis.tables.marks import Marks, read_marks
from netprof.analysis.wire.bins import Bins
from netprof.analysis.wire.fold import WireFold
from netprof.model import Meta
from netprof.schema import RECEIVE, TRANSMIT, MarkKind

LONGEST_NS = 300 * 10**9
_BIN_BUDGET = 1 << 20  # bins held over all lanes: 24 MB
_PART_BINS, _PART_NS = 4000, 4 * 10**9
_WIRE = "wire"
_NOT_NEEDED = (MarkKind.GRADIENT_READY,)  # no conclusion rests on them, and they are half of all marks
_MOST_FLOWS = 4096
_KEEP_NS = {"gpu": 5 * 10**9}  # only the latest values are shown, and there may be thousands a second
_COUNTERS = ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets", "tx_drops", "rx_drops", "tx_errors", "rx_errors")

Lanes = dict[tuple[LaneKey, int], Bins]
"""Bins of each lane and direction."""

_Part = tuple[int, WireFold]
"""The time of a piece's first row, and the piece."""


class Window:
    """Holds recent rows of every table. The wire is held folded, a few seconds a piece.

    `time_of` names the column that says how old a row of a table is.
    """

    time_of: Mapping[str, str] = {"marks": "time_ns", "tcp": "time_ns", "nic": "time_ns", "gpu": "time_ns"}

    def __init__(self, bin_ns: int) -> None:
        self.bin_ns = bin_ns
        self.longest_ns = LONGEST_NS
        self._rows: dict[str, list[Rows]] = {}
        self._flow_rows: dict[int, dict[str, Any]] = {}
        self._flows: Flows | None = None
        self._ranks: dict[int, int] = {}
        self._workers: set[int] = set()  # processes with marks of a framework
        self._parts: list[_Part] = []

    def add(self, table: str, rows: Rows) -> None:
        """Add rows of one table."""
        if table == "flows":
            self._add_flows(rows)
        elif table == _WIRE:
            self._add_wire(rows)
        elif table in self.time_of:
            self._keep(table, self._take_marks(rows) if table == "marks" else rows)

    def trim(self, through_ns: int, keep_ns: int, keep_marks_ns: int = 0) -> None:
        """Forget what is older than `keep_ns` (`keep_marks_ns` for marks), or than the memory for bins allows."""
        lanes = 2 * len(self._flows.lanes) if self._flows is not None else 1
        self.longest_ns = min(LONGEST_NS, max(1, _BIN_BUDGET // max(1, lanes)) * self.bin_ns)
        oldest_ns = through_ns - min(keep_ns, self.longest_ns)
        for table, parts in self._rows.items():
            name, since_ns = self.time_of[table], max(oldest_ns, through_ns - _KEEP_NS.get(table, keep_ns))
            if table == "marks":
                since_ns = min(since_ns, through_ns - keep_marks_ns)
            self._rows[table] = [part for part in parts if part[name][-1] >= since_ns]
        self._parts = _since(self._parts, oldest_ns)

    def set_ranks(self, meta: Meta) -> None:
        """Take the ranks of the job's processes."""
        ranks = ranks_by_pid(meta.targets)
        if ranks != self._ranks:
            self._ranks, self._flows = ranks, None

    def marks(self, since_ns: int) -> Marks:
        """Return the marks since then."""
        return read_marks(self.columns("marks", since_ns, ("time_ns", "pid", "tid", "kind", "arg0", "arg1", "arg2")))

    def lanes(self, since_ns: int) -> Lanes:
        """Return the lanes since then; they may begin up to one piece earlier."""
        return self._fold(since_ns).lanes()

    def conclude(self, meta: Meta, since_ns: int, through_ns: int) -> Analysis:
        """Conclude from what happened since then, with the functions that the report uses. Raises TraceError."""
        marks, fold = self.marks(since_ns), self._fold(since_ns)
        found = find_all_iterations(marks)
        none = FlowsByIteration(found.iterations.where(np.zeros(0, np.int64)), 0)
        tcp = self.columns("tcp", since_ns, ("flow_id", "time_ns", "retransmits", "rtt_us", "cwnd", "mss_bytes"))
        counters = (
            "tx_bytes",
            "rx_bytes",
            "tx_packets",
            "rx_packets",
            "tx_drops",
            "rx_drops",
            "tx_errors",
            "rx_errors",
        )
        nic = self.columns("nic", since_ns, ("device", "netns", "time_ns", *counters))
        now = replace(meta, started_ns=since_ns, stopped_ns=max(through_ns, since_ns + 1))
        return conclude(now, marks, found, fold, none, tcp, nic)

    def columns(self, table: str, since_ns: int, names: tuple[str, ...]) -> dict[str, Any]:
        """Return columns of the rows since then."""
        parts = [part for part in self._rows.get(table, ()) if part[self.time_of[table]][-1] >= since_ns]
        joined = {name: _join([part[name] for part in parts]) for name in names}
        recent = np.asarray(joined[self.time_of[table]], np.int64) >= since_ns
        return joined if recent.all() else {name: _select(values, recent) for name, values in joined.items()}

    def _take_marks(self, rows: Rows) -> Rows:
        """Note whose they are, and leave out those that nothing rests on."""
        kinds, pids = np.asarray(rows["kind"]), np.asarray(rows["pid"])
        new = set(np.unique(pids[kinds < MarkKind.PROCESS_FORK]).tolist()) - self._workers
        if new:
            self._workers |= new
            self._flows = None
        needed = np.flatnonzero(~np.isin(kinds, _NOT_NEEDED))
        return {name: np.asarray(values)[needed] for name, values in rows.items()}

    def _keep(self, table: str, rows: Rows) -> None:
        if len(rows[self.time_of[table]]):
            self._rows.setdefault(table, []).append(rows)

    def _add_flows(self, rows: Rows) -> None:
        names = list(rows)
        for values in zip(*(rows[name] for name in names), strict=True):
            row = dict(zip(names, values, strict=True))
            self._flow_rows[int(row["flow_id"])] = row
        self._flows = None
        if len(self._flow_rows) > _MOST_FLOWS:
            kept = _moving([part for _, part in self._parts]) | set(list(self._flow_rows)[-_MOST_FLOWS // 2 :])
            self._flow_rows = {flow: row for flow, row in self._flow_rows.items() if flow in kept}

    def _flow_table(self) -> Flows:
        if self._flows is None:
            rows = list(self._flow_rows.values())
            names = Flows.__dataclass_fields__.keys() - {"lane"}
            self._flows = read_flows({name: [row[name] for row in rows] for name in names}, self._ranks, self._workers)
        return self._flows

    def _add_wire(self, rows: Rows) -> None:
        begin_ns = int(np.min(rows["bin_start_ns"]))
        flows = self._flow_table()
        if not self._parts or self._parts[-1][1].flows is not flows or begin_ns - self._parts[-1][0] > self._part_ns:
            self._parts.append((begin_ns, WireFold(flows, self.bin_ns)))
        self._parts[-1][1].add(rows)

    @property
    def _part_ns(self) -> int:
        return min(_PART_NS, _PART_BINS * self.bin_ns)

    def _fold(self, since_ns: int) -> RecentFold:
        ends = [begin for begin, _ in self._parts[1:]]
        parts = [
            part for (_, part), end in zip(self._parts, [*ends, None], strict=False) if end is None or end > since_ns
        ]
        return RecentFold(self._flow_table(), self.bin_ns, parts)


def _since(parts: list[_Part], since_ns: int) -> list[_Part]:
    """Return the pieces that hold anything later: each one ends where the next begins."""
    first = sum(begin <= since_ns for begin, _ in parts)
    return parts[max(0, first - 1) :]


def _moving(parts: Sequence[WireFold]) -> set[int]:
    """Return the flows that moved a packet in any part."""
    moved: set[int] = set()
    for part in parts:
        packets = part.totals(TRANSMIT).packets + part.totals(RECEIVE).packets
        moved.update(part.flows.flow_id[packets > 0].tolist())
    return moved


def _join(parts: list[Any]) -> Any:
    if not parts:
        return np.zeros(0, np.int64)
    return parts[0] if len(parts) == 1 else np.concatenate([np.asarray(part) for part in parts])


def _select(values: Any, rows: Any) -> Any:
    return np.asarray(values)[rows]
