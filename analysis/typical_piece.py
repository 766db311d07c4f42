"""Which piece of a long recording is most like all of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netprof.analysis.events.iterations import IterationTimes
from netprof.analysis.events.typical import durations
from netprof.analysis.piece import Piece

_ENOUGH = 0.5
"""Of the iterations that a piece usually has: the first and the last one may have few."""


def typical_piece(pieces: Sequence[Piece], times: IterationTimes) -> Piece:
    """Return the piece whose typical iteration is most like that of all `times`, in how long it takes and waits.

    Without iterations, the piece in the middle.
    """
    every = durations(times)
    if every is None:
        return pieces[len(pieces) // 2]
    begin_ns = times.begin_ns.astype(np.int64)
    own = [durations(times.where(piece.owns(begin_ns))) for piece in pieces]
    usual = np.median([found.count for found in own if found is not None])

    def unlike(number: int) -> float:
        found = own[number]
        if found is None or found.count < _ENOUGH * usual:
            return np.inf
        waits_s = found.phases.exposed_communication - every.phases.exposed_communication
        return abs(found.phases.total - every.phases.total) + abs(waits_s)

    return pieces[min(range(len(pieces)), key=unlike)]
