"""A capture's clock against a recording's: by the moments at which streams that both saw passed the same byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.probes.capture.capture import Capture
from netprof.probes.capture.packets import Int64
from netprof.schema import RECEIVE, TRANSMIT
from netprof.trace.columns import to_numpy

_ENOUGH = 1 << 20
_EDGE_PERCENT = 2.0
"""So many of the differences are taken for mistakes: bytes that were sent twice match at either time."""


@dataclass(frozen=True)
class ClockMatch:
    """How a capture's clock was put on a recording's.

    `offset_ns` is what the recording's clock reads more, `correction_ns` by how much that differs from what the pair of
    clocks in `meta.json` says. `places` in streams were compared; in between, the offset is unknown by `residual_ns`.
    `span_ns` is when the capture began and ended on the recording's clock.
    """

    offset_ns: int
    correction_ns: int
    residual_ns: int
    places: int
    span_ns: tuple[int, int]


class Passed:
    """Where streams of a recording stood and when, from the rows of its table `wire`."""

    def __init__(self, batches: Iterable[Any]) -> None:
        keys, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for batch in batches:
            flow, direction, position, time_ns = (
                to_numpy(batch.column(name)).astype(np.int64)
                for name in ("flow_id", "direction", "stream_position", "stream_position_ns")
            )
            known = time_ns > 0
            keys.append(_key(flow[known], direction[known], position[known]))
            times.append(time_ns[known])
        key, time_ns = np.concatenate(keys), np.concatenate(times)
        order = np.argsort(key, kind="stable")
        self._keys, self._times = key[order], time_ns[order]
        self._matched = np.zeros(len(order), np.bool_)

    def differences(self, flow: Int64, direction: int, position: Int64, time_ns: Int64) -> Int64:
        """Return how much later than the recording packets were captured, of those that end at a known place.

        Of several that end at the same place it is the first: the others are sent again.
        """
        if not len(self._keys):
            return np.zeros(0, np.int64)
        key = _key(flow, np.full(len(flow), direction), position)
        at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        rows = np.flatnonzero((self._keys[at] == key) & (flow >= 0) & ~self._matched[at])
        rows = rows[np.unique(at[rows], return_index=True)[1]]
        self._matched[at[rows]] = True
        return np.asarray(time_ns[rows] - self._times[at[rows]])


def match_clock(capture: Capture, passed: Passed, on_block: Callable[[], None]) -> ClockMatch:
    """Read a capture for where its streams stood, and return how its clock is put on the recording's.

    What a host sends is captured after the recording saw it, what it receives before: so the least difference of the
    one and the greatest of the other enclose the truth.
    """
    differences: dict[int, list[Int64]] = {TRANSMIT: [], RECEIVE: []}
    for block in capture.segments():
        carries = np.flatnonzero(block.segments.payload > 0)
        end = (block.segments.sequence[carries] + block.segments.payload[carries]) & 0xFFFFFFFF
        flow_of = capture.flow_of
        for direction, parts in differences.items():
            if sum(map(len, parts)) < _ENOUGH and len(flow_of):
                flow = flow_of[block.stream[carries] ^ direction]
                parts.append(passed.differences(flow, direction, end, block.time_ns[carries]))
        on_block()
    sent, received = (np.concatenate([np.zeros(0, np.int64), *parts]) for parts in differences.values())
    correction_ns, residual_ns = _enclosed(sent, received)
    first_ns, last_ns = capture.span_ns or (0, 0)
    return ClockMatch(
        offset_ns=capture.offset_ns - correction_ns,
        correction_ns=correction_ns,
        residual_ns=residual_ns,
        places=len(sent) + len(received),
        span_ns=(first_ns - correction_ns, last_ns - correction_ns),
    )


def _enclosed(sent: Int64, received: Int64) -> tuple[int, int]:
    """Return by how much a capture's clock is ahead, and how far that may be wrong."""
    edges = []
    if len(sent):
        edges.append(float(np.percentile(sent, _EDGE_PERCENT)))
    if len(received):
        edges.append(float(np.percentile(received, 100 - _EDGE_PERCENT)))
    if not edges:
        return 0, 0
    middle = sum(edges) / len(edges)
    spread = [abs(float(np.median(way)) - middle) for way in (sent, received) if len(way)]
    return round(middle), round(max(*(abs(edge - middle) for edge in edges), *spread, 0.0))


def _key(flow: Int64, direction: Int64, position: Int64) -> Int64:
    return flow << 33 | direction << 32 | position
