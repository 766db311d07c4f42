"""What a profile of the job makes of bounds: numbers, in the steps that it saw whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from netprof.analysis.bounds.bounded import Bounds
from netprof.analysis.events.phase_times import overlap
from netprof.analysis.tables.columns import Bool, Int64
from netprof.analysis.tables.intervals import Intervals
from netprof.analysis.tables.profiled import Profiles
from netprof.schema import Profiled


def with_profiles(found: Bounds, profiles: Profiles) -> Bounds:
    """Return the bounds with both sides alike where a profile tells how long was communicated and not computed.

    Where in the step that was is drawn as if it lay together, up to the end of its last collective.
    """
    least, most, exact = found.gradient_ns.copy(), found.received_ns.copy(), found.exact.copy()
    for pid in sorted(profiles.pids & set(np.unique(found.pid).tolist())):
        rows = found.rows_of(pid)
        own = found.where(rows)
        talks = profiles.when(pid, Profiled.COMMUNICATES)
        waits = talks - profiles.when(pid, Profiled.COMPUTES)
        known = _seen_whole(own, profiles.when(pid, Profiled.SEEN)) & (overlap(talks, own.begin_ns, own.end_ns) > 0)
        end = _last_end(talks, own.end_ns)
        begin = end - np.minimum(overlap(waits, own.begin_ns, own.end_ns), end - own.begin_ns)
        least[rows[known]], most[rows[known]], exact[rows[known]] = begin[known], end[known], 1
    told = exact == 1
    return replace(
        found,
        launch_ns=np.where(told, least, found.launch_ns),
        gradient_ns=least,
        received_ns=most,
        done_ns=np.where(told, most, found.done_ns),
        exact=exact,
    )


def _seen_whole(own: Bounds, seen: Intervals) -> Bool:
    return np.asarray(overlap(seen, own.begin_ns, own.end_ns) == own.end_ns - own.begin_ns)


def _last_end(times: Intervals, until_ns: Int64) -> Int64:
    """Return the last end of some times at or before each instant, or the instant while some go on."""
    if len(times) == 0:
        return until_ns
    row = np.searchsorted(times.begin_ns, until_ns, "left") - 1
    end = times.end_ns[np.maximum(row, 0)]
    return np.where(row >= 0, np.minimum(end, until_ns), until_ns)
