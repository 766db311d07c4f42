"""What a rank did while the others waited for it: by what it had more of than they, in the same iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np

from netprof.analysis.events.phases import BACKWARD, FORWARD, REST
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.blocked import ThreadWaits
from netprof.analysis.tables.columns import Bool, Float32, Float64, Int64
from netprof.analysis.tables.intervals import NOTHING, Intervals, Windows
from netprof.analysis.tables.process_counts import CPU_WAIT, ON_CPU, WRITTEN
from netprof.analysis.tables.process_counts import THROTTLED as THROTTLED_TIME
from netprof.schema import BlockedIn

_LEAST_WRITTEN_BPS = 1e6
"""Bytes a second from which on writing is what a rank does: no disk is slower."""


@dataclass(frozen=True)
class Doing:
    """What a rank does while it is waited for: its name in JSON, and as a person reads it, and what helps.

    `short` is how a headline has it, `do` what to do about `{rank}`, and `command` shows or repairs it.
    """

    name: str
    text: str
    advice: str
    short: str
    do: str
    command: str = "py-spy dump --pid {pid}"


PAUSED = Doing(
    "paused",
    "it is stopped",
    "find what stops it: a signal, a debugger, a suspended machine",
    "stopped",
    "let {rank} run on; find what stops it: a signal, a debugger, a suspended machine",
    "kill -CONT {pid}",
)
GARBAGE = Doing(
    "garbage",
    "Python collects garbage there",
    "gc.freeze() after the setup, then gc.disable() and gc.collect() in the same step on all ranks; fewer objects",
    "collecting garbage",
    "{rank}: gc.freeze() after setup, gc.collect() in the same step on all ranks",
    "",
)
THROTTLED = Doing(
    "throttled",
    "its cgroup's CPU quota throttles it",
    "raise the CPU limit of its container or cgroup (cpu.max, cfs_quota_us), or run fewer threads in it",
    "throttled by its CPU quota",
    "raise the CPU limit of {rank}'s cgroup (cpu.max), or run fewer threads",
    "cat /proc/{pid}/cgroup",
)
CPU_TAKEN = Doing(
    "cpu_taken",
    "it could run and waits for a CPU that something else has",
    "give it cores to itself: find who else runs there, look at limits of CPU and at the hypervisor's steal time",
    "waiting for a CPU",
    "give {rank} cores to itself: neighbours, CPU limits, steal time",
    "pidstat -w -p {pid} 1; taskset -cp {pid}",
)
PROFILER = Doing(
    "profiler",
    "it runs torch.profiler",
    "stop the profiler, or profile a few steps, on all ranks alike",
    "running torch.profiler",
    "stop {rank}'s torch.profiler, or profile a few steps on all ranks alike",
    "",
)
COMPUTE = Doing(
    "compute",
    "its passes take longer than the others'",
    "look for a slower or hotter CPU or GPU, and for uneven batches",
    "its passes take longer",
    "{rank}'s CPU or GPU is slower or hotter, or its batches are larger",
)
COMPUTE_BETWEEN = Doing(
    "compute_between",
    "it computes between its passes, where the others do not",
    "look at what it runs there: Python code between steps, a larger optimizer, metrics, logging (py-spy record)",
    "computing between its passes",
    "see what {rank} runs between its passes: Python, metrics, logging",
)
CHECKPOINT = Doing(
    "checkpoint",
    "it writes to files",
    "write checkpoints from another thread, or on all ranks alike",
    "writing files",
    "write {rank}'s checkpoints from another thread, or on all ranks alike",
)
READING = Doing(
    "reading",
    "it reads files",
    "look at the storage behind them: prefetch, cache, or copy them nearby",
    "reading files",
    "the storage behind {rank}'s files: prefetch, cache, or copy them nearby",
)
LOADER = Doing(
    "data_loader",
    "it waits for another process of its own, as a data loader's worker",
    "look at its data loader: more workers, a larger prefetch_factor, cheaper decoding, faster storage",
    "waiting for its data loader",
    "{rank}'s data loader: more workers, prefetch_factor, decoding, storage",
)
DATA = Doing(
    "data",
    "it waits between its steps, as for data",
    "look at its data loading: workers, decoding, the storage behind it",
    "waiting as for data",
    "see what {rank} waits for: its data loader, a lock, a server",
)
BETWEEN = Doing(
    "between_steps",
    "it takes longer between its steps: data, a checkpoint, evaluation",
    "look at what it does between backward pass and forward pass: data loading, checkpoints, logging",
    "slow between its steps",
    "see what {rank} does between its steps: data loading, checkpoints, logging",
)
ASLEEP = Doing(
    "asleep",
    "it sleeps in a timer",
    "look at what it sleeps for: a pause between retries, a rate limit, a simulated load",
    "asleep in a timer",
    "see what {rank} sleeps for: a pause between retries, a rate limit",
)
COMPUTING = Doing(
    "computing",
    "it computes",
    "look for a slower or busier CPU, and for uneven work",
    "computing",
    "see what {rank} computes: uneven work, a slower CPU",
    "py-spy top --pid {pid}",
)
EVERY = (
    PAUSED, GARBAGE, THROTTLED, CPU_TAKEN, PROFILER, COMPUTE, COMPUTE_BETWEEN,
    CHECKPOINT, READING, LOADER, DATA, BETWEEN, ASLEEP, COMPUTING,
)  # fmt: skip


class Spent(IntEnum):
    """What a rank's time in an iteration is spent on, ns, and what it wrote, bytes; NaN where that is unknown.

    COLLECTING garbage, THROTTLED by a quota (of any CPU), blocked IN_FILE, IN_PIPE; and PROFILED, which is 1 where
    torch.profiler runs.
    """

    FORWARD = 0
    BACKWARD = 1
    REST = 2
    RUNNING = 3
    CPU_WAIT = 4
    STOPPED = 5
    STOLEN = 6
    WRITTEN = 7
    COLLECTING = 8
    THROTTLED = 9
    IN_FILE = 10
    IN_PIPE = 11
    PROFILED = 12


@dataclass(frozen=True, eq=False)
class Times:
    """Of each process, each iteration, what `known` names: `ns` has the shape (processes, len(known), iterations).

    To seven digits, and without what nothing is known of, or that is `none` of all time: a day has hundreds of
    thousands of iterations.
    """

    pids: tuple[int, ...]
    ns: Float32
    known: tuple[Spent, ...] = tuple(Spent)
    none: tuple[Spent, ...] = ()

    def of(self, pid: int) -> Float32:
        """Return those of one process, shape (len(Spent), iterations)."""
        ns = np.full((len(Spent), self.ns.shape[2]), np.nan, np.float32)
        ns[list(self.known)] = self.ns[self.pids.index(pid)]
        ns[list(self.none)] = 0.0
        return ns

    def sums(self, rows: Int64 | Bool) -> tuple[Float64, Bool]:
        """Return the sums over some iterations, shape (processes, len(Spent)), and of which anything is known."""
        values, known = self.ns[:, :, rows], list(self.known)
        total, is_known = np.zeros((len(self.pids), len(Spent))), np.zeros((len(self.pids), len(Spent)), bool)
        total[:, known] = np.nansum(values, axis=2, dtype=np.float64)
        is_known[:, known] = ~np.isnan(values).all(axis=2)
        is_known[:, list(self.none)] = values.shape[2] > 0
        return total, is_known


NO_TIMES = Times((), np.zeros((0, len(Spent), 0), np.float32))
"""Of no process."""


class SummedTimes(Protocol):
    """What is known of the time of processes, summed over iterations."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes."""

    def sums(self, rows: Int64 | Bool) -> tuple[Float64, Bool]:
        """Return the sums over some iterations, shape (processes, len(Spent)), and of which anything is known."""


