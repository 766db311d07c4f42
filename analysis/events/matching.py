"""Two ranks' views of one communicator laid side by side: which collective of the one is which of the other."""

from __future__ import annotations

import numpy as np

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.roots import has_root, may_be_one
from netprof.analysis.tables.columns import UNKNOWN, Bool, Float64, Int64
from netprof.schema import CollectiveKind

_BLOCK = 256
_FARTHEST = 8  # collectives by which two ranks' sequences may be apart: what was under way when the recording began
_MOST = 0.95
"""Share of a block that has to fit with what fitted before it, else everything near is tried."""
_CLEARLY = 4.0
"""How many times the usual time between two collectives two are apart that are not the same one, or one was lost."""
_AROUND = 16
"""Collectives during which one rank stays behind another by about as much."""
_APART = 0.1
"""What a nanosecond by which it is behind counts, where one of change counts 1."""


def partners(mine: Collectives, theirs: Collectives) -> Int64:
    """Return for each collective of a rank the row of the same one of another rank; -1 where that was not seen.

    Both are in the order in which they were posted. The same collective has the same kind, root and, but for an
    all-to-all in which each rank may send another amount, the same size. Where both say which of their communicator's
    sequence it is, that tells. Else the k-th of one is the k-th of the other, but for what the begin of the recording,
    or a lost mark, took away from one of them: that shift is found block by block. Then nobody who receives is done
    before those who send have begun, and both are done at nearly the same time, or the one always about as long after
    the other (data wait before a narrow link): several collectives of one size may be under way at once.
    """
    if _is_numbered(mine) and _is_numbered(theirs):
        return _by_sequence(mine, theirs)
    return _Match(mine, theirs).rows


def _is_numbered(collectives: Collectives) -> bool:
    """Tell whether a communicator's sequence tells its collectives apart: a later one may have its address."""
    sequence = collectives.sequence
    return bool((sequence != UNKNOWN).all() and (np.diff(sequence) > 0).all())


def _by_sequence(mine: Collectives, theirs: Collectives) -> Int64:
    if len(theirs) == 0:
        return np.full(len(mine), UNKNOWN)
    order = np.argsort(theirs.sequence)
    row = order[np.minimum(np.searchsorted(theirs.sequence[order], mine.sequence), len(order) - 1)]
    same = (theirs.sequence[row] == mine.sequence) & _are_alike(mine, theirs.where(row))
    return np.where(same, row, UNKNOWN)


def _are_alike(mine: Collectives, theirs: Collectives) -> Bool:
    """Return row by row whether two can be one by kind, size and root."""
    alike = (mine.bytes == theirs.bytes) | (mine.kind == CollectiveKind.ALL_TO_ALL)
    alike &= (mine.root == theirs.root) | (mine.root == UNKNOWN) | (theirs.root == UNKNOWN)
    return np.asarray(alike & (mine.kind == theirs.kind))


