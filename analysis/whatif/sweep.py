"""A sweep: scaling factor, overhead and iteration time at every point of a grid, and what reaches a goal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.whatif.costs import CostModel
from netprof.analysis.whatif.replay import Points, overhead_s
from netprof.analysis.whatif.schedule import Buckets, FloatArray
from netprof.errors import UsageError


@dataclass(frozen=True)
class Replay:
    """All that a replay needs besides the point: the buckets, their cost, and the time that is not communication."""

    buckets: Buckets
    cost: CostModel
    compute_s: float
    last_ready_s: float
    codec_s_per_byte: float = 0.0

    def overhead_s(self, points: Points) -> FloatArray:
        """Return the overhead at each point, in seconds, shape (P,)."""
        return overhead_s(self.buckets, self.cost, points, self.last_ready_s, codec_s_per_byte=self.codec_s_per_byte)


@dataclass(frozen=True)
class Sweep:
    """The points and what the replay says of each, shape (P,).

    overhead_s = last bucket done − last gradient ready; iteration_s = compute + overhead; scaling factor, against one
    worker = compute / iteration; against one host (`host_scaling_factor`) = one host's iteration / iteration.
    """

    points: Points
    overhead_s: FloatArray
    iteration_s: FloatArray
    scaling_factor: FloatArray
    host_scaling_factor: FloatArray


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
    if host_s is None:
        host_s = replay.compute_s if worker_s is None else worker_s
        if workers_per_host > 1:
            alone = Points(np.array([float(workers_per_host)]), np.array([np.inf]), np.array([1.0]))
            host_s += float(replay.overhead_s(alone)[0])
        return Baselines(replay.compute_s if worker_s is None else worker_s, host_s, worker_s is not None, False)
    return Baselines(replay.compute_s if worker_s is None else worker_s, host_s, worker_s is not None, True)


def sweep(replay: Replay, points: Points, base: Baselines | None = None) -> Sweep:
    """Replay every point. Raises UsageError for a point that cannot be meant."""
    check_points(points)
    base = base or baselines(replay, 1)
    overhead = replay.overhead_s(points)
    iteration = replay.compute_s + overhead
    return Sweep(points, overhead, iteration, base.worker_s / iteration, base.host_s / iteration)


def check_points(points: Points) -> None:
    """Raise UsageError for fewer than two workers, a bandwidth not above zero, a compression ratio below one."""
    if not np.all(points.workers >= 2):
        raise UsageError("one worker exchanges nothing, so nothing about it scales", "give --workers 2 or more")
    if not np.all(points.bandwidth_bps > 0):
        raise UsageError("a link of zero bandwidth carries nothing", "give --bandwidth above zero")
    if not np.all((points.compression >= 1) & np.isfinite(points.compression)):
        raise UsageError("a compression ratio is 1 (none) or more", "give --compression as 1,2,10, say")


def needed_compression(replay: Replay, points: Points, scaling_factor: float, worker_s: float) -> FloatArray:
    """Return, shape (P,), the smallest compression ratio that reaches `scaling_factor` against `worker_s`.

    1 where none is needed, infinite where no ratio suffices (`points.compression` is not used). In closed form: with
    x = bits' seconds after compression, the last bucket is done at max over k of (launch_k + sum of the costs from k
    on), so that each k bounds x from above.
    """
    goal_s = worker_s / scaling_factor - replay.compute_s  # the overhead that is allowed
    plain = Points(points.workers, points.bandwidth_bps, np.ones(len(points)))
    reached = replay.overhead_s(plain) <= goal_s
    if len(replay.buckets) == 0:
        return np.where(reached, 1.0, np.inf)
    workers, which = np.unique(points.workers, return_inverse=True)
    fixed_s, bits = replay.cost.coefficients(replay.buckets.bytes, workers)
    fixed_s = fixed_s + replay.codec_s_per_byte * replay.buckets.bytes[:, None]
    after_fixed = np.cumsum(fixed_s[::-1], axis=0)[::-1]
    after_bits = np.cumsum(bits[::-1], axis=0)[::-1]
    limit_s = goal_s - replay.cost.tail_s
    spare_s = limit_s + replay.last_ready_s - replay.buckets.launch_s[:, None] - after_fixed  # for the network, (K, W)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(spare_s > 0, after_bits / spare_s, np.inf)
    ratio = np.where((after_bits == 0) & (spare_s >= 0), 0.0, ratio)
    needed_bps = np.max(ratio, axis=0)[which]
    needed = np.where(
        np.isinf(needed_bps), np.inf, needed_bps / np.where(np.isinf(needed_bps), 1.0, points.bandwidth_bps)
    )
    needed = np.where(limit_s < 0, np.inf, np.maximum(needed, 1.0))
    return np.where(reached, 1.0, needed)
