"""Waits that no step closes: the recording ends in them, so they are in no iteration, and are charged by themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from netprof.analysis.account.causes import LATE_RANK, LOSS, UNSEEN, WAIT_CAUSES, Cause
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.stalls.stall import stall_at_end
from netprof.analysis.findings.transport.stuck import stuck_flows
from netprof.analysis.findings.waiting.waiting_finding import RankWaiting
from netprof.analysis.tables.columns import UNKNOWN


@dataclass(frozen=True)
class OpenWaits:
    """For how long each process waits when the recording ends, ns, and what for.

    `culprit` is the process that has not arrived; `flow` the row of the one that recovers from loss.
    """

    waited_ns: dict[int, int]
    cause: Cause
    culprit: int | None = None
    flow: int | None = None

    @property
    def total_ns(self) -> int:
        """How long all of them wait."""
        return sum(self.waited_ns.values())

    def added_to(self, rank: RankWaiting) -> RankWaiting:
        """Return what a process waits with what it waits as the recording ends."""
        more_ns = self.waited_ns.get(rank.pid, 0)
        causes = [ns + more_ns * (cause is self.cause) for cause, ns in zip(WAIT_CAUSES, rank.causes_ns, strict=True)]
        window_ns, exposed_ns = rank.window_ns + more_ns, rank.exposed_ns + more_ns
        return replace(rank, window_ns=window_ns, exposed_ns=exposed_ns, causes_ns=tuple(causes))

    def spared_ns(self, cause: Cause, ranks: int) -> int:
        """Return by how much the recording would be shorter without a cause: what all ranks wait for it, or all but
        the one that they wait for."""
        enough = len(self.waited_ns) >= ranks - (self.culprit is not None)
        return min(self.waited_ns.values()) if cause is self.cause and enough else 0


def open_waits(evidence: Evidence) -> OpenWaits | None:
    """Return the waits in which a recording ends; None where it ends in none that is longer than steps take."""
    unfinished = evidence.unfinished
    if evidence.is_recent or not unfinished:
        return None
    end_ns = int(evidence.recording.end_ns[-1])
    waited = {pid: end_ns - each.since_ns for pid, each in unfinished.items() if each.in_wait}
    if not waited:
        return None
    stall, peers = stall_at_end(evidence), evidence.paths.peer
    stuck = [each for each in stuck_flows(evidence) if peers[each.row] != UNKNOWN or not evidence.is_whole_job]
    if stuck or stall is None:  # TCP tries again: that is what they wait for
        return OpenWaits(waited, LOSS, flow=stuck[0].row if stuck else None)
    absent = (*stall.gone, *stall.absent)
    return OpenWaits(waited, LATE_RANK if absent else UNSEEN, culprit=absent[0] if absent else None)