class _Match:
    def __init__(self, mine: Collectives, theirs: Collectives) -> None:
        self._mine, self._other = mine, theirs
        self._shift: int | None = None
        self.rows = np.full(len(mine), -1)
        if len(theirs) == 0:
            return
        usual_ns = float(np.median(np.diff(np.sort(theirs.end_ns)))) + 1 if len(theirs) > 1 else np.inf
        self._unlike_ns = _CLEARLY * usual_ns
        self._cost = np.full(len(mine), np.inf)
        for low in range(0, len(mine), _BLOCK):
            rows = np.arange(low, min(low + _BLOCK, len(mine)))
            self._pair(rows, *self._candidates(rows))
        self._once_each()

    def _candidates(self, rows: Int64) -> tuple[list[int], Bool]:
        """Return the shifts next to the last one, or if some do not fit with those, all around the nearest in time.

        With them which of the rows fit, shape (shifts, rows).
        """
        if self._shift is not None:
            near = [self._shift, self._shift - 1, self._shift + 1]
            fits = self._fit(rows, near)
            if fits.sum(axis=1).max() >= _MOST * len(rows):
                return near, fits
        nearest = np.searchsorted(self._other.end_ns, self._mine.end_ns[rows])  # ends are in nearly the same order
        middle = int(np.median(nearest - rows))
        shifts = sorted({middle + step for step in range(-_FARTHEST, _FARTHEST + 1)} | {self._shift or 0})
        return shifts, self._fit(rows, shifts)

    def _pair(self, rows: Int64, shifts: list[int], fits: Bool) -> None:
        """Pair a block with the shift whose ends are most alike; in two parts where that is much better."""
        apart_ns = self._apart_ns(rows, shifts, fits)
        through = np.cumsum(apart_ns, axis=1)
        whole = int(np.argmin(through[:, -1]))
        if len(rows) > 1:
            parted = through[:, :-1].min(axis=0) + (through[:, -1:] - through[:, :-1]).min(axis=0)
            at = int(np.argmin(parted))
            if parted[at] + self._unlike_ns < through[whole, -1]:
                self._pair(rows[: at + 1], shifts, fits[:, : at + 1])
                self._pair(rows[at + 1 :], shifts, fits[:, at + 1 :])
                return
        paired = rows[fits[whole]]
        self.rows[paired] = paired + shifts[whole]
        self._cost[rows] = apart_ns[whole]
        self._shift = shifts[whole] if len(paired) else self._shift

    def _apart_ns(self, rows: Int64, shifts: list[int], fits: Bool) -> Float64:
        """Return how unlike the ends are, at most as for what does not fit; shape (shifts, rows).

        With a root some are done long before others begin, now these and now those: only how long is between counts.
        """
        mine, index = self._mine, np.where(fits, rows + np.array(shifts, np.int64)[:, None], 0)
        end_ns, begin_ns = self._other.end_ns[index], self._other.begin_ns[index]
        rooted = has_root(mine.kind[rows])
        later_ns = (mine.end_ns[rows] - end_ns).astype(np.float64)
        apart_ns = np.abs(later_ns - _usually(later_ns, fits & ~rooted)) + _APART * np.abs(later_ns)
        between_ns = np.maximum(np.maximum(begin_ns - mine.end_ns[rows], mine.begin_ns[rows] - end_ns), 0)
        apart_ns = np.where(rooted, _APART * between_ns, apart_ns)
        return np.where(fits, np.minimum(apart_ns, self._unlike_ns), self._unlike_ns)

    def _fit(self, rows: Int64, shifts: list[int]) -> Bool:
        """Return which of `rows` can be the collective so much farther of the other rank; shape (shifts, rows)."""
        index = rows + np.array(shifts, np.int64)[:, None]
        inside = (index >= 0) & (index < len(self._other))
        theirs = self._other.where(np.clip(index, 0, len(self._other) - 1))
        mine = self._mine.where(rows)
        return np.asarray(inside & _are_alike(mine, theirs) & may_be_one(mine, theirs))

    def _once_each(self) -> None:
        """Where the shift changes, two may have found the same partner: it is the nearer one's."""
        order = np.lexsort((self._cost, self.rows))
        again = np.append(False, np.diff(self.rows[order]) == 0) if len(order) else np.zeros(0, bool)
        self.rows[order[again]] = -1


def _usually(later_ns: Float64, fits: Bool) -> Float64:
    """Return the median of those around each in its row, that fit; infinite without any. Shapes as given."""
    count = later_ns.shape[1]
    room = ((0, 0), (0, -count % _AROUND))
    known = np.pad(np.where(fits, later_ns, np.inf), room, constant_values=np.inf).reshape(len(fits), -1, _AROUND)
    known.sort(axis=2)
    number = np.isfinite(known).sum(axis=2, keepdims=True)
    middle = (np.take_along_axis(known, np.maximum(at, 0) // 2, axis=2) for at in (number - 1, number))
    median = sum(middle, start=np.zeros(1)) / 2
    return np.asarray(np.repeat(median, _AROUND, axis=2).reshape(len(fits), -1)[:, :count])
