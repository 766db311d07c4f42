"""Other sizes of DDP's buckets: the recorded iteration, changed by as much as the model says that the buckets do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.tables.columns import Float64
from netprof.analysis.whatif.fusion import FusionSettings, fuse
from netprof.analysis.whatif.points import Points
from netprof.analysis.whatif.prices import RankLinks
from netprof.analysis.whatif.program import GradBuckets, of_buckets
from netprof.analysis.whatif.schedule import GradientSchedule
from netprof.analysis.whatif.sweep import Baselines, Replay
from netprof.errors import UsageError


@dataclass(frozen=True)
class BucketSize:
    """One size at one link speed and worker count: how many buckets it makes, and the iteration with them."""

    bucket_bytes: int
    buckets: int
    workers: int
    bandwidth_bps: float
    iteration_s: float
    scaling_factor: float


def check_buckets(schedule: GradientSchedule) -> None:
    """Raise UsageError for a job that has no DDP buckets."""
    if schedule.observed is not None and not schedule.observed.has_ddp_buckets:
        raise UsageError(
            "--bucket-mb is about the buckets of DistributedDataParallel, and this job has none",
            "leave it out: FSDP, ZeRO and Horovod group gradients by other rules",
        )


def bucket_sizes(
    schedule: GradientSchedule,
    whole: Replay,
    recorded: GradBuckets,
    sizes: Sequence[int],
    points: Points,
    base: Baselines,
) -> tuple[BucketSize, ...]:
    """Return every size at every point; `recorded` are the buckets that `whole` replays.

    DDP's own rule makes the buckets, in the order in which gradients become ready: each closes at `bucket_cap_mb`. Only
    where that is left at its default of 25 MiB, the first one closes at 1 MiB (torch before 2.4 closed it so always).
    Raises NetprofError without gradient marks.
    """
    now_s = whole.compute_s + whole.overhead_s(points)
    before_s = _alone(schedule, whole, recorded, points)
    predictions = []
    for size in sizes:
        first = min(FusionSettings.first_bucket_bytes, size) if size == FusionSettings.bucket_bytes else size
        buckets = fuse(schedule, "ddp", FusionSettings(first_bucket_bytes=first, bucket_bytes=size))
        iteration_s = np.maximum(now_s + _alone(schedule, whole, buckets, points) - before_s, whole.compute_s)
        rows = zip(points.workers.tolist(), points.bandwidth_bps.tolist(), iteration_s.tolist(), strict=True)
        predictions += [
            BucketSize(size, len(buckets), int(workers), rate, seconds, base.worker_s / seconds)
            for workers, rate, seconds in rows
        ]
    return tuple(predictions)


def _alone(schedule: GradientSchedule, whole: Replay, buckets: GradBuckets, points: Points) -> Float64:
    """Return the overhead of buckets that nothing but the transport's model prices, on the rank that waits least."""
    compute_s = whole.compute_s  # so that what is added counts from it
    program = of_buckets(buckets, whole.pricing.workers, schedule.last_ready_s, compute_s)
    legs = float(whole.pricing.links.legs_bps.min())
    links = RankLinks(np.full(1, np.inf), np.full(1, legs))
    return replace(whole, programs=(program,), pricing=replace(whole.pricing, links=links)).overhead_s(points)
