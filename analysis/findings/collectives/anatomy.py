"""The anatomy of a typical iteration: phases, buckets and the link beneath, laid over each other from its begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.buckets import Buckets
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.events.typical import middle_half
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.columns import UNKNOWN, Float64, Int64
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import Intervals, covered_until
from netprof.analysis.wire.bins import Bins
from netprof.schema import RECEIVE, TRANSMIT, MarkKind

_MOST_ITERATIONS = 400
_MOST_COLUMNS = 400


@dataclass(frozen=True)
class Percentiles:
    """A time over the iterations, seconds: the middle one, and the 10th and 90th percentile."""

    p10: float
    median: float
    p90: float


@dataclass(frozen=True)
class BucketAnatomy:
    """The k-th bucket of an iteration, seconds after the iteration's begin; None where it was not recorded.

    `ready` is the last gradient before the launch (only of iterations whose gradients were sampled), `begin` and
    `end` are those of its collective, `unpacked` when the job took it up. Without a collective `end` is `unpacked`.
    """

    bytes: int | None
    ready: Percentiles | None
    launch: Percentiles
    begin: Percentiles | None
    end: Percentiles
    unpacked: Percentiles


@dataclass(frozen=True, eq=False)
class LinkProfile:
    """The link over the iteration: columns between `edges_s`, shape (columns + 1,).

    `tx_bps` and `rx_bps` are the 10th, 50th and 90th percentile over the iterations, shape (3, columns); `idle` is
    the mean share of each column in which the link is idle, by cause, shape (columns,).
    """

    edges_s: Float64
    tx_bps: Float64
    rx_bps: Float64
    idle: Mapping[str, Float64]


@dataclass(frozen=True, eq=False)
class Anatomy:
    """The middle half, by duration, of a rank's iterations with the usual number of buckets.

    Phases end at `backward`, `wait`, `done` and `end`, seconds after the iteration's begin. `iterations` is how many
    were laid over each other. `profile` is None for a rank that sends over no link.
    """

    pid: int
    iterations: int
    backward: Percentiles
    wait: Percentiles
    done: Percentiles
    end: Percentiles
    buckets: tuple[BucketAnatomy, ...]
    profile: LinkProfile | None


def anatomy(evidence: Evidence, pid: int, link: LinkKey | None, idle: Mapping[str, Intervals]) -> Anatomy | None:
    """Lay the typical iterations of process `pid` over each other; None where it has none.

    `link` is the device it sends over and `idle` that device's idle time by cause (`idle_spans`).
    """
    rows = _typical_rows(evidence, pid)
    if len(rows) == 0:
        return None
    typical = evidence.iterations.where(rows)
    return Anatomy(
        pid=pid,
        iterations=len(typical),
        backward=_spread(typical.backward_ns - typical.begin_ns),
        wait=_spread(typical.wait_ns - typical.begin_ns),
        done=_spread(typical.done_ns - typical.begin_ns),
        end=_spread(typical.end_ns - typical.begin_ns),
        buckets=_buckets(evidence, pid, rows),
        profile=_profile(evidence, typical, link, idle) if link is not None else None,
    )


def _typical_rows(evidence: Evidence, pid: int) -> Int64:
    """Return rows of Iterations, ascending: of many, evenly spread ones."""
    rows = evidence.iterations.rows_of(pid)
    if len(rows) == 0:
        return rows
    counts = np.bincount(evidence.buckets.iteration, minlength=len(evidence.iterations))[rows]
    rows = rows[counts == np.bincount(counts).argmax()]
    rows = np.sort(rows[middle_half(evidence.iterations.duration_ns[rows])])
    if len(rows) > _MOST_ITERATIONS:
        rows = rows[np.linspace(0, len(rows) - 1, _MOST_ITERATIONS).astype(np.int64)]
    return rows


def _buckets(evidence: Evidence, pid: int, rows: Int64) -> tuple[BucketAnatomy, ...]:
    mine = evidence.buckets.where(np.isin(evidence.buckets.iteration, rows))
    if len(mine) == 0:
        return ()
    mine = mine.where(np.lexsort((mine.launch_ns, mine.iteration)))
    per_iteration = len(mine) // len(rows)
    begin_ns = evidence.iterations.begin_ns[mine.iteration]
    ready_ns = _ready(evidence, pid, mine, begin_ns)
    return tuple(_bucket(mine, ready_ns, begin_ns, slice(k, None, per_iteration)) for k in range(per_iteration))


def _bucket(mine: Buckets, ready_ns: Int64, iteration_ns: Int64, k: slice) -> BucketAnatomy:
    origin, matched = iteration_ns[k], mine.from_collective[k] == 1
    ready, size = ready_ns[k], mine.bytes[k]
    seen = ready != UNKNOWN
    return BucketAnatomy(
        bytes=int(np.median(size[size != UNKNOWN])) if (size != UNKNOWN).any() else None,
        ready=_spread(ready[seen] - origin[seen]) if seen.any() else None,
        launch=_spread(mine.launch_ns[k] - origin),
        begin=_spread(mine.begin_ns[k][matched] - origin[matched]) if matched.any() else None,
        end=_spread(mine.end_ns[k] - origin),
        unpacked=_spread(mine.unpacked_ns[k] - origin),
    )


def _ready(evidence: Evidence, pid: int, mine: Buckets, iteration_ns: Int64) -> Int64:
    """Return the time of the last gradient before each launch and inside its iteration, UNKNOWN if none was seen."""
    marks = evidence.marks
    times = marks.time_ns[(marks.pid == pid) & (marks.kind == int(MarkKind.GRADIENT_READY))]
    if len(times) == 0:
        return np.full(len(mine), UNKNOWN, np.int64)
    index = np.searchsorted(times, mine.launch_ns, "right") - 1
    ready_ns = times[np.maximum(index, 0)]
    return np.where((index >= 0) & (ready_ns >= iteration_ns), ready_ns, UNKNOWN)


def _profile(evidence: Evidence, typical: Iterations, link: LinkKey, idle: Mapping[str, Intervals]) -> LinkProfile:
    length_ns = int(np.median(typical.duration_ns))
    columns = int(np.clip(length_ns // evidence.meta.bin_ns, 1, _MOST_COLUMNS))
    offsets = np.linspace(0, length_ns, columns + 1).astype(np.int64)
    at_ns = typical.begin_ns[:, None] + offsets  # shape (iterations, columns + 1)
    width_s = np.diff(offsets) / 1e9
    rates = []
    for direction in (TRANSMIT, RECEIVE):
        bits = np.diff(_bytes_until(evidence.links.lanes.of_link(link, direction), at_ns), axis=1) * 8.0
        rates.append(np.percentile(bits / width_s, [10, 50, 90], axis=0))
    shares = {
        cause: np.diff(covered_until(spans, at_ns), axis=1).mean(axis=0) / np.diff(offsets)
        for cause, spans in idle.items()
    }
    return LinkProfile(offsets / 1e9, rates[0], rates[1], shares)


def _bytes_until(bins: Bins | None, at_ns: Int64) -> Float64:
    """Return the bytes before each instant, a bin's spread evenly over it; shape as `at_ns`."""
    if bins is None:
        return np.zeros(at_ns.shape)
    row, held = bins.find(at_ns)
    before = np.concatenate(([0.0], np.cumsum(bins.wire_bytes, dtype=np.float64)))
    bytes_per_ns = np.append(bins.wire_bytes / bins.bin_ns, 0.0)
    return before[row] + np.where(held, bytes_per_ns[row] * (at_ns % bins.bin_ns), 0.0)


def _spread(ns: Int64) -> Percentiles:
    p10, median, p90 = np.percentile(ns, [10, 50, 90]) / 1e9
    return Percentiles(float(p10), float(median), float(p90))
