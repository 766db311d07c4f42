"""What each kind of collective moves for a byte of its buffer: nccl-tests' bandwidth factors, in one place."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from netprof.analysis.tables.columns import UNKNOWN, Float64, Int64
from netprof.schema import CollectiveKind

_ONE = (CollectiveKind.BROADCAST, CollectiveKind.REDUCE, CollectiveKind.SEND, CollectiveKind.RECEIVE)


@lru_cache(maxsize=4096)
def bus_factor(kind: int, ranks: int | None) -> float | None:
    """Return bus bandwidth over algorithm bandwidth, as nccl-tests defines it; None for an unknown or lone rank.

    All-reduce 2(n-1)/n; all-gather, reduce-scatter, all-to-all, gather and scatter (n-1)/n with the size the total
    over ranks; broadcast, reduce, send and receive 1. A barrier moves nothing.
    """
    if kind in _ONE:
        return 1.0
    if ranks is None or ranks < 2 or kind in (CollectiveKind.BARRIER, UNKNOWN):
        return None
    return (2.0 if kind == CollectiveKind.ALL_REDUCE else 1.0) * (ranks - 1) / ranks


def sent_per_byte(kind: Int64, ranks: Int64) -> Float64:
    """Return what a rank has to send for a byte of each collective's buffer among `ranks`; all of one shape.

    That is the bus factor, but for what has a root: of a broadcast, say, n-1 ranks have to get the buffer, whoever
    sends it, so the mean over the ranks is (n-1)/n.
    """
    share = (ranks - 1) / ranks
    twice = np.where(kind == CollectiveKind.ALL_REDUCE, 2 * share, share)
    return np.asarray(np.where(kind == CollectiveKind.SEND, 1.0, twice))


def sends_the_same(kind: Int64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for which kinds every rank sends the same: of what has a root, a rank's part depends on its place."""
    even = (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
    return np.isin(kind, [int(each) for each in (*even, CollectiveKind.ALL_TO_ALL)])
