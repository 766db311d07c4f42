"""Idle link time by cause (`definitions.IDLE`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from netprof.analysis.account.causes import CAUSES, UNEXPLAINED, Cause
from netprof.analysis.declared import added
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.intervals import NOTHING, Intervals, merge


@dataclass(frozen=True)
class CauseTimes:
    """When which cause explains that a link is idle: four disjoint sets of time that together are the window."""

    no_gradient: Intervals
    gradients_waiting: Intervals
    nothing_outstanding: Intervals
    after_last_byte: Intervals

    def of(self, cause: Cause) -> Intervals:
        """Return when one cause applies."""
        return cast(Intervals, getattr(self, cause.name))

    @property
    def window(self) -> Intervals:
        """The time in which at least one of the link's ranks is inside a whole iteration."""
        return self.no_gradient | self.gradients_waiting | self.nothing_outstanding | self.after_last_byte

    def within(self, times: Intervals) -> CauseTimes:
        """Return what of it lies in some time."""
        return CauseTimes(*(self.of(cause) & times for cause in CAUSES))


@dataclass(frozen=True)
class IdleTime:
    """Idle time by cause, ns; the causes add up to `total_ns` exactly, and are None where no iteration is known."""

    total_ns: int
    no_gradient_ns: int | None
    gradients_waiting_ns: int | None
    nothing_outstanding_ns: int | None
    after_last_byte_ns: int | None

    def __add__(self, other: IdleTime) -> IdleTime:
        """Return both together; a cause is unknown where it is in either."""
        return IdleTime(**added((self, other), " ".join(self.__dataclass_fields__)))

    @property
    def none(self) -> IdleTime:
        """The same where no time is idle."""
        return IdleTime(0, *(None if self.of(cause) is None else 0 for cause in CAUSES))

    def of(self, cause: Cause) -> int | None:
        """Return the idle time of one cause."""
        return cast("int | None", getattr(self, f"{cause.name}_ns"))


def cause_times(iterations: Iterations, outstanding: Mapping[int, Intervals], pids: Sequence[int]) -> CauseTimes:
    """Return what the processes on a link wait for over time, the most urgent cause of any winning.

    The order is: gradients waiting, nothing outstanding (between buckets), no gradient yet, after the last byte.
    """
    waiting = between = before = after = NOTHING
    for pid in pids:
        steps = iterations.of_pid(pid)
        times = outstanding.get(pid, NOTHING)
        first, last = _first_and_last(steps, times)
        waiting |= times
        between |= merge(first, last)
        before |= merge(steps.begin_ns, first)
        after |= merge(last, steps.end_ns)
    between -= waiting
    before -= waiting | between
    after -= waiting | between | before
    return CauseTimes(before, waiting, between, after)


def idle_spans(busy: Intervals, window: Intervals, times: CauseTimes | None) -> dict[str, Intervals]:
    """Return when a link that is `busy` at times is idle within `window`, by the name of the cause that applies.

    The spans are disjoint; where no iteration is known (`times` is None) there is one cause.
    """
    idle = window - busy
    if times is None:
        return {UNEXPLAINED.name: idle}
    return {cause.name: idle & times.of(cause) for cause in CAUSES}


def idle_time(busy: Intervals, window: Intervals, times: CauseTimes | None) -> IdleTime:
    """Return how long a link that is `busy` at times is idle within `window`, by cause."""
    spans = idle_spans(busy, window, times)
    total_ns = sum(each.total_ns for each in spans.values())
    return IdleTime(total_ns, *(spans[cause.name].total_ns if times else None for cause in CAUSES))


def _first_and_last(iterations: Iterations, times: Intervals) -> tuple[Int64, Int64]:
    """Return for each iteration when something is first outstanding in it and when last; both its end if never."""
    if len(times) == 0:
        return iterations.end_ns, iterations.end_ns
    following = np.searchsorted(times.end_ns, iterations.begin_ns, "right")
    first = np.append(times.begin_ns, np.iinfo(np.int64).max)[following]
    first = np.clip(first, iterations.begin_ns, iterations.end_ns)
    preceding = np.searchsorted(times.begin_ns, iterations.end_ns, "left") - 1
    last = np.clip(times.end_ns[np.maximum(preceding, 0)], first, iterations.end_ns)
    return first, last
