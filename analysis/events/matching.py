"""Two ranks' views of one communicator laid side by side: which collective of the one is which of the other."""

from __future__ import annotations

import numpy as np

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.tables.columns import Bool, Int64

_BLOCK = 256
_FARTHEST = 8  # collectives by which two ranks' sequences may be apart: what was under way when the recording began
_AS_GOOD = 0.95


def partners(mine: Collectives, other: Collectives) -> Int64:
    """Return for each collective of a rank the row of the same one of another rank; -1 where that was not seen.

    Both are in the order in which they were posted. The k-th of one is the k-th of the other, but for what the begin of
    the recording, or a lost mark, took away from one of them: that shift is found block by block. The same collective
    has the same kind and size, and neither rank is done with it before the other has begun.
    """
    found = np.full(len(mine), -1)
    taken = np.zeros(len(other), bool)
    shift: int | None = None
    for low in range(0, len(mine), _BLOCK):
        rows = np.arange(low, min(low + _BLOCK, len(mine)))
        while len(rows) and len(other):
            shift, fits = _best_shift(mine, other, rows, taken, shift)
            if not fits.any():
                break
            found[rows[fits]] = rows[fits] + shift
            taken[rows[fits] + shift] = True
            rows = rows[~fits]
    return found


def _best_shift(
    mine: Collectives, other: Collectives, rows: Int64, taken: Bool, before: int | None
) -> tuple[int, Bool]:
    """Return the shift with which most of `rows` fit, and which do; the one of the rows before them if all do.

    Of shifts that are nearly as good, that one is right with which the ranks are done at nearly the same time: several
    collectives of one size may be under way at once.
    """
    if before is not None and (fits := _fit(mine, other, rows, rows + before, taken)).all():
        return before, fits
    nearest = np.searchsorted(other.end_ns, mine.end_ns[rows])  # ends are in nearly the same order as posts
    middle = int(np.median(nearest - rows))
    tried = sorted({middle + near for near in range(-_FARTHEST, _FARTHEST + 1)} | {before or 0})
    fitting = {shift: _fit(mine, other, rows, rows + shift, taken) for shift in tried}
    most = max(int(fits.sum()) for fits in fitting.values())
    good = [shift for shift, fits in fitting.items() if fits.sum() >= max(1.0, _AS_GOOD * most)]
    if not good:
        return tried[0], fitting[tried[0]]
    best = min(good, key=lambda shift: _apart_ns(mine, other, rows[fitting[shift]], shift))
    return best, fitting[best]


def _apart_ns(mine: Collectives, other: Collectives, rows: Int64, shift: int) -> float:
    return float(np.median(np.abs(mine.end_ns[rows] - other.end_ns[rows + shift])))


def _fit(mine: Collectives, other: Collectives, rows: Int64, index: Int64, taken: Bool) -> Bool:
    """Return which of `rows` can be the collective at `index` of the other rank."""
    inside = (index >= 0) & (index < len(other))
    index = np.clip(index, 0, len(other) - 1)
    same = (mine.kind[rows] == other.kind[index]) & (mine.bytes[rows] == other.bytes[index])
    met = (mine.end_ns[rows] >= other.begin_ns[index]) & (other.end_ns[index] >= mine.begin_ns[rows])
    return np.asarray(inside & same & met & ~taken[index])
