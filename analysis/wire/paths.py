"""The ways between processes: the flows from one to another, and how long they had something to send."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from netprof.analysis.piece import Piece
from netprof.analysis.tables.columns import UNKNOWN, Columns, Float64, Int64, int64_column
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
