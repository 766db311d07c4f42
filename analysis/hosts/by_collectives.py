"""Two clocks compared by collectives, where no stream joins the hosts: nobody is done before everybody has begun."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.every_collective import all_collectives
from netprof.analysis.events.job_ranks import world_size
from netprof.analysis.hosts.corridor import MOST_DRIFT, Line
from netprof.analysis.hosts.moved import to_reference
from netprof.analysis.tables.columns import Bool, Float64, Int64
from netprof.analysis.tables.marks import read_marks
from netprof.model import HostClock
from netprof.schema import CollectiveKind, tables
from netprof.trace import TraceSource

_MOST_MARKS = 1 << 20
"""Marks from the beginning of a trace that are looked at."""
_LOOKED_AT = 4096
"""Collectives by which the two hosts' sequences are laid side by side."""
_REALTIME_ERROR_NS = 10**10
"""How far the realtime clocks of hosts may be apart: NTP steps what is more."""
_FEWEST = 20
_CLEARLY = 3.0
"""How much better the ends have to fit than with any other shift: steps that all take the same time tell nothing."""
_FOR_ALL = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.BARRIER,
)
"""Collectives in which every rank needs something of every other one."""


def same_collectives(
    first: TraceSource, second: TraceSource, rough: HostClock
) -> tuple[Collectives, Collectives] | None:
    """Return collectives of a rank of one host, and the same ones of a rank of another, row by row.

    `rough` is what the realtime clocks say. None where the same collectives cannot be told without a doubt.
    """
    return paired(_of_trace(first), _of_trace(second), rough)


def paired(first: Collectives, second: Collectives, rough: HostClock) -> tuple[Collectives, Collectives] | None:
    """Return the same collectives of two ranks, row by row, of all that `of_whole_job` says of each."""
    pairs = _same(first, second, rough)
    return None if pairs is None else (first.where(pairs[0]), second.where(pairs[1]))


def by_ends(first: Collectives, second: Collectives) -> Line:
    """Return the line on which the ends lie: all ranks are done at about the same time.

    The drift is the median of what pairs say that are half of the time apart.
    """
    apart, half = second.end_ns - first.end_ns, len(first) // 2
    step_ns = first.end_ns[half : 2 * half] - first.end_ns[:half]
    drift = float(np.median((apart[half : 2 * half] - apart[:half]) / np.maximum(step_ns, 1)))
    drift = min(max(drift, -MOST_DRIFT), MOST_DRIFT)
    at_ns = int(first.end_ns[half])
    return Line(at_ns, float(np.median(apart - drift * (first.end_ns - at_ns))), drift)


def _of_trace(reader: TraceSource) -> Collectives:
    marks = read_marks(pa.Table.from_batches(list(_some(reader)), schema=tables()["marks"]))
    size = world_size(reader.meta.targets)
    return of_whole_job(all_collectives(marks, size).collectives, size)


def needs_all(collectives: Collectives) -> Bool:
    """Return which collectives are such that every rank needs something of every other one."""
    return np.isin(collectives.kind, [int(kind) for kind in _FOR_ALL])


def of_whole_job(every: Collectives, size: int | None) -> Collectives:
    """Return those of them that the process saw that has the most, in the order in which they were posted."""
    chosen = every.where(needs_all(every))
    chosen = (chosen if size is None else chosen.where((chosen.ranks == size) | (chosen.ranks < 0))).of_most()
    return chosen.where(np.argsort(chosen.posted_ns, kind="stable"))


def _some(reader: TraceSource) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in reader.batches("marks"):
        yield batch
        rows += batch.num_rows
        if rows > _MOST_MARKS:
            return


def _same(first: Collectives, second: Collectives, rough: HostClock) -> tuple[Int64, Int64] | None:
    """Return the rows of the same collectives on both hosts: the k-th is the k-th, but for one shift."""
    if len(first) < _FEWEST or len(second) < _FEWEST:
        return None
    apart = {shift: _apart_ns(first, second, shift) for shift in _shifts(first, second, rough)}
    order = sorted((value, shift) for shift, value in apart.items() if value is not None)
    if not order or (len(order) > 1 and order[1][0] < _CLEARLY * order[0][0]):
        return None
    return _rows(first, second, order[0][1])


def _shifts(first: Collectives, second: Collectives, rough: HostClock) -> range:
    """Return by how many collectives the sequences may be apart, if the realtime clocks are not far from right."""
    second_ns = to_reference(rough, second.end_ns)
    low, high = (
        int(np.searchsorted(second_ns, first.end_ns[0] + error)) for error in (-_REALTIME_ERROR_NS, _REALTIME_ERROR_NS)
    )
    before = int(np.searchsorted(first.end_ns, second_ns[0] + _REALTIME_ERROR_NS))
    return range(-before if low == 0 else low, high + 1)


def _rows(first: Collectives, second: Collectives, shift: int) -> tuple[Int64, Int64]:
    row = np.arange(max(0, -shift), min(len(first), len(second) - shift))
    return row, row + shift


def _apart_ns(first: Collectives, second: Collectives, shift: int) -> float | None:
    """Return how evenly far apart the ends are with a shift: the median of how that changes; None if kinds differ."""
    row, second_row = (rows[:_LOOKED_AT] for rows in _rows(first, second, shift))
    alike = (getattr(first, name)[row] == getattr(second, name)[second_row] for name in ("kind", "bytes", "backend"))
    if len(row) < _FEWEST or not all(same.all() for same in alike):
        return None
    apart: Float64 = (second.end_ns[second_row] - first.end_ns[row]).astype(np.float64)
    return float(np.median(np.abs(np.diff(apart)))) + 1.0
