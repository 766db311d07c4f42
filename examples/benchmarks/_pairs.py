"""Paired measurement on a noisy machine: ratios of neighbours, their median, and how sure it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ratio:
    """The median of paired ratios with a 95 % bootstrap interval."""

    median: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.median:.4f} ({self.low:.4f} to {self.high:.4f}, {self.pairs} pairs)"


def abba(pairs: int) -> Iterator[tuple[bool, bool]]:
    """Yield the order of each pair: (with, without), then (without, with), and so on."""
    for index in range(pairs):
        yield (True, False) if index % 2 == 0 else (False, True)


def ratio_of_pairs(measure: Callable[[bool], float], pairs: int) -> Ratio:
    """Measure with and without the thing in ABBA order; returns with / without."""
    ratios = []
    for order in abba(pairs):
        values = {present: measure(present) for present in order}
        ratios.append(values[True] / values[False])
    return summarize(np.array(ratios))


def ratios_of_pairs(measure: Callable[[bool], Mapping[str, float]], pairs: int) -> dict[str, Ratio]:
    """Do the same for several quantities that are measured at once, by name."""
    ratios: dict[str, list[float]] = {}
    for order in abba(pairs):
        values = {present: measure(present) for present in order}
        for name, value in values[True].items():
            ratios.setdefault(name, []).append(value / values[False][name])
    return {name: summarize(np.array(each)) for name, each in ratios.items()}


def summarize(ratios: np.ndarray) -> Ratio:
    """Return the median of ratios with its bootstrap interval."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(ratios, (2000, len(ratios))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return Ratio(float(np.median(ratios)), float(low), float(high), len(ratios))


def share_interval(right: int, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    if not count:
        return 0.0, 1.0
    z, share = 1.96, right / count
    middle, half = share + z * z / 2 / count, z * ((share * (1 - share) + z * z / 4 / count) / count) ** 0.5
    return max((middle - half) / (1 + z * z / count), 0.0), min((middle + half) / (1 + z * z / count), 1.0)
