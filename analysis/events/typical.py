"""Iterations in a few numbers: how long, how spread, and where the time of a typical one goes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.iterations import IterationTimes
from netprof.analysis.tables.columns import Int64

_AHEAD = 1.5


@dataclass(frozen=True)
class Phases:
    """Seconds of an iteration (the typical one, or the mean) by phase (`definitions.PHASES`); they add up to it."""

    forward: float
    backward: float
    exposed_communication: float
    rest: float

    @property
    def total(self) -> float:
        """The duration of the typical iteration."""
        return self.forward + self.backward + self.exposed_communication + self.rest

    @property
    def exposed_share(self) -> float:
        """Exposed communication as a share of all four."""
        return self.exposed_communication / self.total if self.total else 0.0


@dataclass(frozen=True)
class Durations:
    """How long iterations took, seconds, and the phases of a typical one and of the mean of all."""

    count: int
    median_s: float
    mean_s: float
    p10_s: float
    p90_s: float
    min_s: float
    max_s: float
    phases: Phases
    all_time: Phases

    @property
    def exposed_share(self) -> float:
        """Exposed communication as a share of the typical iteration."""
        return self.phases.exposed_share

    @property
    def exposed_share_of_all_time(self) -> float:
        """Exposed communication as a share of all iterations together: stalls now and then count in full."""
        return self.all_time.exposed_share


def durations(iterations: IterationTimes) -> Durations | None:
    """Summarise iterations of any number of processes; None without any."""
    if len(iterations) == 0:
        return None
    lengths = iterations.duration_ns
    p10, median, p90 = np.percentile(lengths, [10, 50, 90])
    return Durations(
        count=len(iterations),
        median_s=float(median) / 1e9,
        mean_s=float(lengths.mean()) / 1e9,
        p10_s=float(p10) / 1e9,
        p90_s=float(p90) / 1e9,
        min_s=int(lengths.min()) / 1e9,
        max_s=int(lengths.max()) / 1e9,
        phases=_phases(iterations, middle_half(lengths)),
        all_time=_phases(iterations),
    )


def is_ahead(lengths: Int64) -> bool:
    """Tell from how long it takes to launch iterations, in any unit, whether a host that only launches is ahead.

    It launches many at once then, and waits for them now and then: the mean is far above the median. A pause or two
    are no such waits.
    """
    usual = np.sort(lengths)[: -max(2, len(lengths) // 50)]
    return len(usual) > 0 and float(usual.mean()) > _AHEAD * float(np.median(lengths))


def middle_half(duration_ns: Int64) -> Int64:
    """Return the rows of the middle half by duration: robust against pauses, and means over it still add up."""
    order = np.argsort(duration_ns, kind="stable")
    cut = len(order) // 4
    return order[cut : len(order) - cut]


def _phases(iterations: IterationTimes, rows: Int64 | slice = slice(None)) -> Phases:
    """Return the means over some iterations; a column at a time, since there may be millions."""
    names = ("duration_ns", "forward_phase_ns", "backward_phase_ns", "exposed_phase_ns")
    whole, *parts = (float(getattr(iterations, name)[rows].mean()) / 1e9 for name in names)
    forward, backward, exposed = parts
    return Phases(forward, backward, exposed, whole - sum(parts))
