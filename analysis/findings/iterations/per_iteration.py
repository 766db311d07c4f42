"""One row an iteration: where its time went and how fast its all-reduces were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.events.collectives import Collectives, group_sizes
from netprof.analysis.events.factors import sent_per_byte
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.columns import UNKNOWN, Columns, Float64, Int64
from netprof.analysis.tables.intervals import merge, overlap, row_at

_SMALLEST = np.finfo(np.float64).tiny  # below it, dividing by a difference overflows


@dataclass(frozen=True, eq=False)
class IterationRows(Columns):
    """Iterations of one process in order of time; seconds, bits per second, NaN where unknown.

    `bus_bandwidth_bps` is the aggregate over the time in which any all-reduce of the iteration runs
    (`definitions.BANDWIDTH`).
    """

    begin_ns: Int64
    duration_s: Float64
    forward_s: Float64
    backward_s: Float64
    exposed_communication_s: Float64
    rest_s: Float64
    bus_bandwidth_bps: Float64


def rows_of(evidence: Evidence, pid: int) -> IterationRows:
    """Return the rows of process `pid` of a recording; the phases of one that only launches are unknown."""
    rows = iteration_rows(evidence.iterations, evidence.together, pid, evidence.world_size)
    if pid not in evidence.only_launch:
        return rows
    unknown = np.full(len(rows), np.nan)
    return replace(rows, forward_s=unknown, backward_s=unknown, exposed_communication_s=unknown, rest_s=unknown)


def iteration_rows(iterations: Iterations, collectives: Collectives, pid: int, world_size: int | None) -> IterationRows:
    """Return the rows of process `pid`."""
    rows = iterations.of_pid(pid)
    reduces = collectives.of_pid(pid).all_reduces()
    return IterationRows(
        begin_ns=rows.begin_ns,
        duration_s=rows.duration_ns / 1e9,
        forward_s=rows.forward_phase_ns / 1e9,
        backward_s=rows.backward_phase_ns / 1e9,
        exposed_communication_s=rows.exposed_phase_ns / 1e9,
        rest_s=rows.rest_phase_ns / 1e9,
        bus_bandwidth_bps=_bus_bandwidths(rows, reduces, _factors(reduces, world_size)),
    )


def _factors(reduces: Collectives, world_size: int | None) -> Float64:
    """Return bus over algorithm bandwidth of each all-reduce in its group; NaN where nothing says its ranks."""
    ranks = group_sizes(reduces, world_size)
    return np.where(ranks > 1, sent_per_byte(reduces.kind, np.maximum(ranks, 1)), np.nan)


def _bus_bandwidths(iterations: Iterations, reduces: Collectives, factor: Float64) -> Float64:
    reduces, factor = reduces.where(reduces.ranks != 1), factor[reduces.ranks != 1]
    if len(iterations) == 0 or len(reduces) == 0:
        return np.full(len(iterations), np.nan)
    index = row_at(iterations.begin_ns, iterations.end_ns, reduces.begin_ns)
    inside = index != UNKNOWN
    size = np.bincount(index[inside], weights=(reduces.bytes * factor)[inside], minlength=len(iterations))
    running_ns = overlap(merge(reduces.begin_ns, reduces.end_ns), iterations.begin_ns, iterations.end_ns)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where((running_ns > 0) & (size > 0), size * 8e9 / running_ns, np.nan))


def slowest(duration_s: Float64, count: int) -> Int64:
    """Return the indices of the `count` longest iterations, the longest first."""
    return np.argsort(-duration_s, kind="stable")[:count]


@dataclass(frozen=True, eq=False)
class Histogram:
    """How often each rank's values fall between `edges`, shape (bins + 1,); `counts` has shape (ranks, bins)."""

    edges: Float64
    counts: Int64


def histogram(ranks: Sequence[Float64], most_bins: int = 48) -> Histogram | None:
    """Count every rank's finite values in common bins (at most `most_bins`); None without a value."""
    finite = [values[np.isfinite(values)] for values in ranks]
    together = np.concatenate(finite) if finite else np.zeros(0)
    if len(together) == 0:
        return None
    low, high = float(together.min()), float(together.max())
    if high - low <= max(1e-9 * abs(high), _SMALLEST):  # all alike: one bar around them
        edges = np.array([low - 0.005 * abs(low or 1.0), high + 0.005 * abs(high or 1.0)])
    else:
        spread = np.subtract(*np.percentile(together, [75, 25]))
        width = max(2 * spread / len(together) ** (1 / 3), (high - low) / most_bins)  # Freedman and Diaconis
        edges = np.linspace(low, high, max(1, round((high - low) / width)) + 1)
    return Histogram(edges, np.array([np.histogram(values, edges)[0] for values in finite], np.int64))


@dataclass(frozen=True, eq=False)
class BandwidthBySize(Columns):
    """All-reduces of one rank by buffer size: how many, and the spread of a single one's bandwidth (bit/s)."""

    bytes: Int64
    count: Int64
    p10_bps: Float64
    median_bps: Float64
    p90_bps: Float64


def bandwidth_by_size(
    collectives: Collectives, pid: int, world_size: int | None, most_sizes: int = 64
) -> BandwidthBySize:
    """Group the all-reduces of process `pid` by size; sizes closer than needed for `most_sizes` groups share one.

    A group's size is the median of its members. A single all-reduce's bandwidth is its share where several overlap.
    It is the bus bandwidth, or where the ranks of a group are unknown the algorithm bandwidth.
    """
    reduces = collectives.of_pid(pid).all_reduces()
    reduces = reduces.where((reduces.duration_ns > 0) & (reduces.bytes > 0))
    factor = _factors(reduces, world_size)
    if np.isnan(factor).any():
        factor = np.ones(len(reduces))
    if len(reduces) == 0:
        none, no_rate = np.zeros(0, np.int64), np.zeros(0)
        return BandwidthBySize(none, none, no_rate, no_rate, no_rate)
    single = reduces.bytes * 8e9 * factor / reduces.duration_ns
    group = _size_groups(reduces.bytes, most_sizes)
    order = np.lexsort((single, group))
    parts = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    spread = np.array([np.percentile(single[part], [10, 50, 90]) for part in parts])
    sizes = np.array([int(np.median(reduces.bytes[part])) for part in parts], np.int64)
    counts = np.array([len(part) for part in parts], np.int64)
    return BandwidthBySize(sizes, counts, spread[:, 0], spread[:, 1], spread[:, 2])


def _size_groups(sizes: Int64, most: int) -> Int64:
    """Return a group number per size: the size itself, or its place on a logarithmic scale if there are too many."""
    distinct = np.unique(sizes)
    if len(distinct) <= most:
        return sizes
    edges = np.geomspace(distinct[0], distinct[-1], most + 1)
    return np.asarray(np.clip(np.searchsorted(edges, sizes, "right"), 1, most), np.int64)
