"""Packets that a capture holds more than once: one that passed several devices, or a mirror of both ways.

They are told from what is sent again by IP's identifier: Linux numbers every packet of a connection anew, also one that
it sends again. Where the identifier says nothing, because it is 0 or ever the same (RFC 6864 allows that) or IPv6 has
none, the same headers on one device are the same packet only a moment later; on two devices, the n-th time on the one
is the n-th time on the other.

A hash of the bytes that no hop changes identifies a packet, wherever and in whatever framing it passes. Where one
device has as one buffer the bytes that are many packets on the next, it is the place and the time that tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.probes.capture.grouped import Groups, differs
from netprof.probes.capture.packets import Bool, Int64, Packets, Rows, UInt64, joined, number, wide_number
from netprof.probes.capture.segments import Segments
from netprof.schema import TCP

WINDOW_NS = 100_000_000
"""How much later the same packet may pass again: as long as a queue holds it, and less than TCP waits to send again."""
_MOMENT_NS = 50_000
"""Within it nothing is sent again: no answer can have come from the other end of a link, and been missed."""
_MOST = 1 << 17
"""Packets that are remembered from one block to the next."""
_NONE = -1


@dataclass(frozen=True, eq=False)
class Sightings(Rows):
    """Packets as captured: who they are, of which stream, when and where; `numbered`: their sender numbers each."""

    identity: UInt64
    stream: Int64
    time_ns: Int64
    place: Int64
    numbered: Bool


class RecentPackets:
    """Remembers the packets of the last moments, and which senders number theirs."""

    def __init__(self) -> None:
        none = np.zeros(0, np.int64)
        self.sightings = Sightings(none.view(np.uint64), none, none, none, none > 0)
        self._identifier = none  # by stream: the first that is not 0; _NONE: none yet
        self._numbered = none > 0  # by stream: whether there was another

    def new(self, seen: Sightings, identifier: Int64) -> Bool:
        """Say which packets of a block are in the capture for the first time; `numbered` is not known yet."""
        self._learn(seen.stream, identifier)
        seen = Sightings(
            seen.identity, seen.stream, seen.time_ns, seen.place, self._numbered[seen.stream] & (identifier != 0)
        )
        everything, before = joined([self.sightings, seen]), len(self.sightings.stream)
        first = np.ones(len(everything.stream), np.bool_)
        rows = np.flatnonzero(_repeated(everything.identity))
        if len(rows):
            first[rows] = _first_sightings(everything.where(rows))
        if len(seen.stream):
            late = everything.time_ns > int(seen.time_ns.max()) - WINDOW_NS
            self.sightings = everything.where(np.flatnonzero(late)[-_MOST:])
        return first[before:]

    def _learn(self, stream: Int64, identifier: Int64) -> None:
        more = max(0, int(stream.max(initial=_NONE)) + 1 - len(self._identifier))
        self._identifier = np.append(self._identifier, np.full(more, _NONE))
        self._numbered = np.append(self._numbered, np.zeros(more, np.bool_))
        rows = np.flatnonzero((identifier != 0) & ~self._numbered[stream])
        fresh = rows[self._identifier[stream[rows]] == _NONE][::-1]
        self._identifier[stream[fresh]] = identifier[fresh]
        changed = rows[self._identifier[stream[rows]] != identifier[rows]]
        self._numbered[stream[changed]] = True


def _repeated(identity: UInt64) -> Bool:
    """Say which values are there more than once."""
    ordered = np.sort(identity)
    several = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(several):
        return np.zeros(len(identity), np.bool_)
    place = np.minimum(np.searchsorted(several, identity), len(several) - 1)
    return np.asarray(several[place] == identity)


def _first_sightings(seen: Sightings) -> Bool:
    """Say which of some packets, in the order of the file, are no copies of those before them."""
    order = np.lexsort((np.arange(len(seen.stream)), seen.stream, seen.identity))
    seen = seen.where(order)
    chain = np.cumsum(differs(seen.identity, seen.stream) | (_steps(seen.time_ns) > WINDOW_NS), dtype=np.int64)
    copy, turn = _turns(chain, seen)
    chains = Groups(chain)
    before = chains.before(chains.running_maxima(turn), np.zeros(len(chains.starts), np.int64))
    first = np.zeros(len(order), np.bool_)
    first[order] = ~copy & (turn > before)
    return first


def _turns(chain: Int64, seen: Sightings) -> tuple[Bool, Int64]:
    """Say which packets are copies of one at the same place, and for the others the how manieth time each passes there.

    `chain` numbers the packets that are alike.
    """
    order = np.lexsort((np.arange(len(chain)), seen.place, chain))
    fresh = differs(chain[order], seen.place[order])
    apart = np.where(seen.numbered[order], WINDOW_NS, _MOMENT_NS)
    is_copy = ~fresh & (_steps(seen.time_ns[order]) <= apart)
    copy, turn = np.zeros(len(chain), np.bool_), np.zeros(len(chain), np.int64)
    copy[order] = is_copy
    turn[order] = Groups(np.cumsum(fresh, dtype=np.int64)).running_sums((~is_copy).astype(np.int64))
    return copy, turn


def _steps(time_ns: Int64) -> Int64:
    """Return how far each time is from the one before."""
    return np.asarray(np.abs(np.diff(time_ns, prepend=time_ns[:1])))


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_WINDOW_AT = 14  # in TCP's header
_FIXED = 20  # bytes of it before the options


def mixed(hashes: UInt64, value: Int64 | UInt64) -> UInt64:
    """Return hashes with one more value in each."""
    hashes = (hashes ^ value.view(np.uint64)) * _GOLDEN
    return np.asarray(hashes ^ (hashes >> np.uint64(29)))


def identities(packets: Packets, segments: Segments, ends: UInt64) -> UInt64:
    """Return for each segment a hash of its headers; `ends` is one of the two ends and the way between them.

    IP's identifier, every number of the transport and its options are in it. What a hop may change is not (time to
    live, marks of congestion), nor what offloads leave to the device (checksums).
    """
    is_tcp = segments.protocol == TCP
    begin = packets.at[segments.packet]
    after = begin + segments.header_bytes
    end = begin + packets.captured[segments.packet]
    fixed = after - segments.option_bytes - _FIXED
    window = np.where(is_tcp, number(packets.data, fixed + _WINDOW_AT, 2), 0)
    kind = segments.flags | segments.opcode << 8 | segments.option_bytes << 16
    hashes = mixed(ends, segments.sequence << 32 | segments.acknowledged)
    hashes = mixed(hashes, segments.payload << 32 | segments.identifier << 16 | window)
    # The last 16 bytes of TCP's options have its time stamps, or the newest blocks that the receiver holds.
    at = np.where(is_tcp, after - np.minimum(segments.option_bytes, 16), after)
    size = np.where(is_tcp, after, after + 8) - at
    for _ in range(2):
        hashes = mixed(hashes, _word(packets, at, np.minimum(size, end - at)))
        at, size = at + 8, size - 8
    return mixed(hashes, kind)


def _word(packets: Packets, at: Int64, size: Int64) -> UInt64:
    """Return the numbers of the first `size` bytes from each place on, of 8 at most; without any, 0."""
    unwanted = (64 - 8 * np.clip(size, 1, 8)).astype(np.uint64)
    return np.where(size > 0, wide_number(packets.data, at) >> unwanted, np.uint64(0))


_HELD_NS = 10_000_000
"""How much later bytes pass the next device: TCP keeps no more in a queue below it, and waits longer to send again."""


class LastAdvances:
    """Remembers of every stream where and when it last went further."""

    def __init__(self) -> None:
        self._place = self._time_ns = np.zeros(0, np.int64)

    def grow(self, streams: int) -> None:
        """Make room for so many streams."""
        more = np.full(streams - len(self._place), _NONE)
        self._place, self._time_ns = np.append(self._place, more), np.append(self._time_ns, more)

    def new(self, groups: Groups, time_ns: Int64, place: Int64, advanced: Bool) -> Bool:
        """Say which packets, in `groups` by stream, are no bytes that just passed somewhere else.

        Those that have `advanced` let their stream go further.
        """
        newest = groups.running_maxima(np.where(advanced, np.arange(groups.rows), _NONE))
        inside = newest >= groups.spread(groups.starts)
        at, when = (
            np.where(inside, values[newest], groups.spread(known[groups.keys]))
            for values, known in ((place, self._place), (time_ns, self._time_ns))
        )
        last = groups.last_where(advanced)
        went = last >= 0
        self._place[groups.keys[went]], self._time_ns[groups.keys[went]] = place[last[went]], time_ns[last[went]]
        return np.asarray((at == _NONE) | (at == place) | (np.abs(time_ns - when) > _HELD_NS))
