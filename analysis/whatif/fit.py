"""The α–β model of a transport, fitted to collectives that were measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.tables.columns import Columns, Float64
from netprof.errors import NetprofError

_MOSTLY_WIRE = 0.5
NO_FIT = "use --transport ideal for a link fully used"


@dataclass(frozen=True, eq=False)
class CollectiveSamples(Columns):
    """Measured collectives, shape (M,): each one's buffer in bytes, and the seconds of link time that were its own.

    Where collectives overlap, a moment with k outstanding counts 1/k for each, so that `seconds` adds up to the time
    in which any was outstanding.
    """

    bytes: Float64
    seconds: Float64


@dataclass(frozen=True)
class AlphaBeta:
    """seconds = `latency_s` + `seconds_per_byte`·S, and how far the measured collectives are from it.

    `median_error` is the median of |fitted − measured| / measured over all samples, `worst_size_error` the largest such
    error of any size's mean. `latency_known` is False where only one size was seen or sizes do not explain the times: α
    is then taken as zero.
    `total_bytes` are those of all samples.
    """

    latency_s: float
    seconds_per_byte: float
    median_error: float
    worst_size_error: float
    samples: int
    sizes: int
    latency_known: bool
    total_bytes: float

    def through_origin(self) -> AlphaBeta:
        """Return the fit that takes as long for all bytes together, without a latency."""
        spread = self.latency_s * self.samples / self.total_bytes
        return replace(self, latency_s=0.0, seconds_per_byte=self.seconds_per_byte + spread, latency_known=False)


def fit_alpha_beta(samples: CollectiveSamples, least_seconds_per_byte: float = 0.0) -> AlphaBeta:
    """Fit α and β by least squares, α not below zero and β not below `least_seconds_per_byte`, the wire's own time.

    Where the line would be less steep than the wire, sizes do not explain the times (collectives that share a link
    are not served evenly), and the latency is unknown: what they take beyond the wire then goes with their bytes,
    unless the wire is the smaller part of it.

    The fitted times add up to the measured ones, so that means over iterations stay means. Give it the samples of
    typical iterations: a stall counts in full. Raises NetprofError without a collective that moved anything.
    """
    used = (samples.bytes > 0) & (samples.seconds > 0)
    size, seconds = samples.bytes[used], samples.seconds[used]
    if len(size) == 0:
        raise NetprofError("no collective was timed, so there is no transport to fit", NO_FIT)
    distinct, which, count = np.unique(size, return_inverse=True, return_counts=True)
    mean = np.bincount(which, weights=seconds) / count
    alpha, beta, known = _line(distinct, mean, count.astype(np.float64), least_seconds_per_byte)
    fitted = alpha + beta * distinct
    return AlphaBeta(
        latency_s=alpha,
        seconds_per_byte=beta,
        median_error=float(np.median(np.abs(fitted[which] - seconds) / seconds)),
        worst_size_error=float(np.max(np.abs(fitted - mean) / mean)),
        samples=len(size),
        sizes=len(distinct),
        latency_known=known,
        total_bytes=float(size.sum()),
    )


def _line(x: Float64, y: Float64, weight: Float64, least_slope: float) -> tuple[float, float, bool]:
    """Return intercept and slope by weighted least squares, and whether the intercept is known; the sum stays exact."""
    through_origin = float(np.sum(weight * y) / np.sum(weight * x))
    if len(x) == 1:
        return 0.0, through_origin, False
    mean_x, mean_y = float(np.average(x, weights=weight)), float(np.average(y, weights=weight))
    slope = float(np.sum(weight * (x - mean_x) * (y - mean_y)) / np.sum(weight * (x - mean_x) ** 2))
    if slope < least_slope and least_slope * mean_x > _MOSTLY_WIRE * mean_y:
        return 0.0, through_origin, False
    slope = max(slope, least_slope)
    intercept = mean_y - slope * mean_x
    return (intercept, slope, True) if intercept >= 0 else (0.0, through_origin, True)
