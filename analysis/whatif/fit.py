"""The α–β model of a transport, fitted to collectives that were measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.whatif.schedule import CollectiveSamples, FloatArray
from netprof.errors import NetprofError


@dataclass(frozen=True)
class AlphaBeta:
    """seconds = `latency_s` + `seconds_per_byte`·S, and how far the measured collectives are from it.

    `median_error` is the median of |fitted − measured| / measured over all samples, `worst_size_error` the largest such
    error of any size's mean. `latency_known` is False where only one size was seen: then α is taken as zero.
    """

    latency_s: float
    seconds_per_byte: float
    median_error: float
    worst_size_error: float
    samples: int
    sizes: int
    latency_known: bool


def fit_alpha_beta(samples: CollectiveSamples) -> AlphaBeta:
    """Fit α and β by least squares, neither below zero.

    The fitted times add up to the measured ones, so that means over iterations stay means. Give it the samples of
    typical iterations: a stall counts in full. Raises NetprofError without a collective that moved anything.
    """
    used = (samples.bytes > 0) & (samples.seconds > 0)
    size, seconds = samples.bytes[used], samples.seconds[used]
    if len(size) == 0:
        raise NetprofError(
            "no collective was timed, so there is no transport to fit", "use --transport ideal for a link fully used"
        )
    distinct, which, count = np.unique(size, return_inverse=True, return_counts=True)
    mean = np.bincount(which, weights=seconds) / count
    alpha, beta = _line(distinct, mean, count.astype(np.float64))
    fitted = alpha + beta * distinct
    return AlphaBeta(
        latency_s=alpha,
        seconds_per_byte=beta,
        median_error=float(np.median(np.abs(fitted[which] - seconds) / seconds)),
        worst_size_error=float(np.max(np.abs(fitted - mean) / mean)),
        samples=len(size),
        sizes=len(distinct),
        latency_known=len(distinct) > 1,
    )


def _line(x: FloatArray, y: FloatArray, weight: FloatArray) -> tuple[float, float]:
    """Weighted least squares with both coefficients kept at or above zero; without an intercept, sums stay exact."""
    through_origin = float(np.sum(weight * y) / np.sum(weight * x))
    if len(x) == 1:
        return 0.0, through_origin
    mean_x, mean_y = np.average(x, weights=weight), np.average(y, weights=weight)
    slope = float(np.sum(weight * (x - mean_x) * (y - mean_y)) / np.sum(weight * (x - mean_x) ** 2))
    if slope < 0:
        return float(mean_y), 0.0
    intercept = float(mean_y - slope * mean_x)
    return (intercept, slope) if intercept >= 0 else (0.0, through_origin)
