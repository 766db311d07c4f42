"""A job that has stopped moving: since when, who waits, and who is waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.unfinished import last_state
from netprof.analysis.events.waits import training_threads
from netprof.analysis.evidence import Evidence
from netprof.analysis.live.past_iterations import PastIterations
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.marks import Marks
from netprof.schema import RECEIVE, TRANSMIT, MarkKind
from netprof.units import duration

_PATIENCE_NS = 800_000_000
_TIMES_USUAL = 3  # so much longer than usual nothing must happen before it is called a stall
_FEWEST_ITERATIONS = 2  # before that nothing is usual
_BLOCK_NS = 100_000_000
_NAMED = 4
_HARDLY_ANY = 0.01  # of the usual bytes in as long: heartbeats, not progress

_WAITS = (MarkKind.DDP_WAIT, MarkKind.WORK_WAIT, MarkKind.POSTED_WAIT, MarkKind.HOROVOD_WAIT)


@dataclass(frozen=True)
class Stall:
    """Nothing has moved since `since_ns`: no mark of any rank, and hardly a byte of the job.

    `waiting` are the processes that wait for communication, `absent` those that do not, `gone` those that have exited.
    Where all wait, `silent_first` is the one that was the first to send nothing more; None where that is not seen.
    """

    since_ns: int
    waiting: tuple[int, ...]
    absent: tuple[int, ...]
    gone: tuple[int, ...]
    silent_first: int | None = None

    def sentence(self, ranks: Mapping[int, int], through_ns: int) -> str:
        """Return what is known of it, for a person; `ranks` are the processes' ranks."""
        lasted = f"stalled for {duration((through_ns - self.since_ns) / 1e9)}"
        waiting, absent, gone = (_names(pids, ranks) for pids in (self.waiting, self.absent, self.gone))
        if gone:
            return f"{lasted}: {gone} has exited" + (f", and {waiting} waits for it" if waiting else "")
        if absent and waiting:
            return f"{lasted}: {absent} has not arrived where {waiting} waits: look at what it does"
        if waiting and self.silent_first is not None:
            first = _names([self.silent_first], ranks)
            return (
                f"{lasted}: every rank waits, and no byte moves; {first} was the first to send nothing more: look at "
                "what it does, then at its network"
            )
        if waiting:
            return (
                f"{lasted}: every rank waits, and no byte moves: a rank is stopped in a transfer, the network between "
                "them is cut, or they wait for different collectives"
            )
        return (
            f"{lasted}: no rank waits for another: all are stopped, or at something that netprof does not see "
            "(evaluation, a checkpoint)"
        )


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
            self._stall = _stall(evidence, marks, past, moved_ns)
            return self._stall
        self._stall = None
        self._usual_quiet_ns = quiet_ns
        self._usual_block_bytes = float(blocks.mean()) if len(blocks) else 0.0
        return None

    def _last_moved_ns(self, blocks: Int64, first_ns: int) -> int:
        moving = np.flatnonzero(blocks > _HARDLY_ANY * self._usual_block_bytes)
        return first_ns + (int(moving[-1]) + 1) * _BLOCK_NS if len(moving) else 0


def _blocks(evidence: Evidence, through_ns: int) -> tuple[Int64, int]:
    """Return the job's new bytes on all links in blocks of _BLOCK_NS until now, and when the first one begins."""
    since_ns = evidence.meta.started_ns
    count = max(0, (through_ns - since_ns) // _BLOCK_NS)
    first_ns = through_ns - count * _BLOCK_NS
    total = np.zeros(count, np.int64)
    for key in evidence.lanes.links:
        for direction in (TRANSMIT, RECEIVE):
            bins = evidence.lanes.of_link(key, direction)
            if bins is not None and count:
                at_ns = (bins.first_bin + np.arange(len(bins))) * bins.bin_ns
                block = (at_ns - first_ns) // _BLOCK_NS
                inside = (block >= 0) & (block < count)
                total += np.bincount(block[inside], bins.payload_bytes[inside], count).astype(np.int64)
    return total, first_ns


def _stall(evidence: Evidence, marks: Marks, past: PastIterations, since_ns: int) -> Stall | None:
    """Say who waits and who does not; None where all have exited, which is an end."""
    ended = evidence.marks.of(MarkKind.PROCESS_EXIT)
    pids = np.unique(past.pid).tolist()
    gone = [pid for pid in pids if pid in set(ended.pid.tolist())]
    left = [pid for pid in pids if pid not in gone]
    if not left:
        return None
    waiting = [pid for pid in left if _waits(pid, marks.where(marks.pid == pid))]
    absent = _without(left, waiting)
    behind = [pid for pid in waiting if _is_behind(pid, marks, past)]
    silent_first = None if absent else _silent_first(evidence, behind or waiting)
    return Stall(since_ns, tuple(waiting), absent, tuple(gone), silent_first)


def _waits(pid: int, marks: Marks) -> bool:
    return len(training_threads(marks)) > 0 and last_state(pid, marks).in_wait


def _is_behind(pid: int, marks: Marks, past: PastIterations) -> bool:
    """Say whether a process waits for what is done for others: they are an iteration ahead, and wait for it."""
    done_by_others = past.done_ns[past.pid != pid]
    last_wait = marks.time_ns[(marks.pid == pid) & np.isin(marks.kind, _WAITS)][-1:]
    return len(last_wait) > 0 and bool((done_by_others > last_wait[0]).any())


def _silent_first(evidence: Evidence, pids: Sequence[int]) -> int | None:
    """Return the process that sent its last bytes the earliest; in a ring the others fall silent after it."""
    last_ns = {}
    for pid in pids:
        sent = evidence.lanes.of_process(pid, TRANSMIT)
        if sent is not None and (amount := sent.payload_bytes[sent.payload_bytes > 0]).size:
            last = int(np.flatnonzero(sent.payload_bytes > _HARDLY_ANY * amount.mean())[-1])
            last_ns[pid] = (sent.first_bin + last) * sent.bin_ns + int(sent.last_ns[last])
    return min(last_ns, key=lambda pid: last_ns[pid]) if last_ns else None


def _names(pids: Sequence[int], ranks: Mapping[int, int]) -> str:
    """Return processes by rank, with the pid of one that is to be looked at; more than a few as a number."""
    if len(pids) == 1:
        pid = pids[0]
        return f"rank {ranks[pid]} (pid {pid})" if pid in ranks else f"pid {pid}"
    if len(pids) > _NAMED:
        return f"each of {len(pids)} ranks"
    return "each of ranks " + ", ".join(str(ranks.get(pid, f"pid {pid}")) for pid in pids) if pids else ""


def _without(pids: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(pid for pid in pids if pid not in others)
