"""How values are spread, kept in little room, so that those of many pieces of a recording can be put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Float64, Int64

_STEP = np.log(1.002)
"""The logarithm of a step's width: a value is known to 0.1 %."""


@dataclass(frozen=True, eq=False)
class Spread:
    """How often positive values fall into each of the logarithmic steps that are taken at all, `step` ascending.

    `least` and `most` are the extremes (infinities without any value).
    After DDSketch (Masson, Rim, Lee 2019): the quantiles have a bounded relative error, and sums of two are exact.
    """

    step: Int64
    count: Int64
    least: float
    most: float

    def quantile(self, share: float) -> float | None:
        """Return the value below which a share of all lie, between the two next to it; None without any."""
        if len(self.step) == 0:
            return None
        through = np.cumsum(self.count)
        place = share * (int(through[-1]) - 1)
        rows = np.searchsorted(through, [np.floor(place), np.ceil(place)], "right")
        low, high = np.clip(np.exp((self.step[rows] + 0.5) * _STEP), self.least, self.most).tolist()
        return float(low + (high - low) * (place % 1))


def spread_of(values: Float64) -> Spread:
    """Return the spread of the finite values that are above zero."""
    values = values[np.isfinite(values) & (values > 0)]
    step, count = np.unique(np.floor(np.log(values) / _STEP).astype(np.int64), return_counts=True)
    return Spread(step, count, float(values.min(initial=np.inf)), float(values.max(initial=-np.inf)))


def sum_of(parts: Sequence[Spread]) -> Spread:
    """Return the spread of the values of all parts together."""
    every = np.concatenate([part.step for part in parts]) if parts else np.zeros(0, np.int64)
    counts = np.concatenate([part.count for part in parts]) if parts else np.zeros(0, np.int64)
    step, index = np.unique(every, return_inverse=True)
    count = np.bincount(index, weights=counts, minlength=len(step)).astype(np.int64)
    least, most = min((part.least for part in parts), default=np.inf), max((p.most for p in parts), default=-np.inf)
    return Spread(step, count, least, most)
