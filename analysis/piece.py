"""A piece of a recording's time: long recordings are concluded from piece by piece."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Bool, Int64
from netprof.analysis.tables.intervals import Intervals, interval

_ALWAYS, _NEVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class Piece:
    """What begins in [begin_ns, end_ns) is of this piece, wherever it ends; what is seen around it is of others.

    So every iteration, collective and packet of a recording is of one piece. Rows from a little before until well after
    are in sight: all that begins in a piece is seen to its end.
    """

    begin_ns: int = _ALWAYS
    end_ns: int = _NEVER

    @property
    def is_first(self) -> bool:
        """Whether the recording begins in it."""
        return self.begin_ns == _ALWAYS

    @property
    def is_last(self) -> bool:
        """Whether the recording ends in it."""
        return self.end_ns == _NEVER

    @property
    def is_all(self) -> bool:
        """Whether it is the whole recording."""
        return self.is_first and self.is_last

    @property
    def time(self) -> Intervals:
        """The piece as time."""
        return interval(self.begin_ns, self.end_ns)

    def owns(self, begin_ns: Int64) -> Bool:
        """Return which of some events are of this piece, by when they begin."""
        return np.asarray((begin_ns >= self.begin_ns) & (begin_ns < self.end_ns))


ALL = Piece()
"""The whole recording."""