class AllTimes(SummedTimes, Protocol):
    """What is known of the time of processes, iteration by iteration too."""

    def of(self, pid: int) -> Float32:
        """Return those of one process, shape (len(Spent), iterations)."""


class TimesOfPieces:
    """What was found of consecutive pieces of a recording, the k-th of iterations [edges[k], edges[k + 1])."""

    def __init__(self, pieces: Sequence[AllTimes], edges: Int64) -> None:
        self._pieces, self._edges = pieces, edges
        self.pids = tuple(dict.fromkeys(pid for each in pieces for pid in each.pids))

    def of(self, pid: int) -> Float32:
        """Return those of one process, shape (len(Spent), iterations)."""
        lengths = np.diff(self._edges).tolist()
        return np.concatenate(
            [
                each.of(pid) if pid in each.pids else np.full((len(Spent), length), np.nan, np.float32)
                for each, length in zip(self._pieces, lengths, strict=True)
            ],
            axis=1,
        )

    def sums(self, rows: Int64 | Bool) -> tuple[Float64, Bool]:
        """Return the sums over some iterations, shape (processes, len(Spent)), and of which anything is known."""
        totals, known = np.zeros((len(self.pids), len(Spent))), np.zeros((len(self.pids), len(Spent)), bool)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        piece = np.searchsorted(self._edges, rows, "right") - 1
        for number in np.unique(piece).tolist():
            times = self._pieces[number]
            places = [self.pids.index(pid) for pid in times.pids]
            total, seen = times.sums(rows[piece == number] - self._edges[number])
            totals[places] += total
            known[places] |= seen
        return totals, known


