"""What a sweep means for the job: the measured point, the goals, one sentence, and the curves to plot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from netprof.analysis.whatif.bucket_sizes import BucketSize
from netprof.analysis.whatif.fit import AlphaBeta
from netprof.analysis.whatif.points import Points, at
from netprof.analysis.whatif.schedule import Observation
from netprof.analysis.whatif.sweep import Baselines, Replay, Sweep, needed_compression
from netprof.analysis.whatif.transport import Spoken

GOALS = (0.90, 0.95, 0.99)


@dataclass(frozen=True)
class Goal:
    """The smallest compression ratio that reaches `scaling_factor`: 1 means none needed, None that none suffices."""

    workers: int
    bandwidth_bps: float
    scaling_factor: float
    compression: float | None


@dataclass(frozen=True)
class Series:
    """A curve to plot: scaling factor and iteration time over link speed, for a worker count and a compression.

    The interval of the iteration time is empty where it is unknown.
    """

    workers: int
    compression: str
    bandwidth_bps: tuple[float, ...]
    scaling_factor: tuple[float, ...]
    iteration_s: tuple[float, ...]
    iteration_low_s: tuple[float, ...] = ()
    iteration_high_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class Answer:
    """Everything `netprof whatif` shows.

    `policy` and `transport` name the models used; `wire_source` says which wire bytes ("observed" or "algorithm").
    `measured_model_s` is the replay's iteration time at the measured point, and `full_use_s` with the link fully used
    there; both None where there is no measured point.
    """

    sweep: Sweep
    goals: tuple[Goal, ...]
    base: Baselines
    policy: str
    transport: str
    wire_source: str
    conclusion: str
    observed: Observation | None = None
    measured_model_s: float | None = None
    full_use_s: float | None = None
    fits: Mapping[Spoken, AlphaBeta] = field(default_factory=dict)
    bucket_sizes: tuple[BucketSize, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def main_fit(self) -> tuple[Spoken, AlphaBeta] | None:
        """The fit that most of the recorded bytes rest on."""
        return max(self.fits.items(), key=lambda item: item[1].total_bytes, default=None)


def goals(replay: Replay, points: Points, base: Baselines) -> tuple[Goal, ...]:
    """Return, for every pair of workers and bandwidth among the points, the ratio that each of GOALS needs."""
    pairs = sorted(set(zip(points.workers.tolist(), points.bandwidth_bps.tolist(), strict=True)))
    rows = [(workers, bandwidth, goal) for workers, bandwidth in pairs for goal in GOALS]
    table = np.array(rows, dtype=np.float64).T
    found = needed_compression(replay, at(table[0], table[1]), table[2], base.worker_s)
    return tuple(
        Goal(int(workers), bandwidth, goal, float(ratio) if np.isfinite(ratio) else None)
        for (workers, bandwidth, goal), ratio in zip(rows, found.tolist(), strict=True)
    )


def plot_series(result: Sweep) -> tuple[Series, ...]:
    """Return the sweep as curves over ascending link speed, one for every worker count and compression ratio."""
    points, labels = result.points, np.array(result.points.labels)
    keys = dict.fromkeys(zip(points.workers.tolist(), labels.tolist(), strict=True))
    interval = (result.iteration_low_s, result.iteration_high_s)
    curves = []
    for workers, label in keys:
        chosen = np.flatnonzero((points.workers == workers) & (labels == label))
        chosen = chosen[np.argsort(points.bandwidth_bps[chosen], kind="stable")]
        curves.append(
            Series(
                int(workers),
                label,
                tuple(points.bandwidth_bps[chosen].tolist()),
                tuple(result.scaling_factor[chosen].tolist()),
                tuple(result.iteration_s[chosen].tolist()),
                *(() if low is None else tuple(low[chosen].tolist()) for low in interval),
            )
        )
    return tuple(curves)
