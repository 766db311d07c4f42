"""A job that does not move: since when, who waits, and who is waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from netprof.analysis.events.elsewhere import may_communicate
from netprof.analysis.events.exits import Exit, find_exits, still_missed
from netprof.analysis.events.unfinished import last_state
from netprof.analysis.events.waits import training_threads
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.advice import Advice
from netprof.analysis.findings.stalls.after_exit import after_exit
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.intervals import interval
from netprof.analysis.tables.marks import Marks
from netprof.model import Host
from netprof.schema import TRANSMIT, MarkKind
from netprof.units import duration

HARDLY_ANY = 0.01
"""Share of the usual bytes in as long: heartbeats, not progress."""
_NAMED = 4
_FIRST_TRIES_NS = 10**9
_LATELY_NS = 10**9
_ONE_HOST: Mapping[int, Host] = MappingProxyType({})
_WAITS = (MarkKind.DDP_WAIT, MarkKind.WORK_WAIT, MarkKind.POSTED_WAIT, MarkKind.HOROVOD_WAIT)


@dataclass(frozen=True)
class Stall:
    """Nothing has moved since `since_ns`: no mark of any rank, and hardly a byte of the job.

    `waiting` are the processes that wait for communication, `absent` those that do not, `gone` those that have exited.
    Where all wait, `silent_first` is the one that was the first to send nothing more; None where that is not seen.
    `stopped` are those that a signal or a debugger has stopped, by what the kernel says; `exits` is how those that are
    gone ended.
    """

    since_ns: int
    waiting: tuple[int, ...]
    absent: tuple[int, ...]
    gone: tuple[int, ...]
    silent_first: int | None = None
    stopped: tuple[int, ...] = ()
    exits: tuple[Exit, ...] = ()

    @property
    def culprits(self) -> tuple[int, ...]:
        """Whom the others wait for: what the kernel says of a process is surer than what its marks tell."""
        return self.gone or self.stopped or (self.absent if self.waiting else ())

    def sentence(self, ranks: Mapping[int, int], through_ns: int, hosts: Mapping[int, Host] = _ONE_HOST) -> str:
        """Return what is known of it, for a person; `ranks` and `hosts` are the processes'."""
        return f"stalled for {duration((through_ns - self.since_ns) / 1e9)}: {self.words(ranks, hosts)[1]}"

    def words(self, ranks: Mapping[int, int], hosts: Mapping[int, Host]) -> tuple[str, str]:
        """Return who waits for whom, in a few words and in a sentence."""
        groups = (self.waiting, self.absent, self.gone, self.stopped, _without(self.waiting, self.stopped))
        waiting, absent, gone, stopped, others = (_names(pids, ranks, hosts) for pids in groups)
        if gone or stopped:
            left = waiting if gone else others
            how = self.exits[0].ending if self.exits else "has exited"
            what = f"{gone} {how}" if gone else f"{stopped} is stopped (state T)"
            return what, what + (f", and {left} waits for it" if left else "")
        if absent and waiting:
            late = f"{absent} has not arrived"
            return f"{late}, the others wait", f"{late} where {waiting} waits: look at what it does"
        if not waiting:
            return "no rank trains", _NO_RANK_WAITS
        first = "" if self.silent_first is None else _names([self.silent_first], ranks, hosts)
        few = f"all ranks wait, {first} fell silent first" if first else "all ranks wait, and no byte moves"
        why = f"; {first} {_FELL_SILENT}" if first else f": {_NOTHING_MOVES}"
        few = f"{waiting} waits for a rank that is not recorded" if len(self.waiting) == 1 else few
        return few, f"every rank waits, and no byte moves{why}"


_FELL_SILENT = "was the first to send nothing more: look at what it does, then at its network"
_NOTHING_MOVES = (
    "a rank is stopped in a transfer, the network between them is cut, or they wait for different collectives"
)
_NO_RANK_WAITS = (
    "no rank waits for another: all are stopped, or at something that netprof does not see (evaluation, a checkpoint)"
)


def stall_at_end(evidence: Evidence) -> Stall | None:
    """Return the stall in which a recording ends; None where its steps go on, or nobody waits.

    A process that is only silent may be evaluating: there is a stall if another one waits. While TCP recovers from
    loss, that is what is waited for.
    """
    unfinished = evidence.unfinished
    waiting = [each.since_ns for each in unfinished.values() if each.in_wait]
    if not waiting or _recovers(evidence, max(waiting)):
        return None
    marks = evidence.marks.where(evidence.marks.kind < MarkKind.PROCESS_FORK)
    iterations = evidence.found_iterations.iterations  # a piece may hold no whole one, only the step that does not end
    pids = sorted({*iterations.pid.tolist(), *unfinished})  # one that hangs in its first step has no iteration
    return stall_of(evidence, marks, pids, iterations.pid, iterations.done_ns, max(waiting))


def _recovers(evidence: Evidence, since_ns: int) -> bool:
    """Say whether TCP still sends something again: the job waits for that, and does not stand still.

    Each time it waits twice as long before it tries again; once is what it does when a receiver says nothing.
    """
    resent_ns = int(evidence.fold.resent().last_ns.max(initial=0))
    rose_ns = max((int(times.end_ns[-1]) for times in evidence.resends.times().values()), default=0)
    last_ns, until_ns = max(resent_ns, rose_ns), int(evidence.recording.end_ns[-1])
    return last_ns > since_ns and until_ns - last_ns <= 2 * (last_ns - since_ns) + _FIRST_TRIES_NS


