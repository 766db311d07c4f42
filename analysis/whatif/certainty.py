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
COMPUTING = 0.1
"""By how much of what ranks compute and encode it differs from minute to minute, where no wait for the link hides that.

examples/benchmarks/predict_then_compress.py measures it: the same job with the same hook, in two sittings.
"""

_NOTABLY = 0.02
_LEAST = 0.8
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
    in a step, which a fast link does not shorten; and what jobs differ by from minute to minute, more where smaller
    gradients leave a step to what its ranks compute.
    """
    sweeps = [
        [sweep(replace(replay, pricing=replace(replay.pricing, codecs=methods)), points, base) for replay in replays]
        for methods in codecs
    ]
    swept, *others = itertools.chain.from_iterable(sweeps)
    apart = max(float(np.max(np.abs(each.iteration_s / swept.iteration_s - 1))) for each in sweeps[0])
    notes: tuple[str, ...] = (_APART.format(text.percent(apart)),) if apart > _NOTABLY else ()
    swept = reduce(bracketed, others, swept)
    if full is not None and swept.iteration_low_s is not None:
        slower = full.pricing.links.legs_bps.min() < np.minimum(
            points.bandwidth_bps, full.pricing.links.recorded_bps.min()
        )
        least_s = np.where(slower, sweep(full, points, base).iteration_s, np.inf)
        swept = replace(swept, iteration_low_s=np.minimum(swept.iteration_low_s, least_s))
    if observed is not None and observed.cpu_time is not None:
        swept, cpu_notes = _with_cpus(swept, observed.cpu_time, observed.line_rate_bps, base.worker_s)
        notes += cpu_notes
    computing_s = sweep(replays[0], replace(points, bandwidth_bps=np.full(len(points), np.inf)), base).iteration_s
    hidden_s = MINUTES * swept.iteration_s
    apart_s = np.maximum(hidden_s, COMPUTING * (1 - _left(points)) * computing_s)
    return _wider(swept, apart_s, 0.0 if swept.iteration_low_s is None else _LEAST * swept.iteration_low_s), notes


def _left(points: Points) -> Float64:
    """Return the share of the bytes that each point's compression leaves, (P,)."""
    return np.asarray(np.array([method.left for method in points.methods])[points.method] / points.compression)


def _with_cpus(
    swept: Sweep, took: CpuTime, recorded_bps: float | None, worker_s: float
) -> tuple[Sweep, tuple[str, ...]]:
    """Return a sweep whose intervals hold what CPUs have to do, and how long ranks waited for them.

    On faster links and with fewer bytes they compute and communicate at other times, and may wait for more or for less;
    but computing takes no less than the CPU time that it took, or than one worker's step where that is shorter.
    """
    points = swept.points
    faster = np.zeros(len(points)) if recorded_bps is None else 1 - np.minimum(recorded_bps / points.bandwidth_bps, 1)
    share = _left(points)
    busy_s = took.compute_s + (took.busy_s - took.compute_s) * share  # what is not computing goes with the bytes
    notes = (_BUSY.format(text.seconds(took.busy_s)),) if (busy_s > (1 + _NOTABLY) * swept.iteration_s).any() else ()
    least_s = (1 - COMPUTING) * min(took.compute_s, worker_s)
    waited = _wider(swept, np.maximum(faster, 1 - share) * min(took.wait_s, took.compute_s), least_s)
    return bracketed(waited, replace(waited, iteration_high_s=busy_s + faster * took.all_wait_s)), notes


def bracketed(swept: Sweep, alternative: Sweep) -> Sweep:
    """Return a sweep with intervals that hold another one of the same points too; none where it has none."""
    low_s, high_s = swept.iteration_low_s, swept.iteration_high_s
    least_s, most_s = alternative.iteration_low_s, alternative.iteration_high_s
    if low_s is None or high_s is None or least_s is None or most_s is None:
        return swept
    return replace(swept, iteration_low_s=np.minimum(low_s, least_s), iteration_high_s=np.maximum(high_s, most_s))


def _wider(swept: Sweep, by_s: Float64, least_s: float | Float64) -> Sweep:
    """Return a sweep whose intervals reach further by `by_s`, (P,), and not down below `least_s`."""
    if swept.iteration_low_s is None or swept.iteration_high_s is None:
        return swept
    low_s = np.maximum(swept.iteration_low_s - by_s, np.minimum(least_s, swept.iteration_low_s))
    return replace(swept, iteration_low_s=low_s, iteration_high_s=swept.iteration_high_s + by_s)
