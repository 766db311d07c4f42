"""Each collective's own share of the time in which any is outstanding."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from netprof.analysis.whatif.schedule import FloatArray

_NS = 1e-9


def own_seconds(begin_ns: npt.NDArray[np.int64], end_ns: npt.NDArray[np.int64]) -> FloatArray:
    """Return, shape (M,), the integral over each interval of 1 / (intervals outstanding at that moment), in seconds.

    Collectives that overlap share the link; counted so, their times add up to the time in which any is outstanding,
    which is what a serial link has to reproduce.
    """
    if len(begin_ns) == 0:
        return np.zeros(0)
    edges = np.unique(np.concatenate((begin_ns, end_ns)))
    change = np.zeros(len(edges), dtype=np.int64)
    np.add.at(change, np.searchsorted(edges, begin_ns), 1)
    np.add.at(change, np.searchsorted(edges, end_ns), -1)
    outstanding = np.maximum(np.cumsum(change)[:-1], 1)
    shared = np.concatenate(([0.0], np.cumsum(np.diff(edges) / outstanding)))
    own = shared[np.searchsorted(edges, end_ns)] - shared[np.searchsorted(edges, begin_ns)]
    return np.asarray(own * _NS, dtype=np.float64)
