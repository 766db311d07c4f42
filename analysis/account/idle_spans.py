"""When a link was idle and why, as spans of time: what `links[].idle` adds up, to be drawn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from netprof.analysis.account.causes import CAUSES, UNEXPLAINED
from netprof.analysis.account.idle import CauseTimes, threshold_bytes
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.analysis.wire.bins import Bins, QuietTime, quiet_time


def idle_spans(
    lanes: list[Bins | None], line_rate_bps: float | None, bin_ns: int, recording: Intervals, times: CauseTimes | None
) -> Mapping[str, Intervals]:
    """Return when all `lanes` of a link were idle at once, by the name of the cause (`definitions.IDLE`).

    The spans are disjoint and as long together as `idle_time` says. `recording` is the window where `times` is None.
    """
    window = times.window if times is not None else recording
    threshold = threshold_bytes(line_rate_bps, bin_ns)
    quiet = _spans(quiet_time([(lane, threshold) for lane in lanes], window, bin_ns))
    if times is None:
        return {UNEXPLAINED.name: quiet & recording}
    return {cause.name: quiet & times.of(cause) for cause in CAUSES}


def _spans(quiet: QuietTime) -> Intervals:
    """Return the runs of idle bins as intervals."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], quiet.quiet, [False])).astype(np.int8)))
    at_ns: Int64 = (edges + quiet.first_bin) * quiet.bin_ns
    return merge(at_ns[::2], at_ns[1::2])
