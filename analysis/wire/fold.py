"""Folding the wire table, batch by batch: memory grows with flows and with the time bins in which they move a byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from netprof.analysis.piece import ALL, Piece
from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Int64, column, int64_column
from netprof.analysis.tables.flow_lanes import FlowLanes, read_flow_lanes
from netprof.analysis.tables.flow_table import Flows, LaneKey, LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals, merge
from netprof.analysis.wire.bins import Bins, GrowingLane
from netprof.analysis.wire.by_bin import ByBin
from netprof.analysis.wire.lanes import Lanes
from netprof.analysis.wire.peers import find_peers
from netprof.analysis.wire.recovery import Recovery, Resent
from netprof.analysis.wire.unplaced import MOST_PARTS, is_unplaced, spread
from netprof.analysis.wire.unsent import UnsentCollector, UnsentFlows
from netprof.errors import TraceError
from netprof.schema import RECEIVE, TRANSMIT

LONGEST_NS = 366 * 24 * 3600 * 10**9
"""A recording is believed to last a year at most. Times further apart are taken for damage."""

_ROWS_AT_ONCE = 1 << 17
_NAMES = (
    "flow_id",
    "direction",
    "bin_start_ns",
    "payload_bytes",
    "wire_bytes",
    "retransmitted_bytes",
    "packets",
    "first_ns",
    "last_ns",
    "unsent",
    "stream_position",
    "stream_position_ns",
)


@dataclass(frozen=True, eq=False)
class FlowTotals(Columns):
    """What each flow moved in one direction, in the order of the flow table; first_ns > last_ns: nothing."""

    payload_bytes: Int64
    wire_bytes: Int64
    retransmitted_bytes: Int64
    packets: Int64
    first_ns: Int64
    last_ns: Int64


class RowObserver(Protocol):
    """What else is given the rows while they are folded."""

    def add(self, flow: Int64, direction: Int64, columns: dict[str, npt.NDArray[Any]]) -> None:
        """Take rows: the flow's row in the flow table, the direction, and the columns of `wire`."""


