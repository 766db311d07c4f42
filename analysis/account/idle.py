"""Idle link time by cause (`definitions.IDLE`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.definitions import IDLE_THRESHOLD
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.intervals import NOTHING, Intervals, merge
from netprof.analysis.wire.bins import Bins, quiet_time


@dataclass(frozen=True)
class States:
    """What the ranks on a link are doing: four disjoint sets of time that together are the window."""

    no_gradient: Intervals
    gradients_waiting: Intervals
    nothing_outstanding: Intervals
    after_last_byte: Intervals

    @property
    def window(self) -> Intervals:
        """The time in which at least one of the link's ranks is inside a whole iteration."""
        return self.no_gradient | self.gradients_waiting | self.nothing_outstanding | self.after_last_byte


@dataclass(frozen=True)
class IdleTime:
    """Idle time by cause, ns; the causes add up to `total_ns` exactly, and are None where no iteration is known."""

    total_ns: int
    no_gradient_ns: int | None
    gradients_waiting_ns: int | None
    nothing_outstanding_ns: int | None
    after_last_byte_ns: int | None


def link_states(iterations: Iterations, outstanding: Mapping[int, Intervals], pids: Sequence[int]) -> States:
    """Return what the processes on a link are doing over time, the most urgent state of any winning.

    The order is: gradients waiting, nothing outstanding (between buckets), no gradient yet, after the last byte.
    """
    waiting = between = before = after = NOTHING
    for pid in pids:
        own = iterations.where(iterations.pid == pid)
        times = outstanding.get(pid, NOTHING)
        first, last = _first_and_last(own, times)
        waiting |= times
        between |= merge(first, last)
        before |= merge(own.begin_ns, first)
        after |= merge(last, own.end_ns)
    between -= waiting
    before -= waiting | between
    after -= waiting | between | before
    return States(before, waiting, between, after)


def idle_time(
    lanes: Sequence[Bins | None], line_rate_bps: float | None, bin_ns: int, window: Intervals, states: States | None
) -> IdleTime:
    """Return how long all `lanes` were idle at once within `window`, by the cause that `states` give.

    A bin is idle below IDLE_THRESHOLD of line rate; where no line rate is known, only a bin without any packet is.
    """
    threshold_bytes = IDLE_THRESHOLD * (line_rate_bps or 0.0) * bin_ns / 8e9
    quiet = quiet_time([(lane, threshold_bytes) for lane in lanes], window, bin_ns)
    if states is None:
        return IdleTime(quiet.within(window), None, None, None, None)
    causes = (states.no_gradient, states.gradients_waiting, states.nothing_outstanding, states.after_last_byte)
    return IdleTime(quiet.within(window), *(quiet.within(cause) for cause in causes))


def _first_and_last(own: Iterations, times: Intervals) -> tuple[Int64, Int64]:
    """Return for each iteration when something is first outstanding in it and when last; both its end if never."""
    if len(times) == 0:
        return own.end_ns, own.end_ns
    following = np.searchsorted(times.end_ns, own.begin_ns, "right")
    first = np.append(times.begin_ns, np.iinfo(np.int64).max)[following]
    first = np.clip(first, own.begin_ns, own.end_ns)
    preceding = np.searchsorted(times.begin_ns, own.end_ns, "left") - 1
    last = np.clip(times.end_ns[np.maximum(preceding, 0)], first, own.end_ns)
    return first, last
