"""Watches a job that goes on: whether it has stopped moving."""

from __future__ import annotations

import numpy as np

from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.stalls.stall import HARDLY_ANY, Stall, stall_of
from netprof.analysis.live.past_iterations import PastIterations
from netprof.analysis.tables.columns import Int64
from netprof.schema import RECEIVE, TRANSMIT, MarkKind

_PATIENCE_NS = 800_000_000
_TIMES_USUAL = 3  # so much longer than usual nothing must happen before it is called a stall
_FEWEST_ITERATIONS = 2  # before that nothing is usual
_BLOCK_NS = 100_000_000


class StallWatch:
    """Knows how long a job usually pauses, and says when it pauses for far longer."""

    def __init__(self) -> None:
        self._usual_quiet_ns = 0
        self._usual_block_bytes = 0.0
        self._stall: Stall | None = None

    def look(self, evidence: Evidence, past: PastIterations, through_ns: int) -> Stall | None:
        """Return the stall that lasts until now; None while the job moves, or before it is known how it does."""
        marks = evidence.marks.where(evidence.marks.kind < MarkKind.PROCESS_FORK)
        if len(past) < _FEWEST_ITERATIONS or len(marks) == 0:
            return self._stall  # one that lasts longer than anything is remembered
        blocks, first_ns = _blocks(evidence, through_ns)
        moved_ns = max(int(marks.time_ns[-1]), self._last_moved_ns(blocks, first_ns))
        quiet_ns = int(np.diff(marks.time_ns).max(initial=0))
        if self._stall is not None and moved_ns <= self._stall.since_ns:
            return self._stall  # what led to it may be older than what is looked at by now
        if through_ns - moved_ns > max(_PATIENCE_NS, _TIMES_USUAL * max(self._usual_quiet_ns, quiet_ns)):
            pids = np.unique(past.pid).tolist()
            self._stall = stall_of(evidence, marks, pids, past.pid, past.done_ns, moved_ns)
            return self._stall
        self._stall = None
        self._usual_quiet_ns = quiet_ns
        self._usual_block_bytes = float(blocks.mean()) if len(blocks) else 0.0
        return None

    def _last_moved_ns(self, blocks: Int64, first_ns: int) -> int:
        moving = np.flatnonzero(blocks > HARDLY_ANY * self._usual_block_bytes)
        return first_ns + (int(moving[-1]) + 1) * _BLOCK_NS if len(moving) else 0


def _blocks(evidence: Evidence, through_ns: int) -> tuple[Int64, int]:
    """Return the job's new bytes on all links in blocks of _BLOCK_NS until now, and when the first one begins."""
    since_ns = evidence.meta.started_ns
    count = max(0, (through_ns - since_ns) // _BLOCK_NS)
    first_ns = through_ns - count * _BLOCK_NS
    total = np.zeros(count, np.int64)
    for key in evidence.links.lanes.links:
        for direction in (TRANSMIT, RECEIVE):
            bins = evidence.links.lanes.of_link(key, direction)
            if bins is not None and count:
                block = (bins.begin_ns - first_ns) // _BLOCK_NS
                inside = (block >= 0) & (block < count)
                total += np.bincount(block[inside], bins.payload_bytes[inside], count).astype(np.int64)
    return total, first_ns