class WireFold:
    """Adds up `wire` rows per lane and bin, and per flow and direction. Rows may come in any order.

    A lane is one process's flows on one device in one direction, over one path below it: `lanes` says which. Rows of
    flows that the flow table does not know (the recorder was killed before it wrote them) are added to `unknown_bytes`
    and nothing else; `also` sees the others. Of a `piece` of a recording, totals are of its own rows; lanes and `also`
    see those around it too.
    """

    def __init__(
        self,
        flows: Flows,
        bin_ns: int,
        also: RowObserver | None = None,
        piece: Piece = ALL,
        lanes: FlowLanes | None = None,
    ) -> None:
        self.flows = flows
        self._piece = piece
        self._also = also
        self.flow_lanes = read_flow_lanes(flows) if lanes is None else lanes
        self._keys = self.flow_lanes.keys
        self.bin_ns = bin_ns
        self.rows = 0
        self.unknown_bytes = 0
        self._lanes = [GrowingLane() for _ in self._keys]
        self._moved = np.zeros(len(self._keys), np.int64)  # wire bytes of the piece's own rows, by lane
        self._begin_ns: list[int] = []  # of the first and of the last bin
        slots = 2 * len(flows)
        self._sums = {name: np.zeros(slots, np.int64) for name in _NAMES[3:7]}
        self._position = np.full(slots, UNKNOWN)  # of the stream, when it was last known
        self._first = np.full(slots, np.iinfo(np.int64).max)
        self._last = np.full(slots, np.iinfo(np.int64).min)
        self._recovery = Recovery(len(flows))
        self._unsent = UnsentCollector(len(flows))
        self._unknown: dict[int, Intervals] = {}  # by lane
        self._parts_left = MOST_PARTS

    def add(self, batch: Any) -> None:
        """Add rows: an Arrow batch or table, a DataFrame or a mapping of columns. Raises TraceError on absurd times."""
        self._add({name: column(batch, name) for name in _NAMES})

    def add_all(self, batches: Iterable[Any]) -> None:
        """Add many batches, small ones together so that each pass over them pays."""
        for columns in _together(batches):
            self._add(columns)

    def lanes(self) -> Lanes:
        """Return the bins of every lane that moved a byte."""
        lanes = zip(self._keys, (lane.bins() for lane in self._lanes), strict=True)
        return Lanes({key: bins for key, bins in lanes if bins is not None})

    def totals(self, direction: int) -> FlowTotals:
        """Return every flow's totals in one direction."""
        part = slice(direction, None, 2)
        sums = {name: values[part] for name, values in self._sums.items()}
        return FlowTotals(**sums, first_ns=self._first[part], last_ns=self._last[part])

    def peers(self) -> Int64:
        """Return the row of the other end of each flow, UNKNOWN where it is not recorded."""
        payload = np.stack([self.totals(way).payload_bytes for way in (TRANSMIT, RECEIVE)])
        return find_peers(self.flows, payload, self._position.reshape(-1, 2).T)

    def moved_bytes(self, direction: int) -> dict[int, dict[LinkKey, int]]:
        """Return what each process moved in one direction, by pid and device; nothing is left out, zero is."""
        by_process: dict[int, dict[LinkKey, int]] = {}
        for (lane, way), amount in zip(self._keys, self._moved.tolist(), strict=True):
            if amount and way == direction:
                by_link = by_process.setdefault(lane.pid, {})
                by_link[lane.link] = by_link.get(lane.link, 0) + amount
        return by_process

    def resent(self) -> Resent:
        """Return what the flows sent again."""
        return self._recovery.resent

    def unsent(self) -> UnsentFlows:
        """Return when the flows had bytes that they had not sent."""
        return self._unsent.unsent

    def span_ns(self) -> tuple[int, int] | None:
        """Return the times of the first and the last packet of known flows, None without any."""
        if not (self._last >= self._first).any():
            return None
        return int(self._first.min()), int(self._last.max())

    def _add(self, columns: dict[str, npt.NDArray[Any]]) -> None:
        flow = self.flows.positions(columns["flow_id"])
        direction = columns["direction"].astype(np.int64)
        known = (flow >= 0) & (direction <= RECEIVE)
        owned = self._piece.owns(int64_column(columns, "bin_start_ns"))
        self.rows += int(owned.sum())
        if not known.all():
            self.unknown_bytes += int(columns["wire_bytes"][owned & ~known].sum())
            columns = {name: values[known] for name, values in columns.items()}
            flow, direction, owned = flow[known], direction[known], owned[known]
        lane = self.flow_lanes.of(flow, direction, int64_column(columns, "first_ns"))
        self._add_to_flows(flow * 2 + direction, lane, columns, owned)
        unplaced = is_unplaced(columns, self.bin_ns)
        if unplaced.any():
            self._add_unplaced(np.flatnonzero(unplaced), flow, direction, lane, columns)
            columns = {name: values[~unplaced] for name, values in columns.items()}
            flow, direction, lane = flow[~unplaced], direction[~unplaced], lane[~unplaced]
        self._recovery.add(flow, direction, columns)
        self._unsent.add(flow, direction, columns)
        self._add_over_time(flow, direction, lane, columns)

    def _add_over_time(self, flow: Int64, direction: Int64, lane: Int64, columns: dict[str, npt.NDArray[Any]]) -> None:
        """Add rows of one bin each to all that is kept over time."""
        if self._also is not None:
            self._also.add(flow, direction, columns)
        self._add_to_lanes(lane, columns)

    def _add_unplaced(
        self, rows: Int64, flow: Int64, direction: Int64, lane: Int64, columns: dict[str, npt.NDArray[Any]]
    ) -> None:
        """Add rows whose packets passed at times that are not known: spread evenly, and noted as unknown time.

        That something was sent again in them says nothing of when a flow recovered.
        """
        flow, direction, lane = flow[rows], direction[rows], lane[rows]
        begin, end = (int64_column(columns, name)[rows] for name in ("first_ns", "last_ns"))
        self._check_span(np.concatenate((begin, end)))
        for index in np.unique(lane).tolist():
            times = merge(begin[lane == index], end[lane == index] + 1)
            self._unknown[index] = self._unknown.get(index, NOTHING) | times
        held_up = {name: values[rows] for name, values in columns.items()}
        most = self._parts_left // 2  # so that what comes later, and may be short, is spread too
        for evenly, row in spread(held_up, self.bin_ns, most):
            self._parts_left -= len(row)
            self._add_over_time(flow[row], direction[row], lane[row], evenly)

    def unknown(self) -> dict[tuple[LaneKey, int], Intervals]:
        """Return the time in which it is not known when the bytes of a lane passed, of lanes that have any."""
        return {self._keys[index]: times for index, times in self._unknown.items()}

    def _add_to_flows(self, slot: Int64, lane: Int64, columns: dict[str, npt.NDArray[Any]], owned: Bool) -> None:
        if not owned.all():
            slot, lane, columns = slot[owned], lane[owned], {name: values[owned] for name, values in columns.items()}
        moved = np.bincount(lane, weights=columns["wire_bytes"], minlength=len(self._moved))
        self._moved += moved.astype(np.int64)
        for name, total in self._sums.items():
            total += np.bincount(slot, weights=columns[name], minlength=len(total)).astype(np.int64)
        placed = np.flatnonzero(int64_column(columns, "stream_position_ns") > 0)
        self._position[slot[placed]] = int64_column(columns, "stream_position")[placed]  # the last one of each stays
        np.minimum.at(self._first, slot, int64_column(columns, "first_ns"))
        np.maximum.at(self._last, slot, int64_column(columns, "last_ns"))

    def _add_to_lanes(self, lane: Int64, columns: dict[str, npt.NDArray[Any]]) -> None:
        start = int64_column(columns, "bin_start_ns")
        if len(start) == 0:
            return
        self._check_span(start)
        lead = np.clip(start + self.bin_ns - columns["first_ns"], 0, self.bin_ns).astype(np.uint32)
        last = np.clip(columns["last_ns"] - start, 0, self.bin_ns).astype(np.uint32)
        rows = ByBin(start // self.bin_ns, lane)
        wire, new, again = (rows.sums(columns[n]) for n in ("wire_bytes", "payload_bytes", "retransmitted_bytes"))
        bins = Bins(self.bin_ns, rows.number, wire, new, again, rows.largest(lead), rows.largest(last))
        for index, part in rows.lanes():
            self._lanes[index].add(bins.part(part))

    def _check_span(self, begin_ns: Int64) -> None:
        low, high = self._begin_ns = [
            min([int(begin_ns.min()), *self._begin_ns]),
            max([int(begin_ns.max()), *self._begin_ns]),
        ]
        if high - low > LONGEST_NS:
            days, most = ((each // (24 * 3600 * 10**9)) for each in (high - low, LONGEST_NS))
            raise TraceError(
                f"the trace's times span {days} days, more than the {most} that are believed", "the trace is damaged"
            )


def _together(batches: Iterable[Any]) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield the columns of batches, joined until they hold enough rows to be worth a pass."""
    waiting: list[dict[str, npt.NDArray[Any]]] = []
    rows = 0
    for batch in batches:
        waiting.append({name: column(batch, name) for name in _NAMES})
        rows += len(waiting[-1]["flow_id"])
        if rows >= _ROWS_AT_ONCE:
            yield _join(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _join(waiting)


def _join(parts: list[dict[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in _NAMES}
