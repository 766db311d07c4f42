"""Each collective's own share of the time in which any is outstanding."""

from __future__ import annotations

import numpy as np

from netprof.analysis.tables.columns import Float64, Int64, distinct

_NS = 1e-9


def own_seconds(begin_ns: Int64, end_ns: Int64) -> Float64:
    """Return, shape (M,), the integral over each interval of 1 / (intervals outstanding at that moment), in seconds.

    Collectives that overlap share the link; counted so, their times add up to the time in which any is outstanding,
    which is what a serial link has to reproduce.
    """
    if len(begin_ns) == 0:
        return np.zeros(0)
    edges = distinct(begin_ns, end_ns)
    change = np.zeros(len(edges), dtype=np.int64)
    np.add.at(change, np.searchsorted(edges, begin_ns), 1)
    np.add.at(change, np.searchsorted(edges, end_ns), -1)
    outstanding = np.maximum(np.cumsum(change)[:-1], 1)
    shared = np.concatenate(([0.0], np.cumsum(np.diff(edges) / outstanding)))
    own = shared[np.searchsorted(edges, end_ns)] - shared[np.searchsorted(edges, begin_ns)]
    return np.asarray(own * _NS, dtype=np.float64)


def link_starts(ready_ns: Int64, begin_ns: Int64, end_ns: Int64) -> Int64:
    """Return from when on collectives occupy their link, (..., K): K of one rank and iteration.

    From when the last member had posted one (`ready_ns`), or from its begin where it queued behind an earlier one until
    then.
    """
    if begin_ns.shape[-1] == 0:
        return begin_ns
    order = np.argsort(begin_ns, axis=-1, kind="stable")
    ends = np.maximum.accumulate(np.take_along_axis(end_ns, order, axis=-1), axis=-1)
    before = np.empty_like(ends)  # when the last of those that began earlier had ended
    first = np.full_like(ends[..., :1], -1)
    np.put_along_axis(before, order, np.concatenate((first, ends[..., :-1]), axis=-1), axis=-1)
    queued = before > ready_ns
    return np.minimum(np.where(queued, np.maximum(ready_ns, begin_ns), ready_ns), end_ns)


def link_seconds(start_ns: Int64, end_ns: Int64) -> Float64:
    """Return the own time of collectives, (..., K): those of different rows have nothing to do with each other."""
    if start_ns.size == 0:
        return np.zeros(start_ns.shape)
    start, end = (each.reshape(-1, each.shape[-1]) for each in (start_ns, end_ns))
    origin = start.min(axis=1, keepdims=True)
    reach = int((end - origin).max()) + 1
    apart = np.arange(len(start))[:, None] * reach - origin  # one row after another, none touching the next
    return own_seconds((start + apart).ravel(), (end + apart).ravel()).reshape(start_ns.shape)
