"""Running sums and maxima within groups of rows that lie together."""

from __future__ import annotations

import numpy as np

from netprof.probes.capture.packets import Bool, Int64, UInt64

LARGEST = 1 << 40
"""Values beyond this are as good as this one: no two positions of one block are so far apart."""


def differs(*columns: Int64 | UInt64) -> Bool:
    """Say which rows are not the same as the one before; the first is not."""
    changes = np.zeros(len(columns[0]), np.bool_)
    changes[:1] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return changes


class Groups:
    """Rows of one key each, `keys` ascending or at least together."""

    def __init__(self, keys: Int64) -> None:
        self.rows = len(keys)
        self.starts = np.flatnonzero(differs(keys))
        self.keys = keys[self.starts]
        sizes = np.diff(np.append(self.starts, len(keys)))
        self.ends = self.starts + sizes
        self.of_row = np.repeat(np.arange(len(self.starts)), sizes)

    def spread(self, values: Int64) -> Int64:
        """Return for each row the value of its group."""
        return np.asarray(values[self.of_row])

    def sums(self, values: Int64) -> Int64:
        """Return the sum of each group."""
        return np.add.reduceat(values, self.starts) if self.rows else np.zeros(0, np.int64)

    def running_sums(self, values: Int64) -> Int64:
        """Return for each row the sum of its group up to and with it."""
        through = np.cumsum(values)
        return through - self.spread(through[self.starts] - values[self.starts])

    def running_maxima(self, values: Int64) -> Int64:
        """Return for each row the largest value of its group up to and with it, within +-LARGEST."""
        offset = self.of_row * (2 * LARGEST + 1)
        return np.maximum.accumulate(np.clip(values, -LARGEST, LARGEST) + offset) - offset

    def before(self, values: Int64, at_first: Int64) -> Int64:
        """Return for each row the value of the row before; of the first of a group what `at_first` says for it."""
        before = np.empty_like(values)
        before[1:] = values[:-1]
        before[self.starts] = at_first
        return before

    def first_where(self, mask: Bool) -> Int64:
        """Return the first row of each group that a mask selects; where it selects none, the number of rows."""
        rows = np.where(mask, np.arange(self.rows), self.rows)
        return np.minimum.reduceat(rows, self.starts) if self.rows else np.zeros(0, np.int64)

    def last_where(self, mask: Bool) -> Int64:
        """Return the last row of each group that a mask selects, -1 where it selects none."""
        rows = np.where(mask, np.arange(self.rows), -1)
        return np.maximum.reduceat(rows, self.starts) if self.rows else np.zeros(0, np.int64)


def signed(difference: Int64, bits: int) -> Int64:
    """Return a difference of numbers that begin anew after so many bits as a signed one."""
    half = 1 << (bits - 1)
    return ((difference + half) & ((1 << bits) - 1)) - half
