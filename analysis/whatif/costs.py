"""Cost models: how long a bucket occupies the link, as a part that no link speed changes and a part in bits.

Every model is linear in 1/bandwidth, so that one evaluation per bucket and worker count serves a whole sweep:
seconds = fixed_s + bits / bandwidth / compression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from netprof.analysis.whatif.schedule import FloatArray


class CostModel(Protocol):
    """What a bucket costs, and what follows the last one."""

    @property
    def tail_s(self) -> float:
        """Seconds between the last bucket's end and the end of the wait, at any link speed."""
        ...

    def coefficients(self, sizes_bytes: FloatArray, workers: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (`fixed_s`, `bits`), each of shape (K, W), for K bucket sizes and W worker counts."""
        ...


@dataclass(frozen=True)
class AddTable:
    """Measured vector additions: `seconds` by ascending `bytes`, both of shape (A,), A > 0."""

    bytes: FloatArray
    seconds: FloatArray

    def seconds_at(self, size_bytes: FloatArray) -> FloatArray:
        """Interpolate linearly; outside the table, its nearest entry."""
        return np.interp(size_bytes, self.bytes, self.seconds).astype(np.float64)


@dataclass(frozen=True)
class WireRatio:
    """Wire bytes of one host (in its busier direction) per byte of bucket, seen with `workers` workers."""

    wire_bytes_per_byte: float
    workers: int


def ring_factor(workers: FloatArray) -> FloatArray:
    """Return 2(N−1)/N: the bytes a ring all-reduce sends per worker and byte of buffer."""
    return 2.0 * (workers - 1.0) / workers


def wire_factor(wire: WireRatio | None, workers: FloatArray) -> FloatArray:
    """Return wire bytes per byte of bucket: the observed ratio, else a ring's.

    To other worker counts the observed ratio is carried in proportion to a ring's; one observed with one worker says
    nothing about others, and counts as not observed.
    """
    ring = ring_factor(workers)
    if wire is None or wire.workers < 2:
        return ring
    observed_ring = 2.0 * (wire.workers - 1.0) / wire.workers
    return wire.wire_bytes_per_byte * ring / observed_ring


@dataclass(frozen=True)
class RingCost:
    """A transport that always fills the link: 2·8S(N−1)/N / bandwidth + (N−1)·add(S/N) (arXiv 2006.10103).

    With `wire`, the network term is the observed wire bytes instead. Without `add`, additions cost nothing.
    """

    add: AddTable | None = None
    wire: WireRatio | None = None
    tail_s: float = 0.0

    def coefficients(self, sizes_bytes: FloatArray, workers: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (`fixed_s`, `bits`) of shape (K, W)."""
        size = sizes_bytes[:, None]
        fixed = np.zeros((len(sizes_bytes), len(workers)))
        if self.add is not None:
            fixed = (workers - 1.0) * self.add.seconds_at(size / workers)
        return fixed, 8.0 * size * wire_factor(self.wire, workers)


@dataclass(frozen=True)
class MeasuredCost:
    """The trace's own transport: α + S·(β − wire time per byte) that no link speed changes, and its wire bytes.

    α and β come from `fit.fit_alpha_beta`; `rest_s_per_byte` is what is left of β when the wire bytes are taken off at
    line rate (copies, additions, waits inside the collective). To other worker counts α goes as the ring's steps, N−1,
    and the per-byte parts as the ring's bytes, 2(N−1)/N: an assumption, none at the measured count.
    """

    latency_s: float
    rest_s_per_byte: float
    wire: WireRatio
    tail_s: float = 0.0

    def coefficients(self, sizes_bytes: FloatArray, workers: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (`fixed_s`, `bits`) of shape (K, W)."""
        size = sizes_bytes[:, None]
        steps = (workers - 1.0) / (self.wire.workers - 1.0)
        share = wire_factor(self.wire, workers) / self.wire.wire_bytes_per_byte
        return self.latency_s * steps + self.rest_s_per_byte * size * share, 8.0 * size * wire_factor(
            self.wire, workers
        )
