"""RoCE by packet sequence number: what is new, what is sent again, and what its headers report of congestion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.probes.capture import bth
from netprof.probes.capture.grouped import LARGEST, Groups, signed
from netprof.probes.capture.packets import Bool, Int64
from netprof.probes.capture.segments import Segments
from netprof.probes.capture.wire_rows import Amounts

_BITS = 24
_FARTHEST = 1 << 18
"""Packets that are on their way at once, at most: a gigabyte of the largest. What is further away is of another use."""
_NONE = -1
_CONGESTED = 3  # in both bits of ECN

EVENTS = ("messages", "ecn_marked_packets", "cnp_packets", "resent_packets", "negative_acknowledgements")
"""What is counted of the packets to a queue pair, beside their bytes."""


@dataclass(frozen=True, eq=False)
class _Numbered:
    """Rows of packets that have numbers of their own, by the key of their numbers and then by time.

    `steps` is how far each number is from the one before. `runs` end where a queue pair is used again: at a number that
    is too far away to be one of the same use.
    """

    rows: Int64
    groups: Groups
    runs: Groups
    begins_anew: Bool
    steps: Int64


class RoceSequences:
    """Where the packets to every queue pair stand: those that are numbered by their sender, and the responses."""

    def __init__(self) -> None:
        # By stream, twice, plus one for responses: the furthest number and its operation; _NONE: nothing was seen.
        self._newest = self._operation = np.zeros(0, np.int64)

    def grow(self, streams: int) -> None:
        """Make room for `streams` streams."""
        more = np.full(2 * streams - len(self._newest), _NONE)
        self._newest, self._operation = np.append(self._newest, more), np.append(self._operation, more)

    def account(self, stream: Int64, segments: Segments, length: Int64) -> tuple[Amounts, dict[str, Int64], Int64]:
        """Return what each packet adds to its stream, for each of EVENTS whether it is one, and how many are missing.

        Those passed before it and are not captured, as numbers show; how much they carried is unknown.
        """
        again, missing = self._seen_before(stream, segments)
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
        return amounts, {name: event.astype(np.int64) for name, event in zip(EVENTS, events, strict=True)}, missing

    def _seen_before(self, stream: Int64, segments: Segments) -> tuple[Bool, Int64]:
        """Return which packets are sent again, and how many are missing before each of the others."""
        again, missing = np.zeros(len(stream), np.bool_), np.zeros(len(stream), np.int64)
        numbered = self._numbered(stream, segments)
        if numbered is None:
            return again, missing
        rows, groups, runs = numbered.rows, numbered.groups, numbered.runs
        place = runs.running_sums(np.where(numbered.begins_anew, 1, numbered.steps))
        reached = runs.running_maxima(np.clip(place, 0, LARGEST))
        before = runs.before(reached, np.zeros(len(runs.starts), np.int64))
        again[rows] = place <= before
        former, newest = self._operations(numbered, segments.opcode[rows], place > before)
        counts = (former != _NONE) & (place > before) & bth.is_next(former, segments.opcode[rows])
        missing[rows] = np.where(counts, place - before - 1, 0)
        last = groups.ends - 1
        self._newest[groups.keys] = (segments.sequence[rows] - place + reached)[last] & ((1 << _BITS) - 1)
        self._operation[groups.keys] = newest[last]
        return again, missing

    def _numbered(self, stream: Int64, segments: Segments) -> _Numbered | None:
        rows = np.flatnonzero(bth.is_numbered(segments.opcode))
        if not len(rows):
            return None
        keys = stream[rows] * 2 + bth.is_response(segments.opcode[rows])
        order = np.argsort(keys, kind="stable")
        rows, groups = rows[order], Groups(keys[order])
        sequence, newest = segments.sequence[rows], self._newest[groups.keys]
        base = np.where(newest != _NONE, newest, sequence[groups.starts] - 1)
        steps = signed(sequence - groups.before(sequence, base), _BITS)
        begins_anew = np.abs(steps) > _FARTHEST
        fresh = begins_anew.copy()
        fresh[groups.starts] = True
        return _Numbered(rows, groups, Groups(np.cumsum(fresh, dtype=np.int64)), begins_anew, steps)

    def _operations(self, numbered: _Numbered, opcode: Int64, advanced: Bool) -> tuple[Int64, Int64]:
        """Return the operation that had gone furthest before each packet, and with it; _NONE where there was none."""
        runs, groups = numbered.runs, numbered.groups
        known = groups.spread(self._operation[groups.keys])
        at_first = np.where(numbered.begins_anew[runs.starts], _NONE, known[runs.starts])
        furthest = runs.running_maxima(np.where(advanced, np.arange(runs.rows), _NONE))
        newest = np.where(furthest >= runs.spread(runs.starts), opcode[furthest], runs.spread(at_first))
        return runs.before(newest, at_first), newest
