"""A sweep: scaling factor, overhead and iteration time at every point of a grid, and what reaches a goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Bool, Float64
from netprof.analysis.whatif.points import Points, at, one
from netprof.analysis.whatif.prices import Pricing
from netprof.analysis.whatif.program import Program, slowest_compute_s
from netprof.analysis.whatif.replay import replay

_ROUNDS, _PARTS = 10, 16
"""How often what is left of the bits is divided into so many parts: as exact as 40 halvings, and the replay, which
takes as long for many points as for one, runs a quarter as often."""
_MOST_VALUES = 1 << 24
"""Of what a replay keeps: when each collective of each rank and iteration is done, at each point."""


@dataclass(frozen=True, eq=False)
class Replay:
    """All that a replay needs besides the points. `compute_s` is what the rank that computes longest takes."""

    programs: Sequence[Program]
    pricing: Pricing
    compute_s: float

    def iterations_s(self, points: Points, *, as_recorded: bool = False) -> Float64:
        """Return how much longer than `compute_s` each iteration takes, (I, P), mean over the ranks."""
        by_program = []
        for program in self.programs:
            less_s = program.compute_s - slowest_compute_s(self.programs)
            parts = []
            for part in points.parts(_MOST_VALUES // max(less_s.size * len(program), 1)):
                prices = self.pricing.of(program, part, as_recorded=as_recorded)
                parts.append((replay(program, prices, len(part)) + less_s[:, :, None]).mean(axis=0))
            by_program.append(np.concatenate(parts, axis=1))
        return np.concatenate(by_program)

    def overhead_s(self, points: Points, *, as_recorded: bool = False) -> Float64:
        """Return the overhead at each point, in seconds, shape (P,)."""
        return np.asarray(self.iterations_s(points, as_recorded=as_recorded).mean(axis=0))


@dataclass(frozen=True, eq=False)
class Sweep:
    """The points and what the replay says of each, shape (P,).

    iteration_s = compute + overhead; scaling factor, against one worker = compute / iteration; against one host
    (`host_scaling_factor`) = one host's iteration / iteration. `iteration_low_s` and `iteration_high_s` are the 5th and
    95th percentile of what the recording's own spread allows, None where a single iteration is known.
    """

    points: Points
    overhead_s: Float64
    iteration_s: Float64
    scaling_factor: Float64
    host_scaling_factor: Float64
    iteration_low_s: Float64 | None = None
    iteration_high_s: Float64 | None = None

    @property
    def least_s(self) -> float:
        """The least that an iteration may take, of all points."""
        return float((self.iteration_s if self.iteration_low_s is None else self.iteration_low_s).min())


@dataclass(frozen=True)
class Baselines:
    """Iteration time of one worker alone and of one host alone, and whether each was measured or modelled."""

    worker_s: float
    host_s: float
    worker_measured: bool
    host_measured: bool


def baselines(
    replay: Replay, workers_per_host: int, *, worker_s: float | None = None, host_s: float | None = None
) -> Baselines:
    """Return both baselines, measured where given.

    Else one worker needs the compute time alone, and one host the same plus the part of its collectives that is not on
    the network (additions, latency, copies): the replay of its own workers over an infinitely fast link.
    """
    alone_s = replay.compute_s if worker_s is None else worker_s
    if host_s is not None:
        return Baselines(alone_s, host_s, worker_s is not None, True)
    host_s = alone_s
    if workers_per_host > 1:
        host_s += float(replay.overhead_s(one(workers_per_host, np.inf))[0])
    return Baselines(alone_s, host_s, worker_s is not None, False)


def sweep(replay: Replay, points: Points, base: Baselines | None = None) -> Sweep:
    """Replay every point."""
    base = base or baselines(replay, 1)
    iterations_s = replay.iterations_s(points)
    overhead = np.asarray(iterations_s.mean(axis=0))
    iteration = replay.compute_s + overhead
    around = interval_of_mean(iterations_s)
    low, high = (None, None) if around is None else (replay.compute_s + around[0], replay.compute_s + around[1])
    return Sweep(points, overhead, iteration, base.worker_s / iteration, base.host_s / iteration, low, high)


def needed_compression(
    replay: Replay, points: Points, scaling_factor: float | Float64, worker_s: float, *, by_speed: bool = False
) -> Float64:
    """Return, shape (P,), the smallest compression ratio that reaches `scaling_factor` (one, or (P,)).

    1 where none is needed, infinite where no ratio suffices (`points.compression` is not used). What encoding costs
    counts. Found by dividing the bits that are left: the iteration never gets longer with fewer of them. `by_speed`:
    how many times as fast the links have to be instead, also for what is not compressed: all but gradients.
    """
    goal_s = worker_s / scaling_factor - replay.compute_s  # the overhead that is allowed

    def reach(share: Float64) -> Bool:
        """Return which shares of the bits, (S, P), reach the goal."""
        ratio = 1.0 / np.maximum(share, 1e-280).ravel()  # times a bandwidth it is finite
        workers, bandwidth_bps = (np.tile(axis, len(share)) for axis in (points.workers, points.bandwidth_bps))
        asked = at(workers, bandwidth_bps * ratio) if by_speed else at(workers, bandwidth_bps, ratio)
        return np.asarray(replay.overhead_s(asked).reshape(share.shape) <= goal_s)

    everything = np.ones(len(points))
    none, plain = reach(np.stack((0 * everything, everything)))
    most, least = everything, 0 * everything  # share of the bits: the goal is reached at `least`
    parts = np.arange(1, _PARTS)[:, None] / _PARTS
    for _ in range(_ROUNDS):
        width = (most - least) / _PARTS
        good = np.minimum.accumulate(reach(least + parts * (most - least)), axis=0).sum(axis=0)
        least = least + good * width
        most = least + width
    with np.errstate(divide="ignore"):
        return np.where(plain, 1.0, np.where(none & (least > 0), 1.0 / least, np.inf))


_PERCENTILES = (5.0, 95.0)
_DRAWS = 400
_FEWEST = 4


def interval_of_mean(iterations: Float64) -> tuple[Float64, Float64] | None:
    """Return the 5th and the 95th percentile of the mean over iterations, (I, P) to (P,) each.

    As many iterations are drawn anew, with replacement, some hundred times; the draws are the same for all points and
    every time. None for fewer than four iterations, which tell no spread.
    """
    count = len(iterations)
    if count < _FEWEST:
        return None
    drawn = np.random.default_rng(0).integers(count, size=(_DRAWS, count))
    weight = np.zeros((_DRAWS, count))
    np.add.at(weight, (np.arange(_DRAWS)[:, None], drawn), 1.0 / count)
    low, high = np.percentile(weight @ iterations, _PERCENTILES, axis=0)
    return low, high
