"""The clocks of hosts whose traces grow, found again and again from what was recorded last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from netprof.analysis.hosts.clocks import COLLECTIVES, REALTIME, Span, at, find_clocks
from netprof.analysis.hosts.moved import instant
from netprof.analysis.live.budget import Budget
from netprof.analysis.live.window import LONGEST_NS
from netprof.model import HostClock
from netprof.schema import time_column
from netprof.trace.columns import to_numpy
from netprof.trace.index import TraceIndex
from netprof.trace.recent_rows import RecentRows

_SHARE, _EVERY_S = 0.03, 2.0
"""Of a core, at most, goes into it; and so often it is looked at least."""
_HOLDS_FOR_NS = 10 * 10**9
"""For so long after the last row the bound has to hold: until the next look."""
_OUT_OF_PLACE_NS = 10**6
"""What was moved by a clock that was this wrong has to be moved again: it is a bin."""
_WORSE = {COLLECTIVES: 1, REALTIME: 2}
"""What a clock may rest on that is worse than streams."""


class LiveClocks:
    """How the clock of each host runs beside the first one's, as `clocks` says."""

    def __init__(self, recent: Sequence[RecentRows]) -> None:
        self._recent = recent
        self._budget = Budget(_SHARE, _EVERY_S)
        self.clocks: list[HostClock] = []
        self.look()

    def look(self) -> bool:
        """Find the clocks anew if it is time; return whether one was so wrong that times have to be moved again."""
        if not self._budget.is_due:
            return False
        with self._budget.spending():
            spans = [_span(each) for each in self._recent]
            used = [(first, last + _HOLDS_FOR_NS) for first, last in spans]
            clocks = find_clocks([TraceIndex(each) for each in self._recent], used)
            before = self.clocks or clocks
            now = [_better(old, new, last) for old, new, (_, last) in zip(before, clocks, spans, strict=True)]
            self.clocks, lasts = now, [last for _, last in spans]
        apart = (instant(old, last) - instant(new, last) for old, new, last in zip(before, now, lasts, strict=True))
        return any(abs(each) > _OUT_OF_PLACE_NS for each in apart)


def _better(old: HostClock, new: HostClock, at_ns: int) -> HostClock:
    """Return the new clock; or the old one, known less well by now, where the new one rests on something worse.

    While the job is silent there are no streams to go by. `at_ns` is now, on the host's own clock.
    """
    if _WORSE.get(new.source, 0) <= _WORSE.get(old.source, 0):
        return at(new, instant(new, at_ns))
    bound_ns = None
    if old.bound_ns is not None and old.drift_bound is not None:
        bound_ns = old.bound_ns + old.drift_bound * abs(at_ns - old.at_ns)
    return replace(at(old, instant(old, at_ns)), bound_ns=bound_ns)


def _span(recent: RecentRows) -> Span:
    """Return from when to when there are rows that a view may show: of bytes, and of marks, which may be all."""
    edges = [
        to_numpy(each.column(str(time_column(name))))[[0, -1]]
        for name in ("wire", "marks")
        for each in recent.batches(name)
        if each.num_rows
    ]
    if not edges:
        return recent.meta.started_ns, recent.meta.started_ns + 1
    times = np.concatenate(edges)
    return max(int(times.min()), int(times.max()) - LONGEST_NS), int(times.max())
