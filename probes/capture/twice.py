"""Packets that a capture holds more than once: one that passed several devices, or a mirror of both ways.

They are told from what is sent again by IP's identifier: Linux numbers every packet of a connection anew, also one that
it sends again. Where the identifier says nothing, because it is 0 or ever the same (RFC 6864 allows that) or IPv6 has
none, the same headers on one device are the same packet only a moment later; on two devices, the n-th time on the one
is the n-th time on the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.probes.capture.grouped import Groups
from netprof.probes.capture.packets import Bool, Int64, Rows, UInt64, joined

WINDOW_NS = 100_000_000
"""How much later the same packet may pass again: as long as a queue holds it, and less than TCP waits to send again."""
_MOMENT_NS = 50_000
"""Within it nothing is sent again: no answer can have come from the other end of a link, and been missed."""
_MOST = 1 << 17
"""Packets that are remembered from one block to the next."""
_NONE = -1


@dataclass(frozen=True, eq=False)
class Sightings(Rows):
    """Packets as they were captured: who they are, of which stream, when and where. `told`: their identifier says."""

    identity: UInt64
    stream: Int64
    time_ns: Int64
    place: Int64
    told: Bool


class Memory:
    """Remembers the packets of the last moments, and which senders number theirs."""

    def __init__(self) -> None:
        none = np.zeros(0, np.int64)
        self.recent = Sightings(none.view(np.uint64), none, none, none, none > 0)
        self._identifier = none  # by stream: the first that is not 0; _NONE: none yet
        self._numbered = none > 0  # by stream: whether there was another

    def new(self, seen: Sightings, identifier: Int64) -> Bool:
        """Say which packets of a block are in the capture for the first time; `told` is not known yet."""
        self._learn(seen.stream, identifier)
        seen = Sightings(
            seen.identity, seen.stream, seen.time_ns, seen.place, self._numbered[seen.stream] & (identifier != 0)
        )
        everything, before = joined([self.recent, seen]), len(self.recent.stream)
        found = np.ones(len(everything.stream), np.bool_)
        rows = np.flatnonzero(_repeated(everything.identity))
        if len(rows):
            found[rows] = _first_sightings(everything.where(rows))
        if len(seen.stream):
            late = everything.time_ns > int(seen.time_ns.max()) - WINDOW_NS
            self.recent = everything.where(np.flatnonzero(late)[-_MOST:])
        return found[before:]

    def _learn(self, stream: Int64, identifier: Int64) -> None:
        more = max(0, int(stream.max(initial=_NONE)) + 1 - len(self._identifier))
        self._identifier = np.append(self._identifier, np.full(more, _NONE))
        self._numbered = np.append(self._numbered, np.zeros(more, np.bool_))
        rows = np.flatnonzero((identifier != 0) & ~self._numbered[stream])
        fresh = rows[self._identifier[stream[rows]] == _NONE][::-1]
        self._identifier[stream[fresh]] = identifier[fresh]
        other = rows[self._identifier[stream[rows]] != identifier[rows]]
        self._numbered[stream[other]] = True


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
    chain = np.cumsum(_differs(seen.identity, seen.stream) | (_steps(seen.time_ns) > WINDOW_NS), dtype=np.int64)
    copy, turn = _turns(chain, seen)
    chains = Groups(chain)
    before = chains.before(chains.running_maxima(turn), np.zeros(len(chains.starts), np.int64))
    found = np.zeros(len(order), np.bool_)
    found[order] = ~copy & (turn > before)
    return found


def _turns(chain: Int64, seen: Sightings) -> tuple[Bool, Int64]:
    """Say which packets are copies of one at the same place, and for the others the how manieth time each passes there.

    `chain` numbers the packets that are alike.
    """
    order = np.lexsort((np.arange(len(chain)), seen.place, chain))
    fresh = _differs(chain[order], seen.place[order])
    apart = np.where(seen.told[order], WINDOW_NS, _MOMENT_NS)
    is_copy = ~fresh & (_steps(seen.time_ns[order]) <= apart)
    copy, turn = np.zeros(len(chain), np.bool_), np.zeros(len(chain), np.int64)
    copy[order] = is_copy
    turn[order] = Groups(np.cumsum(fresh, dtype=np.int64)).running_sums((~is_copy).astype(np.int64))
    return copy, turn


def _differs(*columns: Int64 | UInt64 | Bool) -> Bool:
    """Say which rows are not the same as the one before; the first is not."""
    found = np.zeros(len(columns[0]), np.bool_)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def _steps(time_ns: Int64) -> Int64:
    """Return how far each time is from the one before."""
    return np.asarray(np.abs(np.diff(time_ns, prepend=time_ns[:1])))
