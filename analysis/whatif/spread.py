"""How sure a prediction is, by the recording's own spread: the bootstrap over its iterations."""

from __future__ import annotations

import numpy as np

from netprof.analysis.tables.columns import Float64

PERCENTILES = (5.0, 95.0)
_DRAWS = 400
_FEWEST = 4


def interval_of_mean(iterations: Float64) -> tuple[Float64, Float64] | None:
    """Return the 5th and the 95th percentile of the mean over iterations, (I, P) to (P,) each.

    As many iterations are drawn anew, with replacement, some hundred times; the draws are the same for all points and
    every time. None for fewer than four iterations, which tell no spread.
    """
    count = len(iterations)
    if count < _FEWEST:
        return None
    drawn = np.random.default_rng(0).integers(count, size=(_DRAWS, count))
    weight = np.zeros((_DRAWS, count))
    np.add.at(weight, (np.arange(_DRAWS)[:, None], drawn), 1.0 / count)
    low, high = np.percentile(weight @ iterations, PERCENTILES, axis=0)
    return low, high
