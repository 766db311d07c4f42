"""The points of a sweep: every combination of worker count, link speed and compression that was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Float64, Int64
from netprof.analysis.whatif.compression import DENSE, Method
from netprof.errors import UsageError


@dataclass(frozen=True, eq=False)
class Points:
    """Points of a sweep, each array of shape (P,).

    Worker count, link speed in bit/s (may be infinite), `compression` (a bare ratio >= 1) and `method`, an index into
    `methods`, the first of which leaves gradients dense. A point has a ratio or a method.
    """

    workers: Float64
    bandwidth_bps: Float64
    compression: Float64
    method: Int64
    methods: tuple[Method, ...] = (DENSE,)

    def __len__(self) -> int:
        return len(self.workers)

    @property
    def labels(self) -> list[str]:
        """How each point's compression is asked for."""
        names = [method.label for method in self.methods]
        pairs = zip(self.compression.tolist(), self.method.tolist(), strict=True)
        return [names[number] if number else f"{ratio:g}" for ratio, number in pairs]

    def parts(self, at_once: int) -> Iterator[Points]:
        """Yield the points in parts of up to `at_once`, which counts as 1 if it is less."""
        at_once = max(at_once, 1)
        for first in range(0, max(len(self), 1), at_once):
            part = slice(first, first + at_once)
            workers, speeds, ratios = (axis[part] for axis in (self.workers, self.bandwidth_bps, self.compression))
            yield Points(workers, speeds, ratios, self.method[part], self.methods)


def at(workers: Float64, bandwidth_bps: Float64, compression: Float64 | None = None) -> Points:
    """Return points with bare ratios, none where no `compression` is given."""
    ratio = np.ones(len(workers)) if compression is None else compression
    return Points(workers, bandwidth_bps, ratio, np.zeros(len(workers), np.int64))


def one(workers: float, bandwidth_bps: float) -> Points:
    """Return a single point without compression."""
    return at(np.array([float(workers)]), np.array([bandwidth_bps]))


def grid(workers: Sequence[float], bandwidth_bps: Sequence[float], compression: Sequence[float | Method]) -> Points:
    """Return every combination, workers varying slowest and compression fastest. Raises UsageError (`check`)."""
    methods: tuple[Method, ...] = (DENSE, *(way for way in compression if not isinstance(way, (int, float))))
    ratio = [float(way) if isinstance(way, (int, float)) else 1.0 for way in compression]
    number = [0 if isinstance(way, (int, float)) else methods.index(way) for way in compression]
    mesh = np.meshgrid(workers, bandwidth_bps, np.arange(len(ratio)), indexing="ij")
    count, speed, which = (axis.ravel() for axis in mesh)
    chosen = which.astype(np.int64)
    points = Points(
        count.astype(np.float64),
        speed.astype(np.float64),
        np.array(ratio)[chosen],
        np.array(number, dtype=np.int64)[chosen],
        methods,
    )
    check(points)
    return points


def check(points: Points) -> None:
    """Raise UsageError for fewer than two workers, a bandwidth not above zero, a compression ratio below one."""
    if not np.all(points.workers >= 2):
        raise UsageError("one worker exchanges nothing, so nothing about it scales", "give --workers 2 or more")
    if not np.all(points.bandwidth_bps > 0):
        raise UsageError("a link of zero bandwidth carries nothing", "give --bandwidth above zero")
    if not np.all((points.compression >= 1) & np.isfinite(points.compression)):
        raise UsageError("a compression ratio is 1 (none) or more", "give --compression as 1,2,10, say")