def stall_of(
    evidence: Evidence, marks: Marks, pids: Sequence[int], done_pid: Int64, done_ns: Int64, since_ns: int
) -> Stall | None:
    """Say which of the processes `pids` wait and which do not; None where all have exited, which is an end.

    `done_pid` and `done_ns` are whose iterations were done when. Those that ended before a restart are left out.
    """
    ended, ends = find_exits(evidence.marks), still_missed(evidence.marks, pids, done_pid, done_ns)
    left = [pid for pid in pids if pid not in ended]
    if not left:
        return None
    waiting = [pid for pid in left if _waits(pid, marks.of_pid(pid), evidence)]
    absent = _without(left, waiting)
    behind = [pid for pid in waiting if _is_behind(pid, marks, done_ns[done_pid != pid])]
    silent_first = None if absent else _silent_first(evidence, behind or waiting)
    stopped = tuple(pid for pid in left if pid in evidence.process_counts.stopped_last())
    gone = tuple(pid for pid in pids if pid in ends)
    return Stall(since_ns, tuple(waiting), absent, gone, silent_first, stopped, tuple(ends.values()))


def _waits(pid: int, marks: Marks, evidence: Evidence) -> bool:
    """Say whether a process waits in the end: a wait that was given up is over, though no mark tells."""
    if not len(training_threads(marks)) or not (state := last_state(pid, marks)).in_wait:
        return False
    if pid not in evidence.blocked:
        return True
    end_ns = int(evidence.recording.end_ns[-1])
    left = interval(max(state.since_ns, end_ns - _LATELY_NS), end_ns)
    return 2 * (may_communicate(evidence.blocked[pid]) & left).total_ns >= left.total_ns


def _is_behind(pid: int, marks: Marks, done_by_others: Int64) -> bool:
    """Say whether a process waits for what is done for others: they are an iteration ahead, and wait for it."""
    last_wait = marks.time_ns[(marks.pid == pid) & np.isin(marks.kind, _WAITS)][-1:]
    return len(last_wait) > 0 and bool((done_by_others > last_wait[0]).any())


def _silent_first(evidence: Evidence, pids: Sequence[int]) -> int | None:
    """Return the process that sent its last bytes the earliest; in a ring the others fall silent after it."""
    last_ns = {}
    for pid in pids:
        sent = evidence.links.lanes.of_process(pid, TRANSMIT)
        if sent is not None and (amount := sent.payload_bytes[sent.payload_bytes > 0]).size:
            last = int(np.flatnonzero(sent.payload_bytes > HARDLY_ANY * amount.mean())[-1])
            last_ns[pid] = int(sent.begin_ns[last]) + int(sent.last_ns[last])
    return min(last_ns, key=lambda pid: last_ns[pid]) if last_ns else None


def headline(stall: Stall, ranks: Mapping[int, int], since: str, hosts: Mapping[int, Host] = _ONE_HOST) -> str:
    """Return it in a few words; `since` is the time of day from which on nothing moved."""
    return f"STALLED since {since}: {stall.words(ranks, hosts)[0]}"


def next_steps(stall: Stall, ranks: Mapping[int, int], hosts: Mapping[int, Host] = _ONE_HOST) -> tuple[Advice, ...]:
    """Return what to do about it, with a command where one process is behind it."""
    culprits = stall.culprits or (() if stall.silent_first is None else (stall.silent_first,))
    if len(culprits) != 1:
        return (Advice("compare what the ranks do: the network between them may be cut", "py-spy dump --pid PID"),)
    pid = culprits[0]
    host_pid, name = _own_pid(pid, hosts), _names(culprits, ranks, hosts)
    if stall.gone:
        return (after_exit(name, stall.exits[0] if stall.exits else None),)
    if stall.stopped:
        return (Advice(f"let {name} run on, and find what stopped it: a signal, a debugger", f"kill -CONT {host_pid}"),)
    return (Advice(f"look at what {name} does", f"py-spy dump --pid {host_pid}"),)


def _conclude(analysis: Analysis) -> str | None:
    evidence, stall = analysis.evidence, analysis.of(STALL)
    if stall is None:
        return None
    return stall.sentence(evidence.ranks, int(evidence.recording.end_ns[-1]), evidence.host_of)


def _names(pids: Sequence[int], ranks: Mapping[int, int], hosts: Mapping[int, Host]) -> str:
    """Return processes by rank, with pid and host of one that is to be looked at; more than a few as a number."""
    if len(pids) == 1:
        pid, host = pids[0], hosts.get(pids[0])
        number = f"pid {_own_pid(pid, hosts)}" + (f" on {host.name}" if host is not None else "")
        return f"rank {ranks[pid]} ({number})" if pid in ranks else number
    if len(pids) > _NAMED:
        return f"each of {len(pids)} ranks"
    numbers = [str(ranks.get(pid, f"pid {_own_pid(pid, hosts)}")) for pid in pids]
    return f"each of ranks {', '.join(numbers)}" if pids else ""


def _own_pid(pid: int, hosts: Mapping[int, Host]) -> int:
    return hosts[pid].pids[pid] if pid in hosts else pid


def _without(pids: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(pid for pid in pids if pid not in others)


STALL: Section[Stall | None] = Section(
    "stall",
    lambda analysis: None if analysis.evidence.is_recent else stall_at_end(analysis.evidence),
    ("marks", "wire", "tcp", "counters"),
    merge=lambda parts, whole: parts[-1],
)
"""The stall in which a recording ends; None where the job goes on. Digests hold its sentence alone."""

STALLED_AT_END = Section("stalled at end", _conclude, ("marks", "wire", "tcp"), merge=lambda parts, whole: parts[-1])
"""That a recording ends in a stall, and who waits for whom then; None where the job goes on."""
