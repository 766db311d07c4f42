"""The replay: buckets go one after another over a serial link, at many points of a sweep at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.whatif.costs import CostModel
from netprof.analysis.whatif.schedule import Buckets, FloatArray


@dataclass(frozen=True)
class Points:
    """Points of a sweep, each array of shape (P,): worker count, link speed in bit/s (may be infinite), ratio ≥ 1."""

    workers: FloatArray
    bandwidth_bps: FloatArray
    compression: FloatArray

    def __len__(self) -> int:
        return len(self.workers)


def grid(workers: FloatArray, bandwidth_bps: FloatArray, compression: FloatArray) -> Points:
    """Return every combination, workers varying slowest and compression fastest."""
    mesh = np.meshgrid(workers, bandwidth_bps, compression, indexing="ij")
    return Points(*(axis.ravel().astype(np.float64) for axis in mesh))


def overhead_s(
    buckets: Buckets,
    cost: CostModel,
    points: Points,
    last_ready_s: float,
    *,
    codec_s_per_byte: float = 0.0,
) -> FloatArray:
    """Return, shape (P,), how long after `last_ready_s` the last bucket is done; never below zero.

    A bucket starts when it was launched and the one before it is done. Compression divides only the time on the
    network; where it is above 1, every byte also costs `codec_s_per_byte` for encoding and decoding.
    """
    if len(buckets) == 0:
        return np.zeros(len(points))
    workers, which = np.unique(points.workers, return_inverse=True)
    fixed_s, bits = cost.coefficients(buckets.bytes, workers)
    seconds_per_bit = 1.0 / (points.bandwidth_bps * points.compression)
    codec = np.where(points.compression > 1.0, codec_s_per_byte, 0.0)
    free_s = np.full(len(points), -np.inf)
    for k, launch_s in enumerate(buckets.launch_s):
        np.maximum(free_s, launch_s, out=free_s)
        free_s += fixed_s[k][which]
        free_s += bits[k][which] * seconds_per_bit
        if codec_s_per_byte:
            free_s += codec * buckets.bytes[k]
    return np.maximum(free_s - last_ready_s, 0.0) + cost.tail_s
