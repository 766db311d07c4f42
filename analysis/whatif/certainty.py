"""How sure predictions are: intervals that hold what the recording allows as well, and what no recording tells."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from netprof.analysis.tables.columns import Float64
from netprof.analysis.whatif import text
from netprof.analysis.whatif.compression import Codec
from netprof.analysis.whatif.points import Points
from netprof.analysis.whatif.schedule import CpuTime, Observation
from netprof.analysis.whatif.sweep import Baselines, Replay, Sweep, sweep

MINUTES = 0.015
"""By how much of a step jobs differ from minute to minute, which their recorded steps do not tell.

examples/benchmarks/predict_then_throttle.py measures it: its controls.
"""

_NOTABLY = 0.02
_APART = (
    "what links took beyond their bytes goes with the link's rate or is the hosts' own time: up to {} apart, the first "
    "is shown, and the interval holds both; a recording at another rate, or with free CPUs, tells them apart"
)
_BUSY = (
    "the ranks of a machine take {} of CPU time a step for each of its CPUs: on a much faster link that is what a step "
    "takes, and the interval holds it"
)


def certain(
    replays: Sequence[Replay],
    full: Replay | None,
    codecs: Sequence[Mapping[str, Codec]],
    points: Points,
    base: Baselines,
    observed: Observation | None,
) -> tuple[Sweep, tuple[str, ...]]:
    """Return the sweep of the first replay with intervals, and what is to be said of them.

    They hold the other replays, each with each of the codecs; `full`, links that are fully used, where one of them is
    slower than the others: hosts that are late are late behind it; what the CPUs of a machine have to do for its ranks
    in a step, which a fast link does not shorten; and what jobs differ by from minute to minute.
    """
    sweeps = [
        [sweep(replace(each, pricing=replace(each.pricing, codecs=own)), points, base) for each in replays]
        for own in codecs
    ]
    found, *others = itertools.chain.from_iterable(sweeps)
    apart = max(float(np.max(np.abs(each.iteration_s / found.iteration_s - 1))) for each in sweeps[0])
    notes: tuple[str, ...] = (_APART.format(text.percent(apart)),) if apart > _NOTABLY else ()
    found = reduce(bracketed, others, found)
    if full is not None and found.iteration_low_s is not None:
        slower = full.pricing.links.legs_bps.min() < np.minimum(
            points.bandwidth_bps, full.pricing.links.recorded_bps.min()
        )
        least_s = np.where(slower, sweep(full, points, base).iteration_s, np.inf)
        found = replace(found, iteration_low_s=np.minimum(found.iteration_low_s, least_s))
    if observed is not None and observed.cpu_time is not None:
        found, said = _with_cpus(found, observed.cpu_time, observed.line_rate_bps)
        notes += said
    return _wider(found, MINUTES * found.iteration_s), notes


def _with_cpus(found: Sweep, took: CpuTime, recorded_bps: float | None) -> tuple[Sweep, tuple[str, ...]]:
    """Return a sweep whose intervals hold what CPUs have to do, and on faster links how long ranks waited for them.

    There they compute and communicate at other times, and may wait for more or for less.
    """
    points = found.points
    faster = np.zeros(len(points)) if recorded_bps is None else 1 - np.minimum(recorded_bps / points.bandwidth_bps, 1)
    share = np.where(points.method > 0, 0.0, 1.0 / points.compression)
    busy_s = took.compute_s + (took.busy_s - took.compute_s) * share  # what is not computing goes with the bytes
    notes = (_BUSY.format(text.seconds(took.busy_s)),) if (busy_s > (1 + _NOTABLY) * found.iteration_s).any() else ()
    own = _wider(found, faster * min(took.wait_s, took.compute_s))
    return bracketed(own, replace(own, iteration_high_s=busy_s + faster * took.all_wait_s)), notes


def bracketed(found: Sweep, other: Sweep) -> Sweep:
    """Return a sweep with intervals that hold another one of the same points too; none where it has none."""
    low_s, high_s, other_low_s, other_high_s = (
        bound for each in (found, other) for bound in (each.iteration_low_s, each.iteration_high_s)
    )
    if low_s is None or high_s is None or other_low_s is None or other_high_s is None:
        return found
    low_s, high_s = np.minimum(low_s, other_low_s), np.maximum(high_s, other_high_s)
    return replace(found, iteration_low_s=low_s, iteration_high_s=high_s)


def _wider(found: Sweep, by_s: Float64) -> Sweep:
    """Return a sweep whose intervals reach so much further, (P,)."""
    if found.iteration_low_s is None or found.iteration_high_s is None:
        return found
    return replace(found, iteration_low_s=found.iteration_low_s - by_s, iteration_high_s=found.iteration_high_s + by_s)
