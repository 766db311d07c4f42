"""How many bytes a collective's elements take, as far as what was read of the job's registers can be believed."""

from __future__ import annotations

import numpy as np

from netprof.analysis.tables.columns import UNKNOWN, Int64

MOST_BYTES = 1 << 44
"""The most that is believed (16 TiB): no host holds such a buffer. Half a million of them add up in 64 bits."""


def bytes_of(elements: Int64, element_bytes: Int64 | int = 1) -> Int64:
    """Return elements times the bytes of one; UNKNOWN where either is negative, or it is more than MOST_BYTES."""
    about = elements.astype(np.float64) * element_bytes  # whole numbers may not hold it
    return np.where((elements >= 0) & (about >= 0) & (about <= MOST_BYTES), elements * element_bytes, UNKNOWN)
