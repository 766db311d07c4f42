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


def link_seconds(ready_ns: Int64, begin_ns: Int64, end_ns: Int64) -> Float64:
    """Return the own time of collectives, (N, K): N rows that have nothing to do with each other.

    A collective occupies its link from when the last member had posted it (`ready_ns`), or from its begin where it
    queued behind an earlier one until then.
    """
    rows, count = ready_ns.shape
    if count == 0:
        return np.zeros((rows, 0))
    order = np.argsort(begin_ns, axis=1, kind="stable")
    ends = np.maximum.accumulate(np.take_along_axis(end_ns, order, axis=1), axis=1)
    before = np.empty_like(ends)  # when the last of those that began earlier had ended
    np.put_along_axis(before, order, np.concatenate((np.full((rows, 1), -1), ends[:, :-1]), axis=1), axis=1)
    queued = before > ready_ns
    start = np.minimum(np.where(queued, np.maximum(ready_ns, begin_ns), ready_ns), end_ns)
    origin = start.min(axis=1, keepdims=True)
    reach = int((end_ns - origin).max()) + 1
    apart = np.arange(rows)[:, None] * reach - origin  # one row after another, none touching the next
    return own_seconds((start + apart).ravel(), (end_ns + apart).ravel()).reshape(rows, count)
