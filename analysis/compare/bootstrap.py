"""How far a statistic of iterations may be off: an iteration depends on the ones before, so blocks are resampled.

The circular block bootstrap of Politis and Romano (1992, "A circular block-resampling procedure for stationary data");
the blocks' length is chosen as by Politis and White (2004, "Automatic block-length selection for the dependent
bootstrap"), with the correction of Patton, Politis and White (2009).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil, log10, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from netprof.analysis.tables.columns import Float64, Int64


class Statistic(NamedTuple):
    """What a series comes down to; `of` takes `axis`."""

    name: str
    of: Callable[..., Float64]


MEDIAN = Statistic("median", np.median)
MEAN = Statistic("mean", np.mean)
UNDISTURBED = Statistic("10th percentile", partial(np.percentile, q=10))
"""What disturbs an iteration only makes it longer, so the short ones tell what it takes by itself, as Chen and Revels
(2016, "Robust benchmarking in noisy environments") have it; the shortest of all would depend on one alone."""

_MOST_VALUES = 4_000_000
"""Resampled values that are held at a time, and of a series in all but for the fewest resamples."""
_FEWEST, _MOST = 200, 500
"""Resamples of a series: a standard error is known to 3 % from 500."""
_FEWEST_FREEDOM = 3.0
_EXTREME = (5.0, 95.0)
"""Percentiles beyond which a value says nothing of how iterations depend on each other: a pause."""


@dataclass(frozen=True)
class Estimate:
    """A series' median or mean, its standard error, and for how many independent values that stands, less one."""

    value: float
    error: float
    freedom: float


def estimate(values: Float64, statistic: Statistic) -> Estimate:
    """Return the statistic of a series, shape (n,), n at least 2, and how far it may be off."""
    block = block_length(values)
    count = min(_MOST, max(_FEWEST, _MOST_VALUES // len(values)))
    at_once = max(1, _MOST_VALUES // len(values))
    random = np.random.default_rng(0)  # the same runs give the same answer
    resampled: list[Float64] = []
    while sum(map(len, resampled)) < count:
        rows = _resampled(len(values), block, min(at_once, count), random)
        resampled.append(np.asarray(statistic.of(values[rows], axis=1)))
    error = float(np.concatenate(resampled).std(ddof=1))
    return Estimate(float(statistic.of(values)), error, max(_FEWEST_FREEDOM, len(values) / block - 1))


def _resampled(length: int, block: int, count: int, random: np.random.Generator) -> Int64:
    """Return rows of a series, shape (count, length): blocks from anywhere, the end going on at the beginning."""
    starts = random.integers(0, length, (count, ceil(length / block), 1))
    rows: Int64 = ((starts + np.arange(block)) % length).reshape(count, -1)[:, :length]
    return rows


def block_length(values: Float64) -> int:
    """Return over how many values of a series, shape (n,), they depend on each other.

    Never less than n^(1/3), which is right for series that depend little: short ones do not show how much they do.
    """
    length = len(values)
    least: int = max(1, round(length ** (1 / 3)))
    clipped = np.clip(values, *np.percentile(values, _EXTREME))
    centred = clipped - clipped.mean()
    together = max(5, ceil(sqrt(log10(max(length, 2)))))
    reach = min(length - 1, ceil(sqrt(length)) + together)
    if length < 2 * together or not centred.any():
        return least
    covariance = np.array([(centred[: length - lag] * centred[lag:]).sum() / length for lag in range(reach + 1)])
    window = _window(_last_related(covariance / covariance[0], length, together), reach)
    lags = np.arange(1, len(window) + 1)
    spectrum = covariance[0] + 2 * (window * covariance[1 : len(window) + 1]).sum()
    slope = 2 * (window * lags * covariance[1 : len(window) + 1]).sum()
    best = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * length ** (1 / 3) if spectrum > 0 else reach
    return int(np.clip(ceil(best), least, max(least, ceil(min(3 * sqrt(length), length / 3)))))


def _last_related(correlation: Float64, length: int, together: int) -> int:
    """Return the last lag before `together` lags in a row at which nothing is related any more."""
    related = np.flatnonzero(np.abs(correlation[1:]) >= 2 * sqrt(log10(length) / length)) + 1
    gaps = np.diff(np.concatenate(([0], related, [len(correlation) + together])))
    return int(np.concatenate(([0], related))[np.argmax(gaps > together)])


def _window(last: int, reach: int) -> Float64:
    """Return the weights of the lags from 1 on: whole until `last`, then falling to nothing at twice that."""
    width = min(max(2 * last, 1), reach)
    share = np.arange(1, width + 1) / width
    return np.minimum(1.0, 2 * (1 - share))


def quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t, by Fisher's expansion (Abramowitz and Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(probability)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))
