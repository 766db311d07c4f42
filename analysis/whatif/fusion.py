"""Fusion policies: which gradients travel together, and when they are launched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from netprof.analysis.whatif.program import GradBuckets
from netprof.analysis.whatif.schedule import GradientSchedule
from netprof.errors import NetprofError, UsageError

MIB = 1 << 20
_PAPER_TIMEOUT_S = 5e-3
_PAPER_BYTES = 64 * MIB
_ROUNDING = 1e-9  # waits are differences of sums: five waits of 1 ms must still count as 5 ms

POLICIES = ("paper", "horovod", "ddp", "none", "observed")


@dataclass(frozen=True)
class FusionSettings:
    """The settable parts of the policies, with each framework's defaults (Horovod's are those of the paper's version).

    `cycle_s` and `threshold_bytes` belong to `horovod`, `first_bucket_bytes` and `bucket_bytes` to `ddp`.
    """

    cycle_s: float = 5e-3
    threshold_bytes: int = 64 * MIB
    first_bucket_bytes: int = 1 * MIB
    bucket_bytes: int = 25 * MIB

    def __post_init__(self) -> None:
        if self.cycle_s <= 0:
            raise UsageError(f"a fusion cycle of {self.cycle_s} s never ends", "give a cycle time above zero")
        if min(self.threshold_bytes, self.first_bucket_bytes, self.bucket_bytes) <= 0:
            raise UsageError("a fusion buffer of zero bytes holds nothing", "give a threshold above zero")


def fuse(schedule: GradientSchedule, policy: str, settings: FusionSettings | None = None) -> GradBuckets:
    """Return the buckets that `policy` makes of a schedule's gradients.

    Raises UsageError for an unknown policy, NetprofError where the schedule lacks what the policy needs.
    """
    if policy == "observed":
        if schedule.observed is None:
            raise UsageError("only a trace has observed buckets", "choose --fusion paper, horovod, ddp or none")
        return schedule.observed.pace
    if policy not in _MAKERS:
        raise UsageError(f"'{policy}' is not a fusion policy", f"choose one of {', '.join(POLICIES)}")
    if len(schedule.ready_s) == 0:
        raise NetprofError(
            f"no gradient-ready times were recorded, and --fusion {policy} needs them",
            "use --fusion observed, which starts from the trace's own buckets",
        )
    return _MAKERS[policy](schedule, settings or FusionSettings())


def _paper(schedule: GradientSchedule, settings: FusionSettings) -> GradBuckets:
    """Flush when the waits since the last flush reach 5 ms or the bytes 64 MiB, this gradient included.

    The artifact's rule (`sim_with_compression_comm.py` of arXiv 2006.10103): the timeout is looked at only when a
    gradient arrives, and whatever is left goes last.
    """
    del settings
    launches, sizes = [], []
    waited = held = previous = 0.0
    for ready, size in zip(schedule.ready_s, schedule.bytes, strict=True):
        waited, held, previous = waited + (ready - previous), held + size, ready
        if waited >= _PAPER_TIMEOUT_S * (1 - _ROUNDING) or held >= _PAPER_BYTES:
            launches.append(ready)
            sizes.append(held)
            waited = held = 0.0
    return _finish(launches, sizes, float(schedule.ready_s[-1]), held)


def _horovod(schedule: GradientSchedule, settings: FusionSettings) -> GradBuckets:
    """At each tick of the cycle timer, launch all that is ready, in buckets that do not exceed the threshold.

    Ticks are counted from the schedule's origin. A gradient larger than the threshold travels alone. As in Horovod,
    a gradient waits for the next tick, so that even an infinitely fast link leaves up to one cycle of overhead.
    """
    ticks = np.ceil(schedule.ready_s / settings.cycle_s - _ROUNDING)
    launches, sizes = [], []
    held, tick, launch = 0.0, 0.0, 0.0
    for ready, due, size in zip(schedule.ready_s, ticks, schedule.bytes, strict=True):
        if held and (due != tick or held + size > settings.threshold_bytes):
            launches.append(launch)
            sizes.append(held)
            held = 0.0
        held, tick, launch = held + size, float(due), max(float(due) * settings.cycle_s, float(ready))
    return _finish(launches, sizes, launch, held)


def _ddp(schedule: GradientSchedule, settings: FusionSettings) -> GradBuckets:
    """Close a bucket once it holds its limit (the gradient that reaches it included), the first one being smaller.

    torch's `compute_bucket_assignment_by_size`, on gradients in ready order (what DDP's buckets are rebuilt to after
    the first iteration).
    """
    launches, sizes = [], []
    held, limit = 0.0, settings.first_bucket_bytes
    for ready, size in zip(schedule.ready_s, schedule.bytes, strict=True):
        held += size
        if held >= limit:
            launches.append(ready)
            sizes.append(held)
            held, limit = 0.0, settings.bucket_bytes
    return _finish(launches, sizes, float(schedule.ready_s[-1]), held)


def _none(schedule: GradientSchedule, settings: FusionSettings) -> GradBuckets:
    """Every gradient is a bucket of its own."""
    del settings
    return GradBuckets(schedule.ready_s, schedule.bytes)


def _finish(launches: list[float], sizes: list[float], last_s: float, held: float) -> GradBuckets:
    if held:
        launches, sizes = [*launches, last_s], [*sizes, held]
    return GradBuckets(np.array(launches, dtype=np.float64), np.array(sizes, dtype=np.float64))


_MAKERS: dict[str, Callable[[GradientSchedule, FusionSettings], GradBuckets]] = {
    "paper": _paper,
    "horovod": _horovod,
    "ddp": _ddp,
    "none": _none,
}
