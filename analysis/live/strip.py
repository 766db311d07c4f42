"""Bins put together into the columns of a strip: no peak is lost, and what a column shows is said."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.causes import CAUSES
from netprof.analysis.account.idle import CauseTimes
from netprof.analysis.definitions import IDLE_THRESHOLD
from netprof.analysis.tables.columns import Bool, Float64, Int64
from netprof.analysis.tables.intervals import NOTHING, Intervals, covered_until
from netprof.analysis.wire.bins import Bins


@dataclass(frozen=True, eq=False)
class Strip:
    """One direction of a link: mean and highest bin of each column, in bits per second, oldest column first.

    In most of the time of an `unknown` column it is not known when the bytes passed.
    """

    mean_bps: Float64
    peak_bps: Float64
    unknown: Bool


def strip(
    bins: Bins | None, first_bin: int, bins_per_column: int, columns: int, bin_ns: int, unknown: Intervals = NOTHING
) -> Strip:
    """Return `columns` columns of `bins_per_column` bins each, from bin number `first_bin` on; nothing seen is 0."""
    total: Float64 = np.zeros(columns)
    highest: Float64 = np.zeros(columns)
    if bins is not None:  # a column may be years long in a trace that is made up, so only bins that are there are held
        rows = slice(*np.searchsorted(bins.number, (first_bin, first_bin + columns * bins_per_column)))
        number, rate_bps = (bins.number[rows] - first_bin) // bins_per_column, bins.wire_bytes[rows] * (8e9 / bin_ns)
        np.add.at(total, number, rate_bps)
        np.maximum.at(highest, number, rate_bps)
    edges = bin_ns * (first_bin + bins_per_column * np.arange(columns + 1))
    covered = np.diff(covered_until(unknown, edges))
    return Strip(total / bins_per_column, highest, covered * 2 > bins_per_column * bin_ns)


def is_idle(sides: list[Strip], line_rate_bps: float | None) -> Bool:
    """Return for each column whether every bin of it is idle in every direction (`definitions.IDLE`)."""
    threshold = IDLE_THRESHOLD * (line_rate_bps or 0.0)
    peaks = np.stack([side.peak_bps for side in sides])
    unknown = np.stack([side.unknown for side in sides]).any(axis=0)
    return np.asarray(((peaks < threshold) | (peaks == 0)).all(axis=0) & ~unknown)


def causes(times: CauseTimes | None, first_ns: int, column_ns: int, columns: int) -> Int64:
    """Return which cause of idleness applied for most of each column, as the index in CAUSES; -1: not known."""
    if times is None:
        return np.full(columns, -1)
    edges = first_ns + column_ns * np.arange(columns + 1)
    covered = np.stack([np.diff(covered_until(times.of(cause), edges)) for cause in CAUSES])
    return np.where(covered.sum(axis=0) * 2 > column_ns, covered.argmax(axis=0), -1)
