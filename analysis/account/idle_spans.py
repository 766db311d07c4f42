"""When a link was idle and why, as spans of time: what `links[].idle` adds up, to be drawn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from netprof.analysis.account.idle import link_states
from netprof.analysis.definitions import IDLE_THRESHOLD
from netprof.analysis.findings.links import LinkSummary
from netprof.analysis.result import Tables
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.analysis.wire.bins import QuietTime, combine, quiet_time
from netprof.schema import RECEIVE, TRANSMIT

CAUSES = ("no_gradient", "gradients_waiting", "nothing_outstanding", "after_last_byte")
UNEXPLAINED = "idle"
"""The one cause that is given where no iteration of the link's ranks is known."""


def idle_spans(tables: Tables, link: LinkSummary, bin_ns: int, recording: Intervals) -> Mapping[str, Intervals]:
    """Return when `link` was idle in both directions, by cause (`definitions.IDLE`).

    The spans are disjoint and as long together as the summary's `idle`. `recording` is the window where no iteration
    of the link's ranks is known.
    """
    states = link_states(tables.iterations, tables.outstanding, link.pids)
    window = states.window if len(states.window) else recording
    threshold_bytes = IDLE_THRESHOLD * (link.line_rate_bps or 0.0) * bin_ns / 8e9
    lanes = [
        combine(
            [bins for (lane, way), bins in tables.lanes.items() if lane.link == (link.netns, link.device) and way == d]
        )
        for d in (TRANSMIT, RECEIVE)
    ]
    quiet = _spans(quiet_time([(lane, threshold_bytes) for lane in lanes], window, bin_ns))
    if not len(states.window):
        return {UNEXPLAINED: quiet & recording}
    return {cause: quiet & getattr(states, cause) for cause in CAUSES}


def _spans(quiet: QuietTime) -> Intervals:
    """Return the runs of idle bins as intervals."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], quiet.quiet, [False])).astype(np.int8)))
    at_ns: Int64 = (edges + quiet.first_bin) * quiet.bin_ns
    return merge(at_ns[::2], at_ns[1::2])
