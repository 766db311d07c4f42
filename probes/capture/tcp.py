"""TCP by sequence number: the rules of `probes/flow/flow_sequence.h`, for a block of packets at once.

A direction is counted twice. As its sender counts it (transmit), what is jumped over was sent and not captured, or lost
on the way to where the capture was taken: it counts at once, and if it comes later it is sent again. As its receiver
does (receive), what is jumped over is new now and on the link when it comes: the kernel's program, which knows what TCP
has taken, counts it as new when it comes. All agree on how many bytes are new.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from netprof.probes.capture.grouped import LARGEST, Groups, signed
from netprof.probes.capture.packets import Bool, Int64
from netprof.probes.capture.segments import ACK, FIN, RST, SYN, Segments
from netprof.probes.capture.wire_rows import Amounts

_FARTHEST = 64 << 20  # MAX_HEALED_BYTES: a jump over more is none
_JUMBO_BYTES = 9216
_USUAL_SEGMENT = 1460  # of Ethernet with its usual 1500 bytes
_NONE = -1
_WRAP = 0xFFFFFFFF


_UNKNOWN = {"_next_sequence": _NONE, "_acknowledged": _NONE, "_mss": 0}
"""What is known of a stream at first, by the array that has it: nothing was seen, nor acknowledged, nor said."""


@dataclass(frozen=True, eq=False)
class _Places:
    """Where segments begin and end in their streams, and where those stood `before`, from `base` on (by group)."""

    base: Int64
    begin: Int64
    end: Int64
    before: Int64


class TcpSequences:
    """Where every TCP stream stands.

    `guessed` counts buffers that were larger than any packet of the link, and of which no handshake says how many
    packets they were.
    """

    def __init__(self) -> None:
        self._next_sequence = self._acknowledged = self._mss = np.zeros(0, np.int64)  # by stream
        self.guessed = 0

    def grow(self, streams: int) -> None:
        """Make room for `streams` streams."""
        more = streams - len(self._mss)
        for name, unknown in _UNKNOWN.items():
            setattr(self, name, np.append(getattr(self, name), np.full(more, unknown)))

    def account(self, groups: Groups, segments: Segments, length: Int64) -> tuple[Amounts, Amounts]:
        """Return what each segment adds as its sender counts it, and as its receiver does.

        The `groups` are streams, `length` bytes on the link.
        """
        self._learn_sizes(groups, segments)
        payload = np.where(segments.flags & RST > 0, 0, segments.payload)  # a reason for people, not the stream's
        matters = (payload > 0) | (segments.flags & (SYN | FIN) > 0)
        places = self._places(groups, segments, payload, matters)
        gap, ahead = (np.where(matters, at - places.before, 0) for at in (places.begin, places.end))
        unseen = np.where(gap <= _FARTHEST, np.maximum(gap, 0), 0)
        again = np.where(ahead <= 0, payload, np.where(gap <= 0, payload - ahead, 0))
        position = groups.spread(places.base) + np.maximum(places.before, np.where(matters, places.end, 0))
        self._remember(groups, segments, position, matters)
        size = self._segment_bytes(groups, segments)
        packets = self._packets(groups, payload, size)
        received = Amounts(
            payload=payload - again + unseen,
            retransmitted=again,
            wire=length + (packets - 1) * segments.header_bytes,
            packets=packets,
            advanced=ahead > 0,
            position=position & _WRAP,
            unseen=np.zeros_like(unseen),
        )
        more = -(-unseen // size)
        wire = received.wire + unseen + more * segments.header_bytes
        return replace(received, wire=wire, packets=packets + more, unseen=unseen), received

    def tails(self) -> tuple[Int64, Int64]:
        """Return streams whose last bytes were acknowledged and not captured, and how many those are."""
        known = (self._acknowledged != _NONE) & (self._next_sequence != _NONE)
        missing = signed(self._acknowledged - self._next_sequence, 32)
        # One more than there is may be the end of the connection (FIN), which takes a number and has no byte.
        streams = np.flatnonzero(known & (missing > 1) & (missing <= _FARTHEST))
        return streams, missing[streams]

    def _places(self, groups: Groups, segments: Segments, payload: Int64, matters: Bool) -> _Places:
        """Return where the segments lie, without wrapping around; a stream begins with the first that matters."""
        sequence = (segments.sequence + (segments.flags & SYN > 0)) & _WRAP
        known = self._next_sequence[groups.keys]
        first = np.minimum(groups.first_where(matters), groups.rows - 1)
        base = np.where(known != _NONE, known, sequence[first])
        begin = groups.running_sums(signed(sequence - groups.before(sequence, base), 32))
        end = begin + payload
        reached = groups.running_maxima(np.where(matters, end, -LARGEST))
        before = np.maximum(groups.before(reached, np.zeros(len(base), np.int64)), 0)
        return _Places(base, begin, end, before)

    def _remember(self, groups: Groups, segments: Segments, position: Int64, matters: Bool) -> None:
        seen = np.logical_or.reduceat(matters, groups.starts) | (self._next_sequence[groups.keys] != _NONE)
        self._next_sequence[groups.keys[seen]] = position[groups.ends[seen] - 1] & _WRAP
        last = groups.last_where(segments.flags & (ACK | RST) == ACK)
        acknowledges = last >= 0
        self._acknowledged[groups.keys[acknowledges] ^ 1] = segments.acknowledged[last[acknowledges]]

    def _learn_sizes(self, groups: Groups, segments: Segments) -> None:
        for row in np.flatnonzero(segments.mss > 0).tolist():
            self._mss[groups.keys[groups.of_row[row]]] = segments.mss[row]

    def _segment_bytes(self, groups: Groups, segments: Segments) -> Int64:
        """Return the most payload of a packet of the link, by what both sides said as they connected."""
        agreed = self._agreed_mss(groups)
        known = groups.spread(np.where(agreed > 0, agreed, _USUAL_SEGMENT))
        return np.asarray(np.maximum(1, known - segments.option_bytes))

    def _agreed_mss(self, groups: Groups) -> Int64:
        near, far = self._mss[groups.keys], self._mss[groups.keys ^ 1]
        return np.asarray(np.where((near > 0) & (far > 0), np.minimum(near, far), np.maximum(near, far)))

    def _packets(self, groups: Groups, payload: Int64, size: Int64) -> Int64:
        """Return how many packets of the link each one is: offloads cut and merge them beyond what a capture sees."""
        guessed = groups.spread(self._agreed_mss(groups) == 0)
        several = (payload > size) & (~guessed | (payload > _JUMBO_BYTES))
        self.guessed += int((several & guessed).sum())
        return np.asarray(np.where(several, -(-payload // size), 1))
