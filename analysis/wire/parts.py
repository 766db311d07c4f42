"""Into how many parts that is cut which is spread over time: each takes memory for as long as it is analyzed."""

from __future__ import annotations

import numpy as np

from netprof.analysis.tables.columns import Int64


def fair_parts(wanted: Int64, most: int) -> Int64:
    """Return how many parts each gets of those that it wants: one at least, and all together `most` or one each.

    Where that is not enough, those get less that want many: none gets less than another one that wants less.
    """
    wanted = np.maximum(wanted, 1)  # a damaged row may end before it begins
    low, high = 1, max(1, most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if int(np.minimum(wanted, middle).sum()) <= most else (low, middle - 1)
    return np.minimum(wanted, low)
