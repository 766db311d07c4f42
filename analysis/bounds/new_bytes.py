"""When the bytes of a step moved: how much until when, and where a step's last ones are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Columns, Float64, Int64, empty
from netprof.analysis.wire.bins import Bins

_STRAY = 0.005
"""Share of a step's bytes that may be of something else (a loss that is averaged, a heartbeat): its end is before."""


@dataclass(frozen=True, eq=False)
class NewBytes(Columns):
    """New bytes of one process in one direction, by the bins that hold any; ns, and bytes up to each bin's end."""

    first_ns: Int64
    last_ns: Int64
    through: Int64

    def before(self, row: Int64) -> Int64:
        """Return the bytes before some rows."""
        return np.append(0, self.through)[row]

    def rows_between(self, begin_ns: Int64, end_ns: Int64) -> tuple[Int64, Int64]:
        """Return the rows whose first packet is in [begin_ns, end_ns): the first, and the one after the last."""
        return np.searchsorted(self.first_ns, begin_ns, "left"), np.searchsorted(self.first_ns, end_ns, "left")

    def bytes_between(self, begin_ns: Int64, end_ns: Int64) -> Int64:
        """Return the bytes of those rows."""
        low, high = self.rows_between(begin_ns, end_ns)
        return self.before(high) - self.before(low)

    def last_before(self, at_ns: Int64) -> Int64:
        """Return the last packet before each instant, the instant itself where there is none."""
        row = np.searchsorted(self.first_ns, at_ns, "left") - 1
        return np.where(row >= 0, np.minimum(self.last_ns[np.maximum(row, 0)], at_ns), at_ns) if len(self) else at_ns

    def when(self, amount: Float64) -> Int64:
        """Return until when so many bytes had moved: the last packet of the bin in which they had."""
        row = np.minimum(np.searchsorted(self.through, amount, "left"), len(self) - 1)
        return self.last_ns[row]


@dataclass(frozen=True, eq=False)
class LastBytes:
    """When the last byte of each step passed, at the earliest and at the latest, and how many there were; ns."""

    earliest_ns: Int64
    latest_ns: Int64
    bytes: Int64


def moved(bins: Bins | None) -> NewBytes:
    """Return what moved; nothing for None."""
    if bins is None:
        return empty(NewBytes)
    bins = bins.where(bins.payload_bytes > 0)
    first = (bins.begin_ns + bins.bin_ns - bins.lead_ns).astype(np.int64)
    last = np.maximum(bins.begin_ns + bins.last_ns, first).astype(np.int64)
    return NewBytes(first, last, np.cumsum(bins.payload_bytes, dtype=np.int64))


def last_bytes(new_bytes: NewBytes, begin_ns: Int64, end_ns: Int64, quiet_ns: int) -> LastBytes:
    """Return where what moved in each of some windows ends, which are ascending and do not overlap.

    Nearly all of it has to have passed; what follows without a silence of `quiet_ns` may be of it too. Windows in which
    nothing moved end where they begin.
    """
    if len(new_bytes) == 0:
        return LastBytes(begin_ns, begin_ns, np.zeros(len(begin_ns), np.int64))
    low, high = new_bytes.rows_between(begin_ns, end_ns)
    before = new_bytes.before(low)
    total = new_bytes.before(high) - before
    last = np.maximum(high - 1, 0)
    nearly = np.minimum(np.searchsorted(new_bytes.through, before + (1 - _STRAY) * total, "left"), last)
    pauses = np.flatnonzero(np.append(new_bytes.first_ns[1:] - new_bytes.last_ns[:-1] > quiet_ns, True))
    stops = np.minimum(pauses[np.searchsorted(pauses, nearly, "left")], last)
    some = total > 0
    earliest, latest = new_bytes.last_ns[nearly], np.maximum.accumulate(new_bytes.last_ns)[stops]
    return LastBytes(np.where(some, earliest, begin_ns), np.where(some, latest, begin_ns), total)
