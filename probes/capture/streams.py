"""Which stream a segment is of: a number for each connection or queue pair, and each way of it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from netprof.probes.capture.packets import Bool, Int64
from netprof.probes.capture.segments import ACK, SYN, Segments
from netprof.schema import TCP

_UInt64 = npt.NDArray[np.uint64]
_NONE = -1


@dataclass(frozen=True)
class Ends:
    """The two ends of a connection; of RoCE, where packets come from and the `queue_pair` that they are for.

    `network` tells apart what VXLANs carry: 0, or their number plus one.
    """

    protocol: int
    family: int
    address: str
    port: int
    peer_address: str
    peer_port: int
    queue_pair: int = 0
    network: int = 0


class Streams:
    """Numbers streams: 2k is one way of connection k (from its end to the peer), 2k + 1 the other.

    A connection that begins on ports that another one has used is another connection. RoCE's headers do not say which
    queue pair answers, so of the two ways of a RoCE connection only the first has packets.
    """

    def __init__(self) -> None:
        self.connections: list[Ends] = []
        self._places: dict[int, int] = {}  # by the hash of what names a connection
        self._current = np.zeros(0, np.int64)  # by place: the connection of now
        self._opened = np.zeros(0, np.int64)  # by place: the sequence number of the SYN that opened it

    def __len__(self) -> int:
        return 2 * len(self.connections)

    def number(self, segments: Segments) -> Int64:
        """Return the stream of each segment."""
        forward = _is_forward(segments)
        names, first, place_of = np.unique(_names(segments, forward), return_index=True, return_inverse=True)
        known = len(self._current)
        places = np.array([self._places.setdefault(name, len(self._places)) for name in names.tolist()], np.int64)
        more = len(self._places) - known
        self._current = np.append(self._current, np.zeros(more, np.int64))
        self._opened = np.append(self._opened, np.full(more, _NONE))
        for place, row in zip(places.tolist(), first.tolist(), strict=True):
            if place >= known:
                self._begin(place, segments, row, bool(forward[row]))
        place_of = places[place_of]
        connection = self._current[place_of]
        self._open_again(segments, forward, place_of, connection)
        return 2 * connection + ~forward

    def _begin(self, place: int, segments: Segments, row: int, forward: bool) -> None:
        self._current[place] = len(self.connections)
        is_new_tcp = segments.protocol[row] == TCP and segments.flags[row] & (SYN | ACK) == SYN
        self._opened[place] = segments.sequence[row] if is_new_tcp else _NONE
        self.connections.append(_ends(segments, row, forward))

    def _open_again(self, segments: Segments, forward: Bool, place_of: Int64, connection: Int64) -> None:
        """Give what comes after a new SYN to a new connection: `connection` is changed in place."""
        opening = np.flatnonzero((segments.protocol == TCP) & (segments.flags & (SYN | ACK) == SYN))
        again = opening[segments.sequence[opening] != self._opened[place_of[opening]]]
        if not len(again):
            return
        order = np.argsort(place_of, kind="stable")
        sorted_places = place_of[order]
        for row in again.tolist():
            place = int(place_of[row])
            if self._opened[place] == segments.sequence[row]:
                continue
            self._begin(place, segments, row, bool(forward[row]))
            begin, end = np.searchsorted(sorted_places, [place, place + 1])
            rows = order[begin:end]
            connection[rows[np.searchsorted(rows, row) :]] = self._current[place]


def _is_forward(segments: Segments) -> Bool:
    """Say which segments go from the lesser of two ends to the other: that way is the connection's first."""
    equal_high = segments.source_high == segments.destination_high
    equal = equal_high & (segments.source_low == segments.destination_low)
    lesser = np.where(
        equal,
        segments.source_port < segments.destination_port,
        np.where(
            equal_high,
            segments.source_low < segments.destination_low,
            segments.source_high < segments.destination_high,
        ),
    )
    return np.asarray(lesser | (segments.protocol != TCP))


def _names(segments: Segments, forward: Bool) -> _UInt64:
    """Return a hash of what names each segment's connection, the same for both ways of it."""
    is_tcp = segments.protocol == TCP
    source = segments.source_high, segments.source_low, np.where(is_tcp, segments.source_port, 0).astype(np.uint64)
    far_port = np.where(is_tcp, segments.destination_port, segments.queue_pair).astype(np.uint64)
    destination = segments.destination_high, segments.destination_low, far_port
    about = segments.family | segments.protocol << 8 | segments.network << 16
    found = about.astype(np.uint64)
    for near, far in (*zip(source, destination, strict=True), *zip(destination, source, strict=True)):
        found = (found ^ np.where(forward, near, far)) * np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(29)
    return found


def _ends(segments: Segments, row: int, forward: bool) -> Ends:
    family = int(segments.family[row])
    source = address(family, int(segments.source_high[row]), int(segments.source_low[row]))
    destination = address(family, int(segments.destination_high[row]), int(segments.destination_low[row]))
    ports = int(segments.source_port[row]), int(segments.destination_port[row])
    near, far = (source, ports[0]), (destination, ports[1])
    if not forward:
        near, far = far, near
    queue_pair, network = int(segments.queue_pair[row]), int(segments.network[row])
    return Ends(int(segments.protocol[row]), family, *near, *far, queue_pair, network)


def address(family: int, high: int, low: int) -> str:
    """Return an address of two halves as text."""
    return str(ipaddress.IPv4Address(low) if family == 4 else ipaddress.IPv6Address(high << 64 | low))
