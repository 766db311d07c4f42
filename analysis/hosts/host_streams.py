"""The same streams in the traces of two hosts: when which byte left, and when it arrived."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.declared import merged
from netprof.analysis.tables.columns import Columns, Int64, concatenate, int64_column, opens, read_columns, text_column
from netprof.schema import RECEIVE, TRANSMIT
from netprof.trace import TraceSource
from netprof.trace.index import TraceIndex

_WRAP = 1 << 32
_FLOWS = 1 << 32
"""Flows that a window may have."""
_LEAST_ALIKE = 3
"""Positions that two flows with each other's addresses have in common if they are the ends of one connection."""
_LEAST_ALIKE_ANYWHERE = 16
"""Positions that two flows with other addresses have in common if they are: a router changed the addresses."""


End = tuple[str, int]
"""Address and port."""
Ends = tuple[End, End]
"""The local and the remote end of a connection."""


@dataclass(frozen=True, eq=False)
class Passages(Columns):
    """When bytes of streams passed a host: by flow and direction and time, after which byte of the stream.

    `position` is TCP's sequence number, carried on beyond where that begins again. Of a long recording only some
    windows are looked at: `flow_id` is of a flow in one of them, with the window's number above the flow's.
    """

    flow_id: Int64
    direction: Int64
    position: Int64
    time_ns: Int64

    def of(self, flow_id: int, direction: int) -> Passages:
        """Return those of one direction of a flow: flows come one after the other."""
        rows = np.arange(*np.searchsorted(self.flow_id, (flow_id, flow_id + 1)))
        return self.where(rows[self.direction[rows] == direction])


@dataclass(frozen=True, eq=False)
class HostStreams:
    """The streams of one host: their passages, and the two ends of each flow."""

    passages: Passages
    ends: Mapping[int, Ends]


@dataclass(frozen=True, eq=False)
class Delays(Columns):
    """Bytes that left a host at `sent_ns` of its clock and had arrived at another at `arrived_ns` of that one's."""

    sent_ns: Int64
    arrived_ns: Int64


def read_streams(index: TraceIndex, windows: Sequence[tuple[int, int]]) -> HostStreams:
    """Read the streams of a trace in some windows of its time; of one of an older schema there are none."""
    parts = [
        stream_rows(batch, number)
        for number, window in enumerate(windows)
        for batch in index.between("wire", *window)
    ]  # fmt: skip
    passages = carried_on(concatenate(StreamRows, [part for part in parts if len(part)]))
    return HostStreams(passages, flow_ends(index.reader))


def flow_ends(source: TraceSource) -> dict[int, Ends]:
    """Return the local and the remote address and port of each flow of a recording."""
    flows = source.table("flows")
    local, remote = (
        zip(text_column(flows, f"{end}_addr"), int64_column(flows, f"{end}_port").tolist(), strict=True)
        for end in ("local", "remote")
    )
    return dict(zip(int64_column(flows, "flow_id").tolist(), zip(local, remote, strict=True), strict=True))


@dataclass(frozen=True, eq=False)
class StreamRows(Columns):
    """What a row of `wire` tells of a stream."""

    flow_id: Int64
    direction: Int64
    payload_bytes: Int64
    stream_position: Int64
    stream_position_ns: Int64


def stream_rows(batch: object, window: int = 0) -> StreamRows:
    """Return what rows of `wire` tell of streams; those of a window of the time have flows of their own."""
    rows = read_columns(StreamRows, batch)
    return replace(rows, flow_id=rows.flow_id + window * _FLOWS)


def carried_on(rows: StreamRows) -> Passages:
    """Carry positions on where TCP's numbers begin again: by as many times as the bytes in between tell.

    Rows of a flow and direction are in the order of time.
    """
    rows = rows.where(np.lexsort((rows.direction, rows.flow_id)))
    moved = np.cumsum(rows.payload_bytes)
    known = rows.stream_position_ns > 0
    rows, moved = rows.where(known), moved[known]
    if len(rows) == 0:
        return Passages(rows.flow_id, rows.direction, rows.stream_position, rows.stream_position_ns)
    first = opens(rows.flow_id, rows.direction)
    step = np.diff(rows.stream_position, prepend=0) % _WRAP
    expected = np.diff(moved, prepend=0)
    step += _WRAP * np.rint((expected - step) / _WRAP).astype(np.int64)
    step[first] = 0
    total = np.cumsum(step)
    begin = np.flatnonzero(first)
    lengths = np.diff(np.append(begin, len(rows)))
    position = total + np.repeat(rows.stream_position[begin] - total[begin], lengths)
    return Passages(rows.flow_id, rows.direction, position, rows.stream_position_ns)


