"""The last whole iterations of every process, continued with every look at a growing recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from netprof.analysis.events.iterations import Iterations
from netprof.analysis.tables.columns import Int64, by_pid, concatenate, empty
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind

HISTORY = 100
"""Iterations of each process that are remembered."""


_FENCE = 3.0  # quartile distances beyond the third quartile: from there on a duration is an outlier (Tukey, 1977)
_PACE_NS, _ANOTHER_PACE = 3 * 10**9, 0.05
_PHASES = ("forward_phase_ns", "backward_phase_ns", "exposed_phase_ns")
_USUALLY = (0.1, 0.5, 0.9)
_LEAST_SPREAD = 0.05  # of the median: so that noise does not look like news


@dataclass(frozen=True, eq=False)
class PastIterations(Iterations):
    """The last whole iterations of every process, by process and time; `number` counts its steps since the attach."""

    number: Int64 = field(kw_only=True)


def usual_range_ns(durations_ns: Int64) -> tuple[int, int]:
    """Return the shortest and the longest duration, leaving out those that are far longer than the rest."""
    first, median, third = np.percentile(durations_ns, [25, 50, 75])
    fence = third + _FENCE * max(third - first, _LEAST_SPREAD * median)
    usual = durations_ns[durations_ns <= fence]
    low, high = int(usual.min()), int(usual.max())
    return low, max(high, round(low * (1 + 2 * _LEAST_SPREAD)))


def continued(past: PastIterations, iterations: Iterations, marks: Marks, steps: Mapping[int, int]) -> PastIterations:
    """Put the iterations found in `marks` behind the past ones; where both know one, the newer look is right.

    `steps` counts each process's `ddp_wait` marks since the attach.
    """
    parts, waits = [], dict(by_pid(marks.of(MarkKind.DDP_WAIT)))
    known, seen = dict(by_pid(past)), dict(by_pid(iterations))
    for pid in known | seen:
        new, old = seen.get(pid), known.get(pid, empty(PastIterations))
        if new is not None:
            old = old.where(old.begin_ns < new.begin_ns[0])
            number = _numbers(new, old, waits.get(pid, empty(Marks)), steps.get(pid, 0))
            numbered = PastIterations(
                **{name: getattr(new, name) for name in Iterations.__dataclass_fields__}, number=number
            )
            old = concatenate(PastIterations, [old, numbered])
        parts.append(old.where(np.arange(max(0, len(old) - HISTORY), len(old))))
    return concatenate(PastIterations, parts)


def _numbers(new: Iterations, old: PastIterations, waits: Marks, steps: int) -> Int64:
    """Number iterations by their process's `ddp_wait` marks, `steps` so far; where it has none, go on counting.

    So too where several models wait in an iteration.
    """
    if steps and len(np.unique(waits.arg0)) == 1:
        return np.asarray(steps - (len(waits) - np.searchsorted(waits.time_ns, new.wait_ns, "right")))
    return np.arange(len(new)) + (int(old.number[-1]) + 1 if len(old) else 1)


def has_changed(past: PastIterations, through_ns: int) -> bool:
    """Say whether the iterations of the last seconds differ from those of some seconds before.

    They take another time; or one process spends it otherwise, as one does that comes late to what took time anyway.
    """
    if len(past) == 0:
        return False
    length_ns = min(_PACE_NS, (through_ns - int(past.begin_ns.min())) // 3)
    is_now = past.end_ns > through_ns - length_ns
    now, before = past.where(is_now), past.where(~is_now & (past.end_ns > through_ns - 3 * length_ns))
    if not (len(now) and len(before)):
        return False
    pace, was = (float(np.median(each.duration_ns)) for each in (now, before))
    return abs(pace - was) > _ANOTHER_PACE * was or _is_spent_otherwise(now, before, _ANOTHER_PACE * was)


def _is_spent_otherwise(now: PastIterations, before: PastIterations, least_ns: float) -> bool:
    """Say whether a phase of some process usually takes that much longer or shorter, as it hardly ever did before."""
    both = np.intersect1d(now.pid, before.pid)
    now, before = (each.where(np.isin(each.pid, both)) for each in (now, before))
    for name in _PHASES:
        low, middle, high = (_quantiles(getattr(before, name), before.pid, share) for share in _USUALLY)
        value = _quantiles(getattr(now, name), now.pid, 0.5)
        if (((value < low) | (value > high)) & (np.abs(value - middle) > least_ns)).any():
            return True
    return False


def _quantiles(values: Int64, pid: Int64, share: float) -> Int64:
    """Return of each process the value that this share of its values is not above; ascending by pid."""
    order = np.lexsort((values, pid))
    _, first, count = np.unique(pid[order], return_index=True, return_counts=True)
    return np.asarray(values[order][first + ((count - 1) * share).astype(np.int64)])
