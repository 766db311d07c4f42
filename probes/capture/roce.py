"""RoCE by packet sequence number: what is new, what is sent again, and what its headers report of congestion."""

from __future__ import annotations

import numpy as np

from netprof.probes.capture import bth
from netprof.probes.capture.amounts import Amounts
from netprof.probes.capture.grouped import LARGEST, Groups, signed
from netprof.probes.capture.packets import Int64
from netprof.probes.capture.segments import Segments

_BITS = 24
_NONE = -1
_CONGESTED = 3  # in both bits of ECN

EVENTS = ("messages", "ecn_marked_packets", "cnp_packets", "resent_packets", "negative_acknowledgements")
"""What is counted of the packets to a queue pair, beside their bytes."""


class RoceSequences:
    """Where the packets to every queue pair stand: those that are numbered by their sender, and the responses."""

    def __init__(self) -> None:
        self._newest = np.zeros(0, np.int64)  # by stream, twice, plus one for responses; _NONE: nothing was seen

    def grow(self, streams: int) -> None:
        """Make room for so many streams."""
        self._newest = np.append(self._newest, np.full(2 * streams - len(self._newest), _NONE))

    def account(self, stream: Int64, segments: Segments, length: Int64) -> tuple[Amounts, dict[str, Int64]]:
        """Return what each packet adds to its stream, and for each of EVENTS whether it is one."""
        again = self._seen_before(stream, segments)
        zeros = np.zeros_like(length)
        amounts = Amounts(
            payload=np.where(again, 0, segments.payload),
            retransmitted=np.where(again, segments.payload, 0),
            wire=length,
            packets=np.ones_like(length),
            advanced=bth.is_numbered(segments.opcode) & ~again,
            position=zeros - 1,
            unseen=zeros,
        )
        events = (
            bth.ends_message(segments.opcode) & ~again,
            segments.ecn == _CONGESTED,
            segments.opcode == bth.CNP,
            again,
            bth.is_negative(segments.syndrome),
        )
        return amounts, {name: event.astype(np.int64) for name, event in zip(EVENTS, events, strict=True)}

    def _seen_before(self, stream: Int64, segments: Segments) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        found = np.zeros(len(stream), np.bool_)
        rows = np.flatnonzero(bth.is_numbered(segments.opcode))
        if not len(rows):
            return found
        keys = stream[rows] * 2 + bth.is_response(segments.opcode[rows])
        order = np.argsort(keys, kind="stable")
        groups, sequence = Groups(keys[order]), segments.sequence[rows[order]]
        newest = self._newest[groups.keys]
        base = np.where(newest != _NONE, newest, sequence[groups.starts] - 1)
        place = groups.running_sums(signed(sequence - groups.before(sequence, base), _BITS))
        reached = groups.running_maxima(np.clip(place, 0, LARGEST))
        found[rows[order]] = place <= groups.before(reached, np.zeros(len(base), np.int64))
        self._newest[groups.keys] = (base + reached[groups.ends - 1]) & ((1 << _BITS) - 1)
        return found
