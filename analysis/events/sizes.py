"""How many bytes a collective's elements take, as far as what was read of the job's registers can be believed."""

from __future__ import annotations

import numpy as np

from netprof.analysis.tables.columns import UNKNOWN, Int64

MOST_BYTES = 1 << 44
"""More than any host's memory holds (16 TiB): no buffer is that large, and sums of so many bytes stay exact."""


def bytes_of(elements: Int64, element_bytes: Int64 | int = 1) -> Int64:
    """Return elements times the bytes of one; UNKNOWN where either is negative, or no buffer is as large."""
    about = elements.astype(np.float64) * element_bytes  # whole numbers may not hold it
    return np.where((elements >= 0) & (about >= 0) & (about <= MOST_BYTES), elements * element_bytes, UNKNOWN)
