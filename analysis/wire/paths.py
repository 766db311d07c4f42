"""The ways between processes: the flows from one to another, and how long they had something to send."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from netprof.analysis.piece import Piece
from netprof.analysis.tables.columns import UNKNOWN, Columns, Float64, Int64, grouped, int64_column
from netprof.analysis.tables.flow_table import Flows, LinkKey
from netprof.analysis.wire.fold import WireFold
from netprof.schema import TRANSMIT


class PathKey(NamedTuple):
    """From which process to which; where the other end is not recorded, its address instead (pid UNKNOWN)."""

    pid: int
    link: LinkKey
    to_pid: int
    to_addr: str


@dataclass(frozen=True, eq=False)
class Paths:
    """The ways between processes: of each flow its place in `keys`, and the flow that is its other end."""

    keys: tuple[PathKey, ...]
    of_flow: Int64
    peer: Int64


def find_paths(flows: Flows, peer: Int64) -> Paths:
    """Return the ways that flows go, by who holds both ends of each connection (`peer`, by row)."""
    numbers: dict[PathKey, int] = {}
    of_flow = np.zeros(len(flows), np.int64)
    lanes = zip(flows.netns.tolist(), flows.device.tolist(), flows.pid.tolist(), strict=True)
    for row, (netns, device, pid) in enumerate(lanes):
        to_pid = int(flows.pid[peer[row]]) if peer[row] != UNKNOWN else UNKNOWN
        address = "" if to_pid != UNKNOWN else str(flows.remote_addr[row])
        key = PathKey(pid, LinkKey(netns, str(device)), to_pid, address)
        of_flow[row] = numbers.setdefault(key, len(numbers))
    return Paths(tuple(numbers), of_flow, peer)


class Between(Protocol):
    """A way: from which process to which, or to which address where the other end is not recorded."""

    @property
    def pid(self) -> int:
        """The process that sends."""

    @property
    def to_pid(self) -> int:
        """The process that receives, UNKNOWN where it is not recorded."""

    @property
    def to_addr(self) -> str:
        """The address of one that is not recorded."""


def sibling_median(values: Float64, ways: Sequence[Between]) -> Float64:
    """Return the median of each way's siblings, of the shape of `values`, (ways, windows); NaN without any.

    Siblings have senders with as many receivers, and receivers with as many senders: what leaves the root of a gather
    or of a server's star is no sibling of what reaches it. Of ways that have a way back, one direction is no sibling of
    the other: from lower to higher processes, and from higher to lower ones.
    """
    ends = [(way.pid, (way.to_pid, way.to_addr)) for way in ways]
    pairs = {(way.pid, way.to_pid) for way in ways}
    receivers, senders = Counter(sender for sender, _ in set(ends)), Counter(receiver for _, receiver in set(ends))
    direction = [0 if (way.to_pid, way.pid) not in pairs else 1 if way.pid < way.to_pid else 2 for way in ways]
    columns = ([receivers[sender] for sender, _ in ends], [senders[receiver] for _, receiver in ends], direction)
    median = np.full(values.shape, np.nan)
    for rows in grouped(*(np.array(column, np.int64) for column in columns)):
        if len(rows) > 1:
            median[rows] = _median_of_others(values[rows])
    return median


def _median_of_others(values: Float64) -> Float64:
    """Return the median of all other rows, for each of at least two."""
    order = np.argsort(values, axis=0, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(len(values))[:, None], axis=0)
    ascending, others = np.take_along_axis(values, order, axis=0), len(values) - 1
    middle = [np.where(at < rank, ascending[at], ascending[at + 1]) for at in ((others - 1) // 2, others // 2)]
    return np.asarray((middle[0] + middle[1]) / 2)


def more_than_siblings(values: Float64, ways: Sequence[Between]) -> Float64:
    """Return by how much each way's values are above the median of its siblings; 0 without any. Shape as given."""
    return np.asarray(np.nan_to_num(np.maximum(values - sibling_median(values, ways), 0.0)))


@dataclass(frozen=True, eq=False)
class BusyClocks(Columns):
    """How TCP's clock of a flow went on between two samples, by flow and time; ns.

    `busy_ns` is for how long it had something on its way or to send, but for the time in which the receiver had no
    room: that is not the network's. `row` is the flow's.
    """

    row: Int64
    begin_ns: Int64
    end_ns: Int64
    busy_ns: Int64

    def during(self, rows: Sequence[int], begin_ns: Int64, end_ns: Int64) -> Float64:
        """Return for how long some flows were busy in windows, ascending, in all; spread evenly between samples."""
        total = np.zeros(len(begin_ns))
        for row in rows:
            samples = self.where(np.arange(*np.searchsorted(self.row, (row, row + 1))))
            if len(samples):
                at_ns = np.append(samples.begin_ns, samples.end_ns[-1:])
                through = np.concatenate(([0.0], np.cumsum(samples.busy_ns)))
                first, last = np.searchsorted(end_ns, at_ns[0], "right"), np.searchsorted(begin_ns, at_ns[-1])
                ends = (np.interp(each[first:last], at_ns, through) for each in (end_ns, begin_ns))
                total[first:last] += np.subtract(*ends)
        return total


def read_busy(table: Any, flows: Flows, piece: Piece) -> BusyClocks:
    """Return the clocks of the `tcp` table; none where the recording has none.

    Of a piece of a recording, what ends in it.
    """
    row, time_ns = flows.positions(int64_column(table, "flow_id")), int64_column(table, "time_ns")
    busy, limited = int64_column(table, "busy_us"), int64_column(table, "rwnd_limited_us")
    kept = np.flatnonzero((row >= 0) & (busy != UNKNOWN))
    order = kept[np.lexsort((time_ns[kept], row[kept]))]
    row, time_ns, busy_ns = row[order], time_ns[order], (busy - limited)[order] * 1000
    before = np.flatnonzero(row[1:] == row[:-1])
    grown = np.clip(busy_ns[before + 1] - busy_ns[before], 0, time_ns[before + 1] - time_ns[before])
    clocks = BusyClocks(row[before], time_ns[before], time_ns[before + 1], grown)
    return clocks if piece.is_all else clocks.where(piece.owns(clocks.end_ns))


def traffic(fold: WireFold, peers: Int64) -> dict[tuple[int, int], float]:
    """Return the payload bytes that went between each two processes, in both directions; keys in both orders.

    `peers` are the rows of flows' other ends.
    """
    flows, sent = fold.flows, fold.totals(TRANSMIT).payload_bytes
    by_pair: defaultdict[tuple[int, int], float] = defaultdict(float)
    for row in np.flatnonzero(peers != UNKNOWN).tolist():
        pair = int(flows.pid[row]), int(flows.pid[peers[row]])
        for key in (pair, pair[::-1]):
            by_pair[key] += float(sent[row])
    return dict(by_pair)
