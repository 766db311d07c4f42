"""What a sweep means for the job: the measured point, the goals, one sentence, and the curves to plot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.whatif.fit import AlphaBeta
from netprof.analysis.whatif.replay import Points
from netprof.analysis.whatif.schedule import Observation
from netprof.analysis.whatif.sweep import Baselines, Replay, Sweep, needed_compression, sweep

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
    """A curve to plot: scaling factor and iteration time over link speed, for a worker count and a ratio."""

    workers: int
    compression: float
    bandwidth_bps: tuple[float, ...]
    scaling_factor: tuple[float, ...]
    iteration_s: tuple[float, ...]


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
    fit: AlphaBeta | None = None
    notes: tuple[str, ...] = ()


def goals(replay: Replay, points: Points, base: Baselines) -> tuple[Goal, ...]:
    """Return, for every pair of workers and bandwidth among the points, the ratio that each of GOALS needs."""
    pairs = sorted(set(zip(points.workers.tolist(), points.bandwidth_bps.tolist(), strict=True)))
    table = np.array(pairs, dtype=np.float64)
    at = Points(table[:, 0], table[:, 1], np.ones(len(pairs)))
    found = [needed_compression(replay, at, goal, base.worker_s) for goal in GOALS]
    return tuple(
        Goal(int(workers), bandwidth, goal, float(ratio[i]) if np.isfinite(ratio[i]) else None)
        for i, (workers, bandwidth) in enumerate(pairs)
        for goal, ratio in zip(GOALS, found, strict=True)
    )


def iteration_at(replay: Replay, workers: int, bandwidth_bps: float, compression: float = 1.0) -> float:
    """Return the replay's iteration time in seconds at one point."""
    point = Points(np.array([float(workers)]), np.array([bandwidth_bps]), np.array([compression]))
    return float(sweep(replay, point).iteration_s[0])


def plot_series(result: Sweep) -> tuple[Series, ...]:
    """Return the sweep as curves over ascending link speed, one for every worker count and compression ratio."""
    points = result.points
    keys = sorted(set(zip(points.workers.tolist(), points.compression.tolist(), strict=True)))
    curves = []
    for workers, compression in keys:
        chosen = np.flatnonzero((points.workers == workers) & (points.compression == compression))
        chosen = chosen[np.argsort(points.bandwidth_bps[chosen], kind="stable")]
        curves.append(
            Series(
                int(workers),
                compression,
                tuple(points.bandwidth_bps[chosen].tolist()),
                tuple(result.scaling_factor[chosen].tolist()),
                tuple(result.iteration_s[chosen].tolist()),
            )
        )
    return tuple(curves)
