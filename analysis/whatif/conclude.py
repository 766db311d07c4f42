"""The one sentence under the table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.whatif import text
from netprof.analysis.whatif.points import grid, one
from netprof.analysis.whatif.schedule import Observation
from netprof.analysis.whatif.sweep import Baselines, Replay, needed_compression

_NEGLIGIBLE = 0.05  # a share of an iteration below which nothing is worth changing
_MOST = 0.5
_GOAL = 0.90
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


def conclude(at: Standpoint, replay: Replay, base: Baselines) -> str:
    """Return the conclusion: what the network costs at `at`, and what would give it back."""
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
    return f"{start}{why}. {_way_out(at, replay, base)}."


def _way_out(at: Standpoint, replay: Replay, base: Baselines) -> str:
    """Say which compression reaches the goal here, or that none does."""
    needed = float(needed_compression(replay, one(at.workers, at.bandwidth_bps), _GOAL, base.worker_s)[0])
    if needed <= 1:
        return f"A scaling factor of {_GOAL:.2f} is reached without compression"
    if np.isinf(needed):
        return f"However fast the link or strong the compression, {_best(at, replay, base)}"
    smaller = f"A scaling factor of {_GOAL:.2f} takes gradients {text.ratio(needed)} smaller"
    faster_bps = at.bandwidth_bps * needed
    if float(replay.pricing.links.legs_bps.min()) < faster_bps:
        return f"{smaller}: a faster link for the others would not do"
    return f"{smaller} or a link of {text.rate(faster_bps)}"


def _best(at: Standpoint, replay: Replay, base: Baselines) -> str:
    """Say what is left when the network takes no time: over a link without limit, or of gradients without size.

    The first leaves a leg that is held to a rate as it is, the second what compressing computes.
    """
    points = grid([at.workers], [np.inf], [1.0, _NOTHING])
    best_s = replay.compute_s + float(replay.overhead_s(points).min())
    return f"the scaling factor stays below {text.factor(base.worker_s / best_s)}: the rest is not the network's"
