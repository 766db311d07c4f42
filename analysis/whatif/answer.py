"""What a sweep means for the job: the measured point, the goals, one sentence, and the curves to plot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from netprof.analysis.whatif import text
from netprof.analysis.whatif.bucket_sizes import BucketSize
from netprof.analysis.whatif.fit import AlphaBeta
from netprof.analysis.whatif.points import Points, at, grid, one
from netprof.analysis.whatif.schedule import Observation
from netprof.analysis.whatif.sweep import Baselines, Replay, Sweep, needed_compression
from netprof.analysis.whatif.transports import Spoken

GOALS = (0.90, 0.95, 0.99)


@dataclass(frozen=True)
class Goal:
    """The smallest compression ratio that reaches `scaling_factor`: 1 means none needed, None that none suffices."""

    workers: int
    bandwidth_bps: float
    scaling_factor: float
    compression: float | None


@dataclass(frozen=True)
class Curve:
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
    ratios = needed_compression(replay, at(table[0], table[1]), table[2], base.worker_s)
    return tuple(
        Goal(int(workers), bandwidth, goal, float(ratio) if np.isfinite(ratio) else None)
        for (workers, bandwidth, goal), ratio in zip(rows, ratios.tolist(), strict=True)
    )


def plot_series(result: Sweep) -> tuple[Curve, ...]:
    """Return the sweep as curves over ascending link speed, one for every worker count and compression ratio."""
    points, labels = result.points, np.array(result.points.labels)
    keys = dict.fromkeys(zip(points.workers.tolist(), labels.tolist(), strict=True))
    interval = (result.iteration_low_s, result.iteration_high_s)
    curves = []
    for workers, label in keys:
        chosen = np.flatnonzero((points.workers == workers) & (labels == label))
        chosen = chosen[np.argsort(points.bandwidth_bps[chosen], kind="stable")]
        curves.append(
            Curve(
                int(workers),
                label,
                tuple(points.bandwidth_bps[chosen].tolist()),
                tuple(result.scaling_factor[chosen].tolist()),
                tuple(result.iteration_s[chosen].tolist()),
                *(() if low is None else tuple(low[chosen].tolist()) for low in interval),
            )
        )
    return tuple(curves)


_NEGLIGIBLE = 0.05  # a share of an iteration below which nothing is worth changing
_NOTABLE = 1.03  # times what a typical step takes
_MOST = 0.5
_GOAL = 0.90
_TOLD_TIMES = 20
"""A link is named by its rate up to this multiple of the recorded one: predictions were held against few beyond it."""
_NOTHING = 1e300
"""A compression that leaves nothing."""


@dataclass(frozen=True)
class Standpoint:
    """The point a conclusion speaks about, and the replay's iteration time there, also with the link fully used.

    `is_changed`: the replay is not of what was recorded, but without its straggler.
    """

    workers: int
    bandwidth_bps: float
    model_s: float
    full_use_s: float | None = None
    observed: Observation | None = None
    is_changed: bool = False

    @property
    def iteration_s(self) -> float:
        """What an iteration takes: as it was recorded, where it was."""
        return self.model_s if self.observed is None or self.is_changed else self.observed.iteration_s


def limit(workers: int) -> Points:
    """Return the points at which the network takes no time: a link without limit, and gradients without size.

    The first leaves a leg that is held to a rate as it is, the second what compressing computes.
    """
    return grid([workers], [np.inf], [1.0, _NOTHING])


def beyond(observed: Observation | None) -> str:
    """Say what a mean step takes beyond the typical ones that are replayed; "" for next to nothing."""
    if observed is None or observed.mean_s is None or observed.mean_s < _NOTABLE * observed.iteration_s:
        return ""
    more = text.seconds(observed.mean_s - observed.iteration_s)
    return (
        f" Rare long steps (checkpoints, evaluations, pauses) add {more} to the mean of all steps, "
        f"{text.seconds(observed.mean_s)}; every step here is a typical one, without them."
    )


def conclude(at: Standpoint, replay: Replay, base: Baselines, best_s: float) -> str:
    """Return the conclusion: what the network costs at `at`, and what would give it back.

    `best_s` is the least that a step may take where the network takes no time.
    """
    total_s = at.iteration_s
    exposed_s = max(total_s - replay.compute_s, 0.0)
    share = f"{text.percent(exposed_s / total_s)} of a step of {text.seconds(total_s)}"
    where = f"({at.workers} workers on {text.rate(at.bandwidth_bps)})"
    if exposed_s < _NEGLIGIBLE * total_s:
        return (
            f"The network is not the bottleneck: waiting for it takes {share} {where}, and no link, transport or "
            "compression can gain more."
        )
    start = f"Waiting for the network takes {share} {where}"
    if at.full_use_s is None:
        why = f"; the scaling factor is {text.factor(base.worker_s / total_s)}"
    elif at.model_s - at.full_use_s >= _MOST * exposed_s:
        why = f". Most of it is the transport: the same link, fully used, would take {text.seconds(at.full_use_s)}"
    else:
        why = f". It is the link's speed: the same link, fully used, would still take {text.seconds(at.full_use_s)}"
    return f"{start}{why}. {_way_out(at, replay, base, best_s)}."


def _way_out(at: Standpoint, replay: Replay, base: Baselines, best_s: float) -> str:
    """Say which compression and which link reach the goal here, or that none does."""
    here = one(at.workers, at.bandwidth_bps)
    smaller, faster = (
        float(needed_compression(replay, here, _GOAL, base.worker_s, by_speed=by_speed)[0])
        for by_speed in (False, True)
    )
    if smaller <= 1:
        return f"A scaling factor of {_GOAL:.2f} is reached without compression"
    if np.isinf(smaller) and np.isinf(faster):
        if base.worker_s / best_s >= _GOAL:
            return f"No link or compression surely reaches a scaling factor of {_GOAL:.2f}, but the intervals hold it"
        best = f"the scaling factor stays below {text.factor(base.worker_s / best_s)}: the rest is not the network's"
        return f"However fast the link or strong the compression, {best}"
    takes, link = f"A scaling factor of {_GOAL:.2f} takes", f"a link of {text.rate(at.bandwidth_bps * faster)}"
    if faster > _TOLD_TIMES:
        link = f"a link more than {_TOLD_TIMES} times as fast"
    if np.isinf(smaller):
        return f"{takes} {link}: compressing gradients would not do"
    if np.isinf(faster):
        others = " for the others" if np.isfinite(replay.pricing.links.legs_bps).any() else ""
        return f"{takes} gradients {text.ratio(smaller)} smaller: a faster link{others} would not do"
    return f"{takes} gradients {text.ratio(smaller)} smaller or {link}"
