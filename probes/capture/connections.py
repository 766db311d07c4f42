"""Which stream a segment is of: a number for each connection or queue pair, and each way of it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from netprof.probes.capture.duplicates import Sightings, mixed
from netprof.probes.capture.packets import Bool, Int64, UInt64
from netprof.probes.capture.segments import ACK, SYN, Segments
from netprof.schema import TCP

_NONE = -1
MOST_CONNECTIONS = 100_000
"""Connections that are told apart: each takes kilobytes, here and in reports, and 60 bytes of a capture make one."""


@dataclass(frozen=True)
class Ends:
    """The two ends of a connection; of RoCE, where packets come from and the `queue_pair` that they are for.

    `network` tells apart what VLANs and overlays carry (`networks.py`).
    """

    protocol: int
    family: int
    address: str
    port: int
    peer_address: str
    peer_port: int
    queue_pair: int = 0
    network: int = 0


class ConnectionHashes:
    """What names the connections of segments: `ends` by their ends, `connection` by the network as well.

    Both are the same for either way; `way` also tells that, and `forward` says which it is.
    """

    def __init__(self, segments: Segments) -> None:
        self.forward = _is_forward(segments)
        self.ends = _ends_hash(segments, self.forward)
        self.connection = np.where(segments.network > 0, mixed(self.ends, segments.network), self.ends)
        self.way = mixed(self.ends, self.forward.astype(np.int64))


@dataclass(frozen=True, eq=False)
class _Block:
    """Segments of a block and whose they are: `of` numbers the connections in it, which are at `places`."""

    segments: Segments
    hashes: ConnectionHashes
    identity: UInt64
    of: Int64
    places: Int64

    @cached_property
    def _groups(self) -> tuple[Int64, Int64]:
        order = np.argsort(self.of, kind="stable")
        return order, np.searchsorted(self.of[order], np.arange(len(self.places) + 1))

    def rows(self, number: int) -> Int64:
        """Return the segments of a connection of the block."""
        order, begins = self._groups
        return order[begins[number] : begins[number + 1]]

    def rows_at(self, place: int) -> Int64:
        """Return the segments of the connections at a place, as far as these are known."""
        rows = [self.rows(number) for number in np.flatnonzero(self.places == place).tolist()]
        return np.concatenate([np.zeros(0, np.int64), *rows])


class Streams:
    """Numbers streams: 2k is one way of connection k (from its end to the peer), 2k + 1 the other.

    A connection that begins on ports that another one has used is another connection. So is one between the same ends
    in another network, unless the same packets pass in both: then it is one that was captured in several places, with
    and without a tag, inside and outside of an overlay. RoCE's headers do not say which queue pair answers, so of the
    two ways of a RoCE connection only the first has packets. There are at most `most`: what comes on the ports of one
    is then counted to it, and for others there is no room.
    """

    def __init__(self, most: int = MOST_CONNECTIONS) -> None:
        self.most = most
        self.connections: list[Ends] = []
        self._places: dict[int, int] = {}  # by the hash of what names a connection
        self._between: dict[int, list[int]] = {}  # by the hash of its ends, the places of all networks
        self._count = 0
        self._current = np.zeros(0, np.int64)  # by place, with room for more: the connection of now
        self._opened = np.zeros(0, np.int64)  # by place: the sequence number of the SYN that opened it
        self._has = np.zeros(0, np.bool_)  # by stream: whether it has packets

    def __len__(self) -> int:
        return 2 * len(self.connections)

    def has_room(self, hashes: ConnectionHashes) -> Bool:
        """Say which segments are of connections that are known, or of the first that there is room for."""
        room = self.most - len(self.connections)
        if len(hashes.connection) <= room:
            return np.ones(len(hashes.connection), np.bool_)
        names, first, of = np.unique(hashes.connection, return_index=True, return_inverse=True)
        fresh = np.flatnonzero([name not in self._places for name in names.tolist()])
        kept = np.ones(len(names), np.bool_)
        kept[fresh[np.argsort(first[fresh])[max(room, 0) :]]] = False
        return np.asarray(kept[of])

    def number(self, segments: Segments, hashes: ConnectionHashes, identity: UInt64, recent: Sightings) -> Int64:
        """Return the stream of each segment; `recent` are packets before these."""
        names, first, of = np.unique(hashes.connection, return_index=True, return_inverse=True)
        places = np.array([self._places.get(name, _NONE) for name in names.tolist()], np.int64)
        block = _Block(segments, hashes, identity, of, places)
        fresh = np.flatnonzero(places == _NONE).tolist()
        room = np.full(max(0, self._count + len(fresh) - len(self._current)), _NONE)
        self._current, self._opened = np.append(self._current, room), np.append(self._opened, room)
        for number in fresh:
            places[number] = self._places[int(names[number])] = self._place(block, number, int(first[number]), recent)
        place_of = places[of]
        connection = self._current[place_of]
        self._open_again(block, place_of, connection)
        stream = 2 * connection + ~hashes.forward
        self._has = np.append(self._has, np.zeros(len(self) - len(self._has), np.bool_))
        self._has[stream] = True
        return np.asarray(stream)

    def _place(self, block: _Block, number: int, row: int, recent: Sightings) -> int:
        """Return the place of a connection by a name that is new: that of one which it is, or one of its own."""
        known = self._between.setdefault(int(block.hashes.ends[row]), [])
        for place in known:
            if self._is_one(block, block.rows(number), place, recent):
                return place
        place = self._count
        self._count += 1
        known.append(place)
        self._begin(place, block, row)
        return place

    def _is_one(self, block: _Block, rows: Int64, place: int, recent: Sightings) -> bool:
        """Tell whether packets are of a connection that is known from another network.

        They are if one of them passed there as well, or if the one network has one way and the other the other one.
        """
        there, connection = block.rows_at(place), int(self._current[place])
        earlier = recent.identity[recent.stream >> 1 == connection]
        if np.isin(block.identity[rows], np.append(block.identity[there], earlier)).any():
            return True
        ways, other_ways = set(block.hashes.forward[rows].tolist()), set(block.hashes.forward[there].tolist())
        other_ways |= {way for way in (True, False) if self._has[2 * connection + (not way) :][:1].any()}
        return not ways & other_ways

    def _begin(self, place: int, block: _Block, row: int) -> None:
        segments = block.segments
        self._current[place] = len(self.connections)
        opens = segments.protocol[row] == TCP and segments.flags[row] & SYN
        self._opened[place] = _opening(segments, np.array([row]))[0] if opens else _NONE
        self.connections.append(_ends(segments, row, bool(block.hashes.forward[row])))

    def _open_again(self, block: _Block, place_of: Int64, connection: Int64) -> None:
        """Give what comes after a new SYN, or its answer, to a new connection: `connection` is changed in place."""
        rows = np.flatnonzero((block.segments.protocol == TCP) & (block.segments.flags & SYN > 0))
        opened = _opening(block.segments, rows)
        again = opened != self._opened[place_of[rows]]
        if not again.any():
            return
        order = np.argsort(place_of, kind="stable")
        sorted_places = place_of[order]
        for row, number in zip(rows[again].tolist(), opened[again].tolist(), strict=True):
            place = int(place_of[row])
            if self._opened[place] == number or len(self.connections) >= self.most:
                continue
            self._begin(place, block, row)
            begin, end = np.searchsorted(sorted_places, [place, place + 1])
            after = order[begin:end]
            connection[after[np.searchsorted(after, row) :]] = self._current[place]


def _opening(segments: Segments, rows: Int64) -> Int64:
    """Return the number of the SYN by which the connection of some segments, SYNs and answers to them, was opened."""
    answered = (segments.acknowledged[rows] - 1) & 0xFFFFFFFF
    return np.where(segments.flags[rows] & ACK > 0, answered, segments.sequence[rows])


def _is_forward(segments: Segments) -> Bool:
    """Say which segments go from the lesser of two ends to the other: that way is the connection's first."""
    source_low, destination_low = segments.source_low, segments.destination_low
    source_high, destination_high = segments.source_high, segments.destination_high
    by_port = segments.source_port < segments.destination_port
    by_low = np.where(source_low == destination_low, by_port, source_low < destination_low)
    lesser = np.where(source_high == destination_high, by_low, source_high < destination_high)
    return np.asarray(lesser | (segments.protocol != TCP))


def _ends_hash(segments: Segments, forward: Bool) -> UInt64:
    """Return a hash of the two ends of each segment's connection, the same for both ways of it."""
    is_tcp = segments.protocol == TCP
    source = segments.source_high, segments.source_low, np.where(is_tcp, segments.source_port, 0).astype(np.uint64)
    far_port = np.where(is_tcp, segments.destination_port, segments.queue_pair).astype(np.uint64)
    destination = segments.destination_high, segments.destination_low, far_port
    hashes = (segments.family | segments.protocol << 8).astype(np.uint64)
    for near, far in (*zip(source, destination, strict=True), *zip(destination, source, strict=True)):
        hashes = mixed(hashes, np.where(forward, near, far))
    return hashes


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
