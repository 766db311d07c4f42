"""Steps from when all ranks are level to when they are again: what one computes longer in, the others wait for in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from netprof.analysis.events.iterations import Iterations
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.intervals import NOTHING, Intervals, Windows, overlap


class LevelSteps(NamedTuple):
    """From when to when each iteration lasts as a step of all ranks, and how much of that is exposed; ns.

    An iteration begins with a rank's own forward pass, and ranks begin theirs apart: one that comes late computes for
    longer in its iteration before, and the others wait in the one after. From last wait to last wait both are in one.
    An iteration that follows none begins itself; `known` is False there.
    """

    begin_ns: Int64
    end_ns: Int64
    exposed_ns: Int64
    known: np.ndarray[tuple[int], np.dtype[np.bool_]]


def level_steps(iterations: Iterations, waits: Intervals) -> LevelSteps:
    """Return the steps of one process; `waits` is when it waits for communication."""
    end = _last_wait_over(iterations, waits)
    follows = np.zeros(len(iterations), bool)
    follows[1:] = iterations.begin_ns[1:] == iterations.end_ns[:-1]
    begin = np.where(follows, np.concatenate((iterations.begin_ns[:1], end[:-1])), iterations.begin_ns)
    return LevelSteps(begin, end, overlap(waits, begin, end), follows)


def level_windows(begin_ns: Int64, end_ns: Int64, done_ns: Int64) -> Windows:
    """Return the iterations of one process from when all ranks are done waiting to when they are again.

    So a rank that begins one late and those that wait for it then are of one window. What follows none begins itself.
    """
    since_ns = begin_ns.copy()
    since_ns[1:] = np.where(begin_ns[1:] == end_ns[:-1], done_ns[:-1], begin_ns[1:])
    return Windows(since_ns, done_ns)


def level_columns(iterations: Iterations, waits: Mapping[int, Intervals]) -> tuple[Int64, Int64, Int64]:
    """Return how long after each iteration's begin all ranks are level, how long it lasts as such a step, and how much
    of that is exposed; the last two are 0 where that is not known.
    """
    after, duration, exposed = (np.zeros(len(iterations), np.int64) for _ in range(3))
    for pid in np.unique(iterations.pid).tolist():
        rows = iterations.rows_of(pid)
        process_iterations = iterations.where(rows)
        steps = level_steps(process_iterations, waits.get(pid, NOTHING))
        after[rows] = steps.end_ns - process_iterations.begin_ns
        duration[rows] = np.where(steps.known, steps.end_ns - steps.begin_ns, 0)
        exposed[rows] = np.where(steps.known, steps.exposed_ns, 0)
    return after, duration, exposed


def _last_wait_over(iterations: Iterations, waits: Intervals) -> Int64:
    """Return when each iteration's last wait was over, its end where it has none."""
    index = np.searchsorted(waits.end_ns, iterations.end_ns, "right") - 1
    over = np.append(waits.end_ns, 0)[index]
    return np.where((index >= 0) & (over > iterations.begin_ns), over, iterations.end_ns)
