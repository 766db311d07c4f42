"""How values are spread, kept in little room, so that those of many pieces of a recording can be put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Float64, Int64

_STEP = np.log(1.002)
"""The logarithm of a step's width: a value is known to 0.1 %."""
_ZERO = -(1 << 30)
"""The step of nothing."""


@dataclass(frozen=True, eq=False)
class Spread:
    """How often values from zero on fall into each of the logarithmic steps that are taken at all, `steps` ascending.

    `least` and `most` are the extremes (infinities without any value).
    After DDSketch (Masson, Rim, Lee 2019): the quantiles have a bounded relative error, and sums of two are exact.
    """

    steps: Int64
    counts: Int64
    least: float
    most: float

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same."""
        if not isinstance(other, Spread):
            return NotImplemented
        same = np.array_equal(self.steps, other.steps) and np.array_equal(self.counts, other.counts)
        return same and (self.least, self.most) == (other.least, other.most)

    def quantile(self, share: float) -> float | None:
        """Return the value below which a share of all lie, between the two next to it; None without any."""
        if len(self.steps) == 0:
            return None
        through = np.cumsum(self.counts)
        place = share * (int(through[-1]) - 1)
        rows = np.searchsorted(through, [np.floor(place), np.ceil(place)], "right")
        middle = np.exp((self.steps[rows] + 0.5) * _STEP)
        low, high = np.clip(middle, self.least, self.most).tolist()
        return float(low + (high - low) * (place % 1))


def spread_of(values: Float64) -> Spread:
    """Return the spread of the finite values that are not below zero."""
    values = values[np.isfinite(values) & (values >= 0)]
    logs = np.log(np.where(values > 0, values, 1.0)) / _STEP
    steps, counts = np.unique(np.where(values > 0, np.floor(logs), _ZERO).astype(np.int64), return_counts=True)
    least, most = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
    return Spread(steps, counts, least, most)


def sum_of(parts: Sequence[Spread]) -> Spread:
    """Return the spread of the values of all parts together."""
    every = np.concatenate([part.steps for part in parts]) if parts else np.zeros(0, np.int64)
    weights = np.concatenate([part.counts for part in parts]) if parts else np.zeros(0, np.int64)
    steps, index = np.unique(every, return_inverse=True)
    counts = np.bincount(index, weights=weights, minlength=len(steps)).astype(np.int64)
    least, most = min((part.least for part in parts), default=np.inf), max((p.most for p in parts), default=-np.inf)
    return Spread(steps, counts, least, most)
