"""Communication that no mark tells of: trainers that are blocked while their process's bytes move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from netprof.analysis.events.iterations import FoundIterations, Iterations
from netprof.analysis.events.phase_times import PhaseTimes
from netprof.analysis.events.waits import training_threads
from netprof.analysis.tables.blocked import Blocked, ThreadWaits
from netprof.analysis.tables.columns import Bool, Int64, by_pid, concatenate
from netprof.analysis.tables.intervals import NOTHING, Intervals, joined, overlap, union
from netprof.analysis.tables.marks import Marks
from netprof.analysis.wire.lanes import Lanes
from netprof.schema import RECEIVE, TRANSMIT, BlockedIn, MarkKind

_MAY_COMMUNICATE = (BlockedIn.SOCKET, BlockedIn.POLL, BlockedIn.LOCK)
"""A socket, or another thread that has one. A timer, a file, another process's pipe are something else."""
_LEAST_BYTES = 4096
_LEAST_SHARE = 0.02
"""What moves meanwhile is more than that of what the process moves in the mean in as long: no heartbeats."""
_SOON_NS = 10_000_000
_GAP_NS = 2_000_000
"""Between two waits for parts of the same bytes a thread runs for less."""


def blocked_by_process(blocked: Blocked, marks: Marks) -> dict[int, ThreadWaits]:
    """Return for what each process's trainers were off their CPUs, of all that were watched."""
    training = marks.where(marks.kind < MarkKind.PROCESS_FORK)
    trainers = {pid: training_threads(rows).tolist() for pid, rows in by_pid(training, set(blocked.threads))}
    return {pid: blocked.of_process(pid, trainers.get(pid, ())) for pid in blocked.threads}


def unmarked_communication(
    waits: Mapping[int, ThreadWaits], marked: Mapping[int, Intervals], lanes: Lanes, marks: Marks
) -> dict[int, Intervals]:
    """Return when each process is blocked, in no wait that marks tell of, while bytes of it move.

    `waits` are what its trainers are blocked in, `marked` the waits that marks tell of. After a remote call the wait is
    for its answer, whatever carries that: between processes of a host it may be shared memory.
    """
    unmarked = {}
    for pid, thread_waits in waits.items():
        may_be = may_communicate(thread_waits)
        others = union([times for kind, times in thread_waits.items() if kind not in _MAY_COMMUNICATE])
        may_be = may_be - others - marked.get(pid, NOTHING)
        calls_ns = marks.time_ns[(marks.pid == pid) & (marks.kind == MarkKind.RPC_SENT)]
        times = may_be.where(_while_bytes_move(may_be, pid, lanes) | _soon_after(calls_ns, may_be.begin_ns))
        if len(times):
            unmarked[pid] = times
    return unmarked


def may_communicate(waits: ThreadWaits) -> Intervals:
    """Return when a process is blocked in what may be communication; while it runs for a moment in between, too."""
    return joined(union([waits[kind] for kind in _MAY_COMMUNICATE if kind in waits]), _GAP_NS)


def _soon_after(calls_ns: Int64, at_ns: Int64) -> Bool:
    """Return which instants come right after one of some calls."""
    if not len(calls_ns):
        return np.zeros(len(at_ns), bool)
    last = np.searchsorted(calls_ns, at_ns, "right") - 1
    return np.asarray((last >= 0) & (at_ns - calls_ns[np.maximum(last, 0)] <= _SOON_NS))


def _while_bytes_move(times: Intervals, pid: int, lanes: Lanes) -> Bool:
    moved, total, span_ns = np.zeros(len(times)), 0.0, 1
    for way in (TRANSMIT, RECEIVE):
        bins = lanes.of_process(pid, way)
        if bins is not None and len(bins):
            before, after = times.begin_ns - bins.bin_ns, times.end_ns + bins.bin_ns
            moved += bins.payload_until(after) - bins.payload_until(before)
            total += float(bins.payload_bytes.sum(dtype=np.int64))
            span_ns = max(span_ns, bins.span * bins.bin_ns)
    usual = total / span_ns * (times.end_ns - times.begin_ns)
    return np.asarray((moved >= _LEAST_BYTES) & (moved >= _LEAST_SHARE * usual))


def with_waits(marked: FoundIterations, more: Mapping[int, Intervals]) -> FoundIterations:
    """Return iterations whose processes wait in `more` time too, by process."""
    phases = dict(marked.phases)
    for pid, times in more.items():
        if pid in phases:
            before = phases[pid]
            phases[pid] = PhaseTimes(before.forward - times, before.backward - times, before.exposed | times)
    parts = []
    for pid, steps in by_pid(marked.iterations):
        is_longer = pid in more and pid in phases
        parts.append(_with_phases(steps, phases[pid], more[pid], drawn=pid in marked.stepped) if is_longer else steps)
    return replace(marked, iterations=concatenate(Iterations, parts), phases=phases)


def whole_time(pids: Sequence[int], begin_ns: int, end_ns: int) -> Iterations:
    """Return all of some time as one iteration of each process, of which no phase is known."""
    edges = [np.full(len(pids), at_ns, np.int64) for at_ns in (begin_ns, begin_ns, begin_ns, begin_ns, end_ns)]
    return Iterations(np.array(pids, np.int64), *edges)


def _with_phases(steps: Iterations, phases: PhaseTimes, more: Intervals, *, drawn: bool) -> Iterations:
    """Return iterations with their phases as they are now; where edges are only `drawn`, the wait gets longer."""
    begin, end = steps.begin_ns, steps.end_ns
    spent = (overlap(times, begin, end) for times in (phases.forward, phases.backward, phases.exposed))
    names = ("forward_phase_ns", "backward_phase_ns", "exposed_phase_ns")
    steps = replace(steps, **dict(zip(names, spent, strict=True)))
    if not drawn:
        return steps
    wait = np.clip(steps.wait_ns - overlap(more, begin, steps.wait_ns), steps.backward_ns, steps.wait_ns)
    return replace(steps, wait_ns=wait, done_ns=np.minimum(wait + steps.exposed_phase_ns, end))