_COUNTED = (
    (Spent.RUNNING, ON_CPU, 1e3),
    (Spent.CPU_WAIT, CPU_WAIT, 1e3),
    (Spent.WRITTEN, WRITTEN, 1.0),
    (Spent.THROTTLED, THROTTLED_TIME, 1e3),
)


def times_of_ranks(evidence: Evidence, pids: Sequence[int], windows: Windows) -> Times:
    """Return what is known of some processes' time."""
    ns = np.full((len(pids), len(Spent), len(windows)), np.nan, np.float32)
    counts, stopped, iterations = evidence.process_counts, evidence.stopped, evidence.found_iterations.iterations
    for place, pid in enumerate(pids):
        if pid in evidence.phases:
            spent, steps = (
                evidence.phases[pid].within(windows.begin_ns, windows.end_ns),
                iterations.of_pid(pid),
            )
            trains = (windows.end_ns > steps.begin_ns.min()) & (windows.begin_ns < steps.end_ns.max())
            for of, phase in ((Spent.FORWARD, FORWARD), (Spent.BACKWARD, BACKWARD), (Spent.REST, REST)):
                ns[place, of] = np.where(trains, windows.of(spent[phase.name]), np.nan)
        for of, name, unit in _COUNTED:
            begin, end = (counts.until(pid, name, at_ns) for at_ns in (windows.begin_ns, windows.end_ns))
            ns[place, of] = (end - begin) * unit
        blocked = evidence.blocked.get(pid)
        for of, kind in ((Spent.IN_FILE, BlockedIn.FILE), (Spent.IN_PIPE, BlockedIn.PIPE)):
            if blocked is not None:
                ns[place, of] = windows.of(blocked.get(kind, NOTHING))
        ns[place, Spent.COLLECTING] = windows.of(evidence.collecting.get(pid, NOTHING))
        ns[place, Spent.PROFILED] = float(pid in evidence.profiling)
        ns[place, Spent.STOPPED] = windows.of(stopped[pid]) if pid in stopped else 0.0
        begin, end = (evidence.stolen_until(pid, at_ns) for at_ns in (windows.begin_ns, windows.end_ns))
        ns[place, Spent.STOLEN] = (end - begin) * 1e3
    none = tuple(of for of in Spent if not ns[:, of].any())  # which NaN is, and 0 is not
    known = tuple(of for of in Spent if of not in none and not np.isnan(ns[:, of]).all())
    return Times(tuple(pids), ns[:, list(known)], known, none)


