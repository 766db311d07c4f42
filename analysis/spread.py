"""How values are spread, kept in little room, so that those of many pieces of a recording can be put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Float64

_STEP = np.log(1.002)
"""The logarithm of a step's width: a value is known to 0.1 %."""
_ZERO = -(1 << 40)
"""The step of nothing."""


@dataclass(frozen=True)
class Spread:
    """How often values from zero on fall into each of the logarithmic steps that are taken at all, `steps` ascending.

    `least` and `most` are the extremes (infinities without any value).
    After DDSketch (Masson, Rim, Lee 2019): the quantiles have a bounded relative error, and sums of two are exact.
    """

    steps: tuple[int, ...]
    counts: tuple[int, ...]
    least: float
    most: float

    def quantile(self, share: float) -> float | None:
        """Return the value below which a share of all lie, between the two next to it; None without any."""
        if not self.steps:
            return None
        through = np.cumsum(self.counts)
        place = share * (int(through[-1]) - 1)
        rows = np.searchsorted(through, [np.floor(place), np.ceil(place)], "right")
        middle = np.exp((np.array(self.steps)[rows] + 0.5) * _STEP)
        low, high = np.clip(middle, self.least, self.most).tolist()
        return float(low + (high - low) * (place % 1))


def spread_of(values: Float64) -> Spread:
    """Return the spread of the finite values that are not below zero."""
    values = values[np.isfinite(values) & (values >= 0)]
    logs = np.log(np.where(values > 0, values, 1.0)) / _STEP
    steps, counts = np.unique(np.where(values > 0, np.floor(logs), _ZERO).astype(np.int64), return_counts=True)
    least, most = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
    return Spread(tuple(steps.tolist()), tuple(counts.tolist()), least, most)


def sum_of(parts: Sequence[Spread]) -> Spread:
    """Return the spread of the values of all parts together."""
    counts: Counter[int] = Counter()
    for part in parts:
        counts.update(dict(zip(part.steps, part.counts, strict=True)))
    steps = tuple(sorted(counts))
    least, most = min((part.least for part in parts), default=np.inf), max((p.most for p in parts), default=-np.inf)
    return Spread(steps, tuple(counts[step] for step in steps), least, most)
