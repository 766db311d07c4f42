"""Two clocks compared by what goes from one to the other and back: nothing arrives before it left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.tables.columns import Float64, Int64

MOST_DRIFT = 1e-3
"""Seconds that two clocks may gain on each other each second: NTP corrects by 5e-4 at most."""


@dataclass(frozen=True)
class Line:
    """What the difference of two clocks is at `at_ns`, and how much it grows each nanosecond."""

    at_ns: int
    offset_ns: float
    drift: float

    def of(self, time_ns: Any) -> Any:
        """Return the difference at some times."""
        return self.offset_ns + self.drift * (time_ns - self.at_ns)


@dataclass(frozen=True, eq=False)
class Corridor:
    """All straight lines that the difference of two clocks may be, around `at_ns`.

    For each of `drifts` (slopes, ascending) the difference at `at_ns` is between `low_ns` and `high_ns`: between two of
    them the limits are straight too. Where no line fits, all were moved apart by `bent_ns`: the clocks' drift is not
    constant, and they may be as far beyond a limit.
    """

    at_ns: int
    drifts: Float64
    low_ns: Float64
    high_ns: Float64
    bent_ns: float = 0.0

    def middle(self) -> Line:
        """Return the line in the middle of the widest place."""
        widest = int(np.argmax(self.high_ns - self.low_ns))
        middle_ns = float(self.low_ns[widest] + self.high_ns[widest]) / 2
        return Line(self.at_ns, middle_ns, float(self.drifts[widest]))

    def farthest_ns(self, from_line: Line, time_ns: int) -> float:
        """Return how far any of the lines is from another one at a time."""
        after, line = time_ns - self.at_ns, from_line.of(time_ns)
        high, low = self.high_ns + self.drifts * after, self.low_ns + self.drifts * after
        return float(max(high.max() - line, line - low.min())) + 2 * self.bent_ns


def corridor(upper_at: Int64, upper: Int64, lower_at: Int64, lower: Int64) -> Corridor | None:
    """Return the lines below all `upper` points and above all `lower` ones; None without both.

    Points are differences of two clocks, ns, at times, ns. Only the corners of the convex hulls matter, as of Moon,
    Skelly and Towsley, "Estimation and Removal of Clock Skew" (INFOCOM 1999), in both directions.
    """
    if len(upper) == 0 or len(lower) == 0:
        return None
    at_ns = int(np.concatenate((upper_at, lower_at)).mean())
    base = int(np.median(np.concatenate((upper, lower))))  # so that floats hold every nanosecond
    above = _hull((upper_at - at_ns).astype(np.float64), (upper - base).astype(np.float64))
    below = _hull((lower_at - at_ns).astype(np.float64), -(lower - base).astype(np.float64))
    drifts = _slopes(above, below)
    high, low = _least(above, drifts), -_least(below, -drifts)
    bent = max(0.0, -float((high - low).max()) / 2)
    return _open(Corridor(at_ns, drifts, low + base - bent, high + base + bent, bent))


def _slopes(above: Float64, below: Float64) -> Float64:
    """Return the drifts at which another corner is the one that limits, and the most that there may be."""
    edges = [np.diff(above[1]) / np.diff(above[0]), -np.diff(below[1]) / np.diff(below[0])]
    slopes = np.concatenate([*edges, [-MOST_DRIFT, 0.0, MOST_DRIFT]])
    return np.unique(slopes[np.abs(slopes) <= MOST_DRIFT])


def _least(hull: Float64, drifts: Float64) -> Float64:
    """Return how low a line of each drift must be at 0 to be below all corners."""
    return np.asarray((hull[1] - drifts[:, None] * hull[0]).min(axis=1))


def _open(wide: Corridor) -> Corridor:
    """Leave out the drifts of which no line fits; where the corridor ends between two, that is a corner."""
    width = wide.high_ns - wide.low_ns
    inside = np.flatnonzero(width >= min(0.0, float(width.max())))  # of huge numbers, floats hold no nanosecond
    first, last = int(inside[0]), int(inside[-1])
    drifts = wide.drifts[first : last + 1]
    if first > 0:
        drifts = np.append(_closes(wide.drifts, width, first - 1, first), drifts)
    if last + 1 < len(width):
        drifts = np.append(drifts, _closes(wide.drifts, width, last + 1, last))
    low, high = (np.interp(drifts, wide.drifts, values) for values in (wide.low_ns, wide.high_ns))
    return Corridor(wide.at_ns, drifts, low, high, wide.bent_ns)


def _closes(drifts: Float64, width: Float64, outside: int, inside: int) -> float:
    part = width[inside] / (width[inside] - width[outside])
    return float(drifts[inside] + part * (drifts[outside] - drifts[inside]))


def _hull(x: Float64, y: Float64) -> Float64:
    """Return the corners of the lower convex hull of points, shape (2, n), by x."""
    x, y = (_some(values, _MOST_POINTS) for values in _lowest(x, y))
    corners: list[int] = []
    for row in range(len(x)):
        while len(corners) > 1 and _is_above(x, y, corners[-2], corners[-1], row):
            corners.pop()
        corners.append(row)
    return _some(np.stack((x[corners], y[corners])), _MOST_CORNERS)


_PARTS = 4096
_MOST_POINTS, _MOST_CORNERS = 1 << 16, 1 << 10
"""Of clocks there are a few corners, of numbers that somebody made up there can be any number."""


def _some(points: Float64, most: int) -> Float64:
    """Return at most so many of the points, evenly: lines that are too many are possible then, and none too few."""
    return points[..., :: -(-points.shape[-1] // most)] if points.shape[-1] > most else points


def _lowest(x: Float64, y: Float64) -> tuple[Float64, Float64]:
    """Return the points by x without those that cannot be corners: of very many, few are."""
    order = np.lexsort((y, x))
    x, y = x[order], y[order]
    first = np.append(True, np.diff(x) > 0)
    x, y = x[first], y[first]
    while len(x) > _PARTS:
        inner = np.arange(1, len(x) - 1)
        share = (x[inner] - x[inner - 1]) / (x[inner + 1] - x[inner - 1])
        line = y[inner - 1] * (1 - share) + y[inner + 1] * share
        kept = np.concatenate(([True], y[inner] < line, [True]))
        if kept.all() or kept.sum() > 0.9 * len(x):
            break
        x, y = x[kept], y[kept]
    return x, y


def _is_above(x: Float64, y: Float64, left: int, middle: int, right: int) -> bool:
    """Tell whether the second of three points is no corner."""
    return bool((x[middle] - x[left]) * (y[right] - y[left]) <= (x[right] - x[left]) * (y[middle] - y[left]))
