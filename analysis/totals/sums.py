"""What is added up of every piece of a recording: seconds, steps and bytes, by process, cause, link and kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.bounds.bounds import BOUNDS, BoundsFinding
from netprof.analysis.findings.collectives.collective_kinds import KIND_NAMES
from netprof.analysis.section import Analysis
from netprof.analysis.tables.columns import Int64, by_pid
from netprof.analysis.tables.flow_table import LaneKey, LinkKey
from netprof.analysis.wire.fold import WireFold
from netprof.schema import RECEIVE, TRANSMIT

STEP_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper edges of the step-time histogram; one more bucket holds what is longer."""
PHASES = ("forward", "backward", "exposed_communication", "rest")
_EDGES_NS = np.array([round(edge * 1e9) for edge in STEP_BUCKETS_S])


def _no_causes() -> Int64:
    return np.zeros(len(WAIT_CAUSES), np.int64)


@dataclass
class RankTotals:
    """One process over all its whole steps so far; ns. Arrays of causes are in the order of WAIT_CAUSES.

    `waiting_ns` is what it waits for, `at_least_ns` and `at_most_ns` are the bounds of that where only launches are
    seen. `blamed_ns` is how long other processes waited for this one.
    """

    steps: int = 0
    step_ns: int = 0
    step_buckets: Int64 = field(default_factory=lambda: np.zeros(len(STEP_BUCKETS_S) + 1, np.int64))
    phases_ns: Int64 = field(default_factory=lambda: np.zeros(len(PHASES), np.int64))
    waiting_ns: Int64 = field(default_factory=_no_causes)
    at_least_ns: Int64 = field(default_factory=_no_causes)
    at_most_ns: Int64 = field(default_factory=_no_causes)
    blamed_ns: Int64 = field(default_factory=_no_causes)
    bounded_ns: int = 0
    retransmitted_bytes: int = 0
    collectives: Counter[str] = field(default_factory=Counter)
    collective_bytes: Counter[str] = field(default_factory=Counter)
    collective_ns: Counter[str] = field(default_factory=Counter)


@dataclass
class Totals:
    """Everything added up so far: by process, by its share of a link (bytes), and by link (busy time); ns.

    The two numbers of a link are TRANSMIT and RECEIVE.
    """

    ranks: dict[int, RankTotals] = field(default_factory=dict)
    moved_bytes: dict[LaneKey, list[int]] = field(default_factory=dict)
    busy_ns: dict[LinkKey, list[int]] = field(default_factory=dict)
    bounds: BoundsFinding | None = None
    """Bounds of the waiting of launch-only ranks in the last piece; None without such ranks."""

    def of(self, pid: int) -> RankTotals:
        """Return the totals of a process, which are kept from now on."""
        return self.ranks.setdefault(pid, RankTotals())

    def forget(self, pids: set[int]) -> None:
        """Drop what was added up of processes that are gone for good, and links that no other process uses."""
        self.ranks = {pid: totals for pid, totals in self.ranks.items() if pid not in pids}
        self.moved_bytes = {lane: moved for lane, moved in self.moved_bytes.items() if lane.pid not in pids}
        links = {lane.link for lane in self.moved_bytes}
        self.busy_ns = {link: busy for link, busy in self.busy_ns.items() if link in links}

    def add_bytes(self, fold: WireFold) -> None:
        """Add the bytes of the rows that a fold counts as its own."""
        for direction in (TRANSMIT, RECEIVE):
            for pid, links in fold.moved_bytes(direction).items():
                for link, amount in links.items():
                    self.moved_bytes.setdefault(LaneKey(link, pid), [0, 0])[direction] += amount
        again = fold.totals(TRANSMIT).retransmitted_bytes
        for row in np.flatnonzero(again).tolist():
            self.of(int(fold.flows.pid[row])).retransmitted_bytes += int(again[row])

    def add(self, piece: Evidence) -> None:
        """Add a piece of the recording. Raises TraceError for rows that cannot be believed."""
        self.add_bytes(piece.fold)
        self._add_links(piece)
        self._add_steps(piece)
        self._add_waiting(piece)
        self._add_bounds(piece)
        self._add_collectives(piece)

    def _add_links(self, piece: Evidence) -> None:
        for lane, direction, bins in piece.links.lanes:
            if lane.link in piece.links.ports:  # of a port the counters tell, no packets
                amounts = bins.wire_bytes[piece.piece.owns(bins.begin_ns)]
                self.moved_bytes.setdefault(lane, [0, 0])[direction] += round(float(amounts.sum()))
        for link in piece.links.lanes.links:
            for direction in (TRANSMIT, RECEIVE):
                busy = piece.links.busy(link, direction) & piece.recording
                self.busy_ns.setdefault(link, [0, 0])[direction] += busy.total_ns

    def _add_steps(self, piece: Evidence) -> None:
        for pid, steps in by_pid(piece.iterations):
            rank = self.of(pid)
            rank.steps += len(steps)
            rank.step_ns += int(steps.duration_ns.sum())
            bucket = np.searchsorted(_EDGES_NS, steps.duration_ns)
            rank.step_buckets += np.bincount(bucket, minlength=len(rank.step_buckets))
            if pid not in piece.only_launch:
                phases = (steps.forward_phase_ns, steps.backward_phase_ns, steps.exposed_phase_ns, steps.rest_phase_ns)
                rank.phases_ns += np.array([int(each.sum()) for each in phases])

    def _add_waiting(self, piece: Evidence) -> None:
        if not len(piece.iterations) or set(np.unique(piece.iterations.pid).tolist()) <= piece.only_launch:
            return
        for pid, waits in by_pid(piece.account.waiting):
            if pid not in piece.only_launch:
                self.of(pid).waiting_ns += _by_cause(waits.cause, waits.length_ns)
        waiting = piece.account.waiting
        for culprit in np.unique(waiting.culprit[waiting.culprit >= 0]).tolist():
            behind = waiting.where((waiting.culprit == culprit) & (waiting.pid != culprit))
            self.of(culprit).blamed_ns += _by_cause(behind.cause, behind.length_ns)

    def _add_bounds(self, piece: Evidence) -> None:
        self.bounds = bounds = Analysis(piece, ()).of(BOUNDS) if piece.only_launch else None
        if bounds is None:
            return
        for bound, name in ((bounds.least, "at_least_ns"), (bounds.most, "at_most_ns")):
            for waits in bound.by_rank:
                rank = self.of(waits.pid)
                setattr(rank, name, getattr(rank, name) + np.array(waits.causes_ns))
        for waits in bounds.most.by_rank:
            self.of(waits.pid).bounded_ns += waits.window_ns

    def _add_collectives(self, piece: Evidence) -> None:
        for pid, collectives in by_pid(piece.owned(piece.collectives)):
            rank = self.of(pid)
            for kind in np.unique(collectives.kind).tolist():
                some, name = collectives.where(collectives.kind == kind), KIND_NAMES.get(kind, "unknown")
                rank.collectives[name] += len(some)
                rank.collective_bytes[name] += int(np.maximum(some.bytes, 0).sum())
                rank.collective_ns[name] += int(some.duration_ns.sum())


def _by_cause(cause: Int64, length_ns: Int64) -> Int64:
    return np.bincount(cause, weights=length_ns, minlength=len(WAIT_CAUSES)).astype(np.int64)