def delays(first: HostStreams, second: HostStreams) -> tuple[Delays, Delays]:
    """Return what went from one host to the other, and what came back: upper limits of how long it took.

    A byte that arrives has left no earlier than the last byte before it that is known to have left; both are the same
    byte where both hosts know when it passed.
    """
    there, back = [], []
    for flow, far_flow, wraps in _same_streams(first, second):
        there.append(_delays(first.passages.of(flow, TRANSMIT), second.passages.of(far_flow, RECEIVE), wraps[0]))
        back.append(_delays(second.passages.of(far_flow, TRANSMIT), first.passages.of(flow, RECEIVE), wraps[1]))
    return concatenate(Delays, there), concatenate(Delays, back)


def _delays(sent: Passages, arrived: Passages, wraps: int | None) -> Delays:
    """Return for each arrival when the last byte before it, or it itself, left; `wraps` apart are their positions.

    Of what arrived after the last byte that is known to have left nothing is: the sender's recording had ended.
    """
    if wraps is None or len(sent) == 0 or len(arrived) == 0:
        return concatenate(Delays, [])
    position = arrived.position - wraps * _WRAP
    reached = np.maximum.accumulate(sent.position)
    row = np.searchsorted(reached, position, "right") - 1
    known = (row >= 0) & (position <= reached[-1])
    return Delays(sent.time_ns[row[known]], arrived.time_ns[known])


def _same_streams(first: HostStreams, second: HostStreams) -> Iterator[tuple[int, int, tuple[int | None, int | None]]]:
    """Yield flows of two hosts that are the two ends of a connection, and how positions lie apart each way.

    Addresses may be used again, by another connection later or in another network, and routers change them: what two
    ends have in common is positions.
    """
    there = _alike(first.passages, TRANSMIT, second.passages, RECEIVE)
    swapped = _alike(second.passages, TRANSMIT, first.passages, RECEIVE)
    back = {pair[::-1]: shared for pair, shared in swapped.items()}
    counts = merged([there, back], lambda shared: sum(number for number, _ in shared))

    def fit(pair: tuple[int, int]) -> bool:
        ends = first.ends.get(pair[0] % _FLOWS), second.ends.get(pair[1] % _FLOWS)
        return ends[0] is not None and ends[1] is not None and ends[0] == ends[1][::-1]

    taken: set[tuple[int, int]] = set()
    for pair, number in sorted(counts.items(), key=lambda item: (-item[1], not fit(item[0]))):
        flow, far_flow = pair
        free = (0, flow) not in taken and (1, far_flow) not in taken and flow // _FLOWS == far_flow // _FLOWS
        if free and number >= (_LEAST_ALIKE if fit(pair) else _LEAST_ALIKE_ANYWHERE):
            taken |= {(0, flow), (1, far_flow)}
            yield flow, far_flow, (there.get(pair, (0, None))[1], back.get(pair, (0, None))[1])


def _alike(
    sender: Passages, sent: int, receiver: Passages, received: int
) -> dict[tuple[int, int], tuple[int, int | None]]:
    """Return for each flow of a sender and of a receiver how many positions they share, and how often those wrap."""
    a, b = sender.where(sender.direction == sent), receiver.where(receiver.direction == received)
    numbers, row_a, row_b = _joined(a.position % _WRAP, b.position % _WRAP)
    if len(numbers) == 0:
        return {}
    wraps = (b.position[row_b] - a.position[row_a]) // _WRAP
    keys, counts = np.unique(np.stack((a.flow_id[row_a], b.flow_id[row_b], wraps), axis=1), axis=0, return_counts=True)
    shared: dict[tuple[int, int], tuple[int, int | None]] = {}
    for (flow, far_flow, wrap), number in zip(keys.tolist(), counts.tolist(), strict=True):
        if number > shared.get((flow, far_flow), (0, None))[0]:
            shared[flow, far_flow] = number, wrap
    return shared


def _joined(first: Int64, second: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the numbers that two columns have in common and a row of each; of those that come again, every one."""
    order = np.argsort(second, kind="stable")
    low = np.searchsorted(second[order], first, "left")
    count = np.searchsorted(second[order], first, "right") - low
    row = np.repeat(np.arange(len(first)), count)
    within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    return first[row], row, order[low[row] + within]