def what_it_did(times: SummedTimes, pid: int, rows: Int64 | Bool, host_ns: float = 0.0) -> Doing | None:
    """Return what a process had more of than the median of the others in some iterations; None where nothing tells.

    `host_ns` is how long its host was busy with collectives, where it was that and not its step that took longer: then
    only what keeps a process from running explains it.
    """
    if pid not in times.pids or len(times.pids) < 2:
        return None
    place = times.pids.index(pid)
    more, known = _more_than_others(*times.sums(rows), place)
    taken = more[Spent.CPU_WAIT] + more[Spent.STOLEN]
    if host_ns:
        return PAUSED if more[Spent.STOPPED] * 2 >= host_ns else CPU_TAKEN if taken * 2 >= host_ns else None
    passes, between = more[Spent.FORWARD] + more[Spent.BACKWARD], more[Spent.REST]
    longer = max(passes + between, 1.0)
    if more[Spent.STOPPED] * 2 >= longer:
        return PAUSED
    if more[Spent.COLLECTING] * 2 >= longer:
        return GARBAGE
    if between > passes and more[Spent.WRITTEN] * 1e9 >= _LEAST_WRITTEN_BPS * longer:
        return CHECKPOINT  # that it waits for a CPU now and then while it does more than the others is no news
    if more[Spent.THROTTLED] * 2 >= longer:
        return THROTTLED
    if more[Spent.PROFILED] > 0 and more[Spent.RUNNING] * 4 >= longer:
        return PROFILER
    asleep = longer - more[Spent.RUNNING] - more[Spent.CPU_WAIT]
    if known[Spent.RUNNING] and taken >= max(more[Spent.RUNNING] - more[Spent.STOLEN], asleep):
        return CPU_TAKEN
    if passes >= between:
        return COMPUTE
    return _between(more, known, asleep)


_BLOCKED = {
    BlockedIn.SLEEP: ASLEEP,
    BlockedIn.FILE: READING,
    BlockedIn.PIPE: LOADER,
    BlockedIn.CPU: CPU_TAKEN,
    BlockedIn.STOPPED: PAUSED,
}


def what_threads_do(waits: ThreadWaits, times: Intervals) -> Doing | None:
    """Return what the threads of a process do for most of some time; None where no one thing is most of it."""
    spent = {kind: (spans & times).total_ns for kind, spans in waits.items()}
    most = max(spent, key=lambda kind: spent[kind], default=None)
    if most is not None and 2 * spent[most] >= times.total_ns:
        return _BLOCKED.get(most)
    return COMPUTING if 2 * sum(spent.values()) < times.total_ns else None


def _between(more: Float64, known: Bool, asleep: float) -> Doing:
    """Return what a process does that takes longer between its passes."""
    if not known[Spent.RUNNING]:
        return BETWEEN
    if more[Spent.RUNNING] >= max(asleep, more[Spent.IN_FILE] + more[Spent.IN_PIPE]):
        return COMPUTE_BETWEEN
    for of, doing in ((Spent.IN_FILE, READING), (Spent.IN_PIPE, LOADER)):
        if more[of] * 2 >= asleep:
            return doing
    return DATA


def _more_than_others(total: Float64, known: Bool, place: int) -> tuple[Float64, Bool]:
    """Return by how much one's sum of each is above the median of the others', and what is known of both."""
    seen = np.delete(known, place, axis=0)
    both = known[place] & seen.any(axis=0)
    others = np.where(seen, np.delete(total, place, axis=0), np.nan)
    more = total[place, both] - np.nanmedian(others[:, both], axis=0)
    above = np.zeros(total.shape[1])
    above[both] = np.maximum(more, 0.0)
    return above, both
