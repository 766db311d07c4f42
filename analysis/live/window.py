"""The last part of a recording, kept so that looking at it costs the same however long the recording has been."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from netprof.analysis.declared import merged
from netprof.analysis.events.job_ranks import CommunicatorRanks, ranks_by_pid, with_communicator_ranks
from netprof.analysis.evidence import Evidence
from netprof.analysis.sections import SECTIONS
from netprof.analysis.tables.columns import UNKNOWN, concatenate
from netprof.analysis.tables.flow_lanes import FlowLanes, read_flow_lanes
from netprof.analysis.tables.flow_table import Flows, LaneKey, LinkKey, read_flows
from netprof.analysis.tables.intervals import Intervals, union
from netprof.analysis.tables.link_history import known_as, read_link_history
from netprof.analysis.tables.path_table import read_paths
from netprof.analysis.wire.bins import combine
from netprof.analysis.wire.fold import WireFold
from netprof.analysis.wire.lanes import Lanes
from netprof.analysis.wire.recovery import Resent
from netprof.analysis.wire.unsent import UnsentFlows
from netprof.model import Host, Meta
from netprof.schema import KINDS, RECEIVE, TRANSMIT, MarkKind, RowKind
from netprof.trace.store import ALWAYS, Rows, Store, chosen

T = TypeVar("T", Resent, UnsentFlows)


class RecentFold(WireFold):
    """The sum of `parts`, as if their rows had been added to one fold; flows unknown to `flows` are left out."""

    def __init__(self, flows: Flows, bin_ns: int, parts: Sequence[WireFold], lanes: FlowLanes | None = None) -> None:
        super().__init__(flows, bin_ns, lanes=lanes)
        self._parts = parts
        self.rows = sum(part.rows for part in parts)
        self.unknown_bytes = sum(part.unknown_bytes for part in parts)
        for part in parts:
            self._add_totals(part)

    def lanes(self) -> Lanes:
        """Return the bins of every lane that moved a byte in any part."""
        by_part = [{(lane, direction): bins for lane, direction, bins in part.lanes()} for part in self._parts]
        return Lanes({key: bins for key, bins in merged(by_part, combine).items() if bins is not None})

    def moved_bytes(self, direction: int) -> dict[int, dict[LinkKey, int]]:
        """Return what each process moved in one direction in all parts, by pid and device."""
        return merged([part.moved_bytes(direction) for part in self._parts], lambda links: merged(links, sum))

    def unknown(self) -> dict[tuple[LaneKey, int], Intervals]:
        """Return the time in which it is not known when the bytes of a lane passed, in any part."""
        return merged([part.unknown() for part in self._parts], union)

    def resent(self) -> Resent:
        """Return what the flows sent again in any part."""
        return self._of_flows(Resent, [part.resent() for part in self._parts])

    def unsent(self) -> UnsentFlows:
        """Return when the flows had bytes that they had not sent in any part."""
        return self._of_flows(UnsentFlows, [part.unsent() for part in self._parts])

    def _of_flows(self, kind: type[T], tables: Sequence[T]) -> T:
        """Put together what the parts say of flows, which each of them numbers by itself."""
        parts = []
        for part, rows in zip(self._parts, tables, strict=True):
            row = self.flows.positions(part.flows.flow_id[rows.flow])
            parts.append(replace(rows, flow=row).where(row >= 0))
        return concatenate(kind, parts)

    def _add_totals(self, part: WireFold) -> None:
        row = self.flows.positions(part.flows.flow_id)
        known = np.repeat(row >= 0, 2)
        slot = (np.repeat(row, 2) * 2 + np.tile([0, 1], len(row)))[known]
        for name, total in self._sums.items():
            total[slot] += part._sums[name][known]
        moved = part._position[known] != UNKNOWN
        self._position[slot[moved]] = part._position[known][moved]
        self._first[slot] = np.minimum(self._first[slot], part._first[known])
        self._last[slot] = np.maximum(self._last[slot], part._last[known])


LONGEST_NS = 300 * 10**9
_BIN_BUDGET = 1 << 20  # bins held over all lanes: 30 MB at most, less where they are silent
_PART_BINS, _PART_NS = 4000, 4 * 10**9
_WIRE = "wire"
_NOT_NEEDED = (MarkKind.GRADIENT_READY,)  # no conclusion rests on them, and they are half of all marks
_MOST_FLOWS = 4096
_KEEP_NS = {"gpu": 5 * 10**9}  # only the latest values are shown, and there may be thousands a second
_KEPT = frozenset(name for section in SECTIONS for name in section.tables) - {"wire"}
_OF_FLOWS = frozenset(name for name, kind in KINDS.items() if kind.rows is RowKind.STATE) - {"nccl_ranks"}
"""What the table of flows is made of."""


@dataclass
class _WirePiece:
    """A piece of the wire: its rows begin where those of the next one do, or before, and may reach into that."""

    begin_ns: int
    fold: WireFold
    last_ns: int


class Window:
    """Holds recent rows of the tables that the sections need. The wire is held folded, a few seconds a piece.

    `hosts` are those of a job that several recorded.
    """

    def __init__(self, bin_ns: int) -> None:
        self.bin_ns = bin_ns
        self.longest_ns = LONGEST_NS
        self.hosts: Sequence[Host] = ()
        self._store = self._new_store()
        self._flows: Flows | None = None
        self._lanes: FlowLanes | None = None  # of those
        self._ranks: dict[int, int] = {}
        self._communicator_ranks = CommunicatorRanks()
        self._workers: set[int] = set()  # processes with marks of a framework
        self._parts: list[_WirePiece] = []

    def _new_store(self) -> Store:
        return Store(_MOST_FLOWS, in_use=self._in_use)

    def add(self, table: str, rows: Rows) -> None:
        """Add rows of one table."""
        if table == _WIRE:
            self._add_wire(rows)
        elif table in _KEPT or table in _OF_FLOWS:
            self._store.add(table, self._take_marks(rows) if table == "marks" else rows)
            if table in _OF_FLOWS:
                self._flows = None

    def trim(self, through_ns: int, keep_ns: int, keep_marks_ns: int = 0) -> None:
        """Forget what is older than `keep_ns` (`keep_marks_ns` for marks), or than the memory for bins allows."""
        lanes = len(self._lanes.keys) if self._lanes is not None else 1
        self.longest_ns = min(LONGEST_NS, max(1, _BIN_BUDGET // max(1, lanes)) * self.bin_ns)
        oldest_ns = through_ns - min(keep_ns, self.longest_ns)
        own_ns = {name: through_ns - min(keep_ns, most_ns) for name, most_ns in _KEEP_NS.items()}
        own_ns["marks"] = min(oldest_ns, through_ns - keep_marks_ns)
        self._store.let_go(oldest_ns - _PART_NS, own_ns)
        self._parts = [part for part in self._parts if part.last_ns > oldest_ns]

    def set_ranks(self, meta: Meta) -> None:
        """Take the ranks of the job's processes."""
        ranks = with_communicator_ranks(ranks_by_pid(meta.targets), self._communicator_ranks.ranks())
        if ranks != self._ranks:
            self._ranks, self._flows = ranks, None

    def evidence(self, meta: Meta, since_ns: int, through_ns: int, marks_since_ns: int | None = None) -> Evidence:
        """Return what happened since then, for the sections that the report has too.

        The wire may begin up to one piece earlier. Raises TraceError for rows that cannot be believed.
        """
        now = replace(meta, started_ns=since_ns, stopped_ns=max(through_ns, since_ns + 1))
        marks_since_ns = since_ns if marks_since_ns is None else marks_since_ns

        def table(name: str) -> dict[str, Any]:
            is_state = KINDS[name].rows is RowKind.STATE  # the wire may begin earlier
            return self.columns(name, ALWAYS if is_state else marks_since_ns if name == "marks" else since_ns)

        evidence = Evidence(now, table, lambda evidence: self._fold(since_ns), is_recent=True)
        evidence.hosts = self.hosts or evidence.hosts
        return evidence

    def columns(self, table: str, since_ns: int) -> dict[str, Any]:
        """Return the columns of the rows of a table since then, and of those that hold then."""
        return self._store.slice(table, since_ns)

    def _take_marks(self, rows: Rows) -> Rows:
        """Note whose they are, and leave out those that nothing rests on."""
        self._communicator_ranks.add(rows)
        kinds, pids = np.asarray(rows["kind"]), np.asarray(rows["pid"])
        new = set(np.unique(pids[kinds < MarkKind.PROCESS_FORK]).tolist()) - self._workers
        if new:
            self._workers |= new
            self._flows = None
        return chosen(rows, ~np.isin(kinds, _NOT_NEEDED))

    def _in_use(self) -> set[int]:
        """Return the flows that are kept however many there are: those that moved a packet."""
        moved: set[int] = set()
        for fold in (part.fold for part in self._parts):
            packets = fold.totals(TRANSMIT).packets + fold.totals(RECEIVE).packets
            moved.update(fold.flows.flow_id[packets > 0].tolist())
        return moved

    def _flow_table(self) -> Flows:
        if self._flows is None:
            renamed = known_as(read_link_history(self.columns("link_changes", ALWAYS), ()))
            self._flows = read_flows(self.columns("flows", ALWAYS), self._ranks, self._workers, renamed)
            paths = read_paths(self.columns("flow_paths", ALWAYS), renamed)
            self._lanes = read_flow_lanes(self._flows, self.columns("flow_devices", ALWAYS), paths, renamed)
        return self._flows

    def _add_wire(self, rows: Rows) -> None:
        begin_ns, last_ns = int(np.min(rows["bin_start_ns"])), int(np.max(rows["last_ns"]))
        flows = self._flow_table()
        part = self._parts[-1] if self._parts else None
        most_ns = min(_PART_NS, _PART_BINS * self.bin_ns)
        if part is None or part.fold.flows is not flows or begin_ns - part.begin_ns > most_ns:
            part = _WirePiece(begin_ns, WireFold(flows, self.bin_ns, lanes=self._lanes), last_ns)
            self._parts.append(part)
        part.fold.add(rows)
        part.last_ns = max(part.last_ns, last_ns)

    def _fold(self, since_ns: int) -> RecentFold:
        parts = [part.fold for part in self._parts if part.last_ns > since_ns]
        return RecentFold(self._flow_table(), self.bin_ns, parts, self._lanes)
