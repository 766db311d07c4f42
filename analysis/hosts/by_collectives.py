"""Two clocks compared by collectives, where no stream joins the hosts: nobody is done before everybody has begun."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.every_collective import all_collectives
from netprof.analysis.hosts.corridor import MOST_DRIFT, Line
from netprof.analysis.hosts.moved import to_reference
from netprof.analysis.tables.columns import Bool, Float64, Int64
from netprof.analysis.tables.marks import read_marks
from netprof.analysis.tables.targets import world_size
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


def same_collectives(one: TraceSource, other: TraceSource, rough: HostClock) -> tuple[Collectives, Collectives] | None:
    """Return collectives of a rank of one host, and the same ones of a rank of another, row by row.

    `rough` is what the realtime clocks say. None where the same collectives cannot be told without a doubt.
    """
    return paired(_of_trace(one), _of_trace(other), rough)


def paired(mine: Collectives, its: Collectives, rough: HostClock) -> tuple[Collectives, Collectives] | None:
    """Return the same collectives of two ranks, row by row, of all that `of_whole_job` says of each."""
    pairs = _same(mine, its, rough)
    return None if pairs is None else (mine.where(pairs[0]), its.where(pairs[1]))


def by_ends(mine: Collectives, its: Collectives) -> Line:
    """Return the line on which the ends lie: all ranks are done at about the same time.

    The drift is the median of what pairs say that are half of the time apart.
    """
    apart, half = its.end_ns - mine.end_ns, len(mine) // 2
    step_ns = mine.end_ns[half : 2 * half] - mine.end_ns[:half]
    drift = float(np.median((apart[half : 2 * half] - apart[:half]) / np.maximum(step_ns, 1)))
    drift = min(max(drift, -MOST_DRIFT), MOST_DRIFT)
    at_ns = int(mine.end_ns[half])
    return Line(at_ns, float(np.median(apart - drift * (mine.end_ns - at_ns))), drift)


def _of_trace(reader: TraceSource) -> Collectives:
    marks = read_marks(pa.Table.from_batches(list(_some(reader)), schema=tables()["marks"]))
    size = world_size(reader.meta.targets)
    return of_whole_job(all_collectives(marks, size).collectives, size)


def needs_all(found: Collectives) -> Bool:
    """Return which collectives are such that every rank needs something of every other one."""
    return np.isin(found.kind, [int(kind) for kind in _FOR_ALL])


def of_whole_job(every: Collectives, size: int | None) -> Collectives:
    """Return those of them that the process saw that has the most, in the order in which they were posted."""
    found = every.where(needs_all(every))
    found = (found if size is None else found.where((found.ranks == size) | (found.ranks < 0))).of_most()
    return found.where(np.argsort(found.posted_ns, kind="stable"))


def _some(reader: TraceSource) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in reader.batches("marks"):
        yield batch
        rows += batch.num_rows
        if rows > _MOST_MARKS:
            return


def _same(mine: Collectives, its: Collectives, rough: HostClock) -> tuple[Int64, Int64] | None:
    """Return the rows of the same collectives on both hosts: the k-th is the k-th, but for one shift."""
    if len(mine) < _FEWEST or len(its) < _FEWEST:
        return None
    apart = {shift: _apart_ns(mine, its, shift) for shift in _shifts(mine, its, rough)}
    order = sorted((value, shift) for shift, value in apart.items() if value is not None)
    if not order or (len(order) > 1 and order[1][0] < _CLEARLY * order[0][0]):
        return None
    return _rows(mine, its, order[0][1])


def _shifts(mine: Collectives, its: Collectives, rough: HostClock) -> range:
    """Return by how many collectives the sequences may be apart, if the realtime clocks are not far from right."""
    its_ns = to_reference(rough, its.end_ns)
    low, high = (
        int(np.searchsorted(its_ns, mine.end_ns[0] + error)) for error in (-_REALTIME_ERROR_NS, _REALTIME_ERROR_NS)
    )
    before = int(np.searchsorted(mine.end_ns, its_ns[0] + _REALTIME_ERROR_NS))
    return range(-before if low == 0 else low, high + 1)


def _rows(mine: Collectives, its: Collectives, shift: int) -> tuple[Int64, Int64]:
    row = np.arange(max(0, -shift), min(len(mine), len(its) - shift))
    return row, row + shift


def _apart_ns(mine: Collectives, its: Collectives, shift: int) -> float | None:
    """Return how evenly far apart the ends are with a shift: the median of how that changes; None if kinds differ."""
    row, other = (rows[:_LOOKED_AT] for rows in _rows(mine, its, shift))
    if len(row) < _FEWEST or not _alike(mine, its, row, other).all():
        return None
    apart: Float64 = (its.end_ns[other] - mine.end_ns[row]).astype(np.float64)
    return float(np.median(np.abs(np.diff(apart)))) + 1.0


def _alike(mine: Collectives, its: Collectives, row: Int64, other: Int64) -> Bool:
    same = (mine.kind[row] == its.kind[other]) & (mine.bytes[row] == its.bytes[other])
    return np.asarray(same & (mine.backend[row] == its.backend[other]))
