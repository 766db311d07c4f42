"""Gradient-ready marks as a schedule for the fusion policies other than `observed`."""

from __future__ import annotations

import numpy as np

from netprof.analysis.events.iterations import Iterations
from netprof.analysis.tables.marks import Marks
from netprof.analysis.whatif.schedule import Buckets, FloatArray
from netprof.schema import MarkKind

_NS = 1e-9
_NOTE = (
    "gradient-ready times are from {count} sampled iterations; the marks hold no sizes, so each bucket's bytes are "
    "spread evenly over the gradients that became ready since the bucket before it"
)


def gradients_of(
    marks: Marks, iterations: Iterations, pid: int, buckets: Buckets
) -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
    """Return ready times after the iteration's begin and bytes, shape (G,), and what is assumed; G = 0 without marks.

    Averaged over the sampled iterations in which as many gradients as usual became ready; those of rank `pid`, or of
    the first rank that was sampled.
    """
    ready = marks.of(MarkKind.GRADIENT_READY)
    sampled = np.unique(ready.pid)
    if len(sampled) == 0 or len(buckets) == 0:
        return np.zeros(0), np.zeros(0), ()
    rank = pid if pid in sampled else int(sampled[0])
    own, times = iterations.where(iterations.pid == rank), ready.time_ns[ready.pid == rank]
    row = np.searchsorted(own.begin_ns, times, "right") - 1
    inside = (row >= 0) & (times <= own.wait_ns[np.maximum(row, 0)])
    row, times = row[inside], times[inside]
    if len(row) == 0:
        return np.zeros(0), np.zeros(0), ()
    counts = np.bincount(row, minlength=len(own))
    usual = int(np.bincount(counts[counts > 0]).argmax())
    kept = np.flatnonzero(counts == usual)
    at_s = (times[np.isin(row, kept)].reshape(len(kept), usual) - own.begin_ns[kept][:, None]) * _NS
    mean_s = at_s.mean(axis=0)
    return mean_s, _spread(mean_s, buckets), (_NOTE.format(count=len(kept)),)


def _spread(ready_s: FloatArray, buckets: Buckets) -> FloatArray:
    """Spread each bucket's bytes evenly over the gradients ready since the launch before it; none is lost."""
    owner = np.minimum(np.searchsorted(buckets.launch_s, ready_s, "left"), len(buckets) - 1)
    size = np.zeros(len(ready_s))
    carried = 0.0
    for k in range(len(buckets)):
        mine = np.flatnonzero(owner == k)
        carried += float(buckets.bytes[k])
        if len(mine):
            size[mine] = carried / len(mine)
            carried = 0.0
    size[-1] += carried  # buckets after the last gradient's
    return size
