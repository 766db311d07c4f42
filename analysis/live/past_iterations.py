"""The last whole iterations of every process, continued with every look at a growing recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from netprof.analysis.events.iterations import Iterations
from netprof.analysis.tables.columns import Int64, concatenate
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind

HISTORY = 100
"""Iterations of each process that are remembered."""


_FENCE = 3.0  # quartile distances beyond the third quartile: from there on a duration is an outlier (Tukey, 1977)
_PACE_NS, _ANOTHER_PACE = 3 * 10**9, 0.05
_LEAST_SPREAD = 0.05  # of the median: so that noise does not look like news


@dataclass(frozen=True, eq=False)
class PastIterations(Iterations):
    """The last whole iterations of every process, by process and time; `number` counts its steps since the attach."""

    number: Int64 = field(kw_only=True)

    def of(self, pid: int) -> PastIterations:
        """Return the iterations of one process."""
        return self.where(self.pid == pid)


def usual_range_ns(durations_ns: Int64) -> tuple[int, int]:
    """Return the shortest and the longest duration, leaving out those that are far longer than the rest."""
    first, median, third = np.percentile(durations_ns, [25, 50, 75])
    fence = third + _FENCE * max(third - first, _LEAST_SPREAD * median)
    usual = durations_ns[durations_ns <= fence]
    low, high = int(usual.min()), int(usual.max())
    return low, max(high, round(low * (1 + 2 * _LEAST_SPREAD)))


def no_iterations() -> PastIterations:
    """Return the past of a recording that just began."""
    return PastIterations(**{name: np.zeros(0, np.int64) for name in PastIterations.__dataclass_fields__})


def continued(past: PastIterations, found: Iterations, marks: Marks, steps: Mapping[int, int]) -> PastIterations:
    """Put the iterations found in `marks` behind the past ones; where both know one, the newer look is right.

    `steps` counts each process's `ddp_wait` marks since the attach.
    """
    parts = []
    for pid in dict.fromkeys([*np.unique(past.pid).tolist(), *np.unique(found.pid).tolist()]):
        new, old = found.where(found.pid == pid), past.of(pid)
        if len(new):
            old = old.where(old.begin_ns < new.begin_ns[0])
            number = _numbers(new, old, marks.where(marks.pid == pid).of(MarkKind.DDP_WAIT), steps.get(pid, 0))
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


def has_changed_pace(past: PastIterations, through_ns: int) -> bool:
    """Say whether the iterations of the last seconds take another time than those of some seconds before."""
    if len(past) == 0:
        return False
    length_ns = min(_PACE_NS, (through_ns - int(past.begin_ns.min())) // 3)
    now = past.end_ns > through_ns - length_ns
    before = ~now & (past.end_ns > through_ns - 3 * length_ns)
    if not (now.any() and before.any()):
        return False
    pace, was = (float(np.median(past.duration_ns[chosen])) for chosen in (now, before))
    return abs(pace - was) > _ANOTHER_PACE * was
