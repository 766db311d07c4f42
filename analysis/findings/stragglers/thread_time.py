"""Where the time of the threads that train goes, as the kernel sees it: all of it, and not only what marks explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from netprof.analysis.declared import Column, added, json_of, put_together, table
from netprof.analysis.definitions import THREAD_TIME as DEFINITION
from netprof.analysis.events.exits import find_exits
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.names import rank_number
from netprof.analysis.form import Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.blocked import ThreadWaits
from netprof.analysis.tables.intervals import NOTHING, Intervals, interval
from netprof.analysis.tables.process_counts import SENT_BEFORE
from netprof.schema import BlockedIn
from netprof.units import percent

MARKED, UNMARKED, COMPUTING = "marked_wait", "unmarked_communication", "computing"
BLOCKED_WORDS: Mapping[BlockedIn, str] = {
    BlockedIn.CPU: "waiting for a CPU",
    BlockedIn.SOCKET: "in a socket",
    BlockedIn.LOCK: "in a lock, or waiting for another thread",
    BlockedIn.SLEEP: "asleep in a timer",
    BlockedIn.FILE: "in a file",
    BlockedIn.PIPE: "in a pipe of another process, as a data loader's worker",
    BlockedIn.POLL: "in a poll of several descriptors",
    BlockedIn.MEMORY: "waiting for memory",
    BlockedIn.CHILD: "waiting for a child process",
    BlockedIn.DEVICE: "in a device's driver",
    BlockedIn.STOPPED: "stopped",
    BlockedIn.OTHER: "blocked",
}
_ASLEEP = tuple(kind for kind in BlockedIn if kind not in (BlockedIn.CPU, BlockedIn.DEVICE, BlockedIn.MEMORY))
"""What is neither computing, on a GPU perhaps, nor waiting for the means to."""
_KEYS = "rank pid seconds=span_ns parts_s"
_SHOWN = 0.005
_SEEN_WITHIN_NS = 10**9
"""A process that there was as the recording began is seen as soon."""


@dataclass(frozen=True)
class RankTime:
    """One process: `span_ns` of its time, and the parts of it by name, which add up to it.

    `paced_ns` is the time asleep inside of its forward and backward passes, as marks tell them: a pass that sleeps
    waits for what computes, as a GPU.
    """

    pid: int
    rank: int | None
    span_ns: int
    parts_ns: Mapping[str, int]
    paced_ns: int = 0

    def __add__(self, other: RankTime) -> RankTime:
        """Return both together."""
        names = {**self.parts_ns, **other.parts_ns}
        parts = {name: self.parts_ns.get(name, 0) + other.parts_ns.get(name, 0) for name in names}
        return replace(self, parts_ns=parts, **added((self, other), "span_ns paced_ns"))

    @property
    def asleep_ns(self) -> int:
        """For how long it did nothing that computes or communicates."""
        return max(0, sum(self.parts_ns.get(_name(kind), 0) for kind in _ASLEEP) - self.paced_ns)


@dataclass(frozen=True)
class ThreadTime:
    """Of all processes that train and were watched."""

    ranks: tuple[RankTime, ...]

    @property
    def asleep(self) -> float:
        """The share of their time in which they neither compute nor communicate, in the mean."""
        return sum(each.asleep_ns for each in self.ranks) / max(sum(each.span_ns for each in self.ranks), 1)

    @property
    def short_of_cpus(self) -> float:
        """The share of their time in which they could run and had no CPU, in the mean."""
        waits_ns = sum(each.parts_ns.get(_name(BlockedIn.CPU), 0) for each in self.ranks)
        return waits_ns / max(sum(each.span_ns for each in self.ranks), 1)

    @property
    def mostly(self) -> str:
        """Say in what they are asleep the most."""
        names = {_name(kind): kind for kind in _ASLEEP}
        sums = {name: sum(each.parts_ns.get(name, 0) for each in self.ranks) for name in names}
        most = max(sums, key=lambda name: sums[name])
        return BLOCKED_WORDS[names[most]]


def _name(kind: BlockedIn) -> str:
    return kind.name.lower()


def watched(evidence: Evidence) -> list[int]:
    """Return the processes that train whose threads were watched; where no mark tells which train, those that talk.

    All of them where none does: a launcher moves no bytes, and waits for its children.
    """
    pids, named = sorted(evidence.blocked), {target.pid for target in evidence.meta.targets if target.frameworks}
    known = named | set(evidence.ranks) | evidence.links.lanes.pids
    talk = [pid for pid in pids if pid in known or evidence.process_counts.first(pid, SENT_BEFORE)]
    return [pid for pid in pids if pid in evidence.workers] or talk or pids


def _conclude(analysis: Analysis) -> ThreadTime | None:
    evidence = analysis.evidence
    ranks = [_of_process(pid, evidence.blocked[pid], evidence) for pid in watched(evidence)]
    return ThreadTime(tuple(each for each in ranks if each.span_ns)) if ranks else None


def _of_process(pid: int, waits: ThreadWaits, evidence: Evidence) -> RankTime:
    span = evidence.recording & _lived(pid, waits, evidence)
    phases = evidence.marked.phases.get(pid)
    marked = span & phases.exposed if phases is not None else NOTHING
    unmarked = (span & evidence.unmarked.get(pid, NOTHING)) - marked
    parts = {MARKED: marked.total_ns, UNMARKED: unmarked.total_ns}
    paced = 0
    for kind, times in waits.items():
        rest = (times & span) - marked - unmarked
        parts[_name(kind)] = rest.total_ns
        if phases is not None and pid not in evidence.found_iterations.stepped and kind in _ASLEEP:
            paced += (rest & (phases.forward | phases.backward)).total_ns
    parts[COMPUTING] = span.total_ns - sum(parts.values())
    return RankTime(pid, evidence.ranks.get(pid), span.total_ns, parts, paced)


def _lived(pid: int, waits: ThreadWaits, evidence: Evidence) -> Intervals:
    """Return the time from when a process was first seen, if that is late, until it ended: what is else is unknown."""
    marks, exits = evidence.marks.of_pid(pid), find_exits(evidence.marks)
    seen_ns = [int(times.begin_ns[0]) for times in waits.values() if len(times)] + marks.time_ns[:1].tolist()
    begin_ns, end_ns = int(evidence.recording.begin_ns[0]), int(evidence.recording.end_ns[-1])
    first_ns = min(seen_ns, default=begin_ns)
    return interval(
        first_ns if first_ns - begin_ns > _SEEN_WITHIN_NS else begin_ns,
        exits[pid].time_ns if pid in exits else end_ns,
    )


def _merge(parts: Sequence[ThreadTime | None], whole: Analysis) -> ThreadTime | None:
    ranks = put_together((part.ranks for part in parts if part is not None), lambda each: each.pid)
    return ThreadTime(tuple(ranks)) if ranks else None


def _parts(finding: ThreadTime | None) -> Sequence[Part]:
    if finding is None:
        return ()
    titles = {MARKED: "marked wait", UNMARKED: "unmarked comm.", COMPUTING: "on a CPU"}
    titles |= {_name(kind): _name(kind) for kind in BlockedIn}
    sums = {name: sum(each.parts_ns.get(name, 0) for each in finding.ranks) for name in titles}
    span_ns = sum(each.span_ns for each in finding.ranks)
    shown = [COMPUTING, *(name for name in titles if name != COMPUTING and sums[name] >= _SHOWN * span_ns)]
    rank = Column("rank", lambda each: rank_number(each.rank, each.pid))
    columns = (rank, *(_share(titles[name], name) for name in shown))
    ranks = sorted(finding.ranks, key=lambda each: (each.rank is None, each.rank or 0))
    return [Part("Threads", "where the time of those that train goes", [table(columns, ranks)])]


def _share(title: str, name: str) -> Column:
    return Column(title, lambda each: each.parts_ns.get(name, 0) / each.span_ns, percent)


THREAD_TIME = Section(
    "thread time",
    _conclude,
    ("blocked", "marks", "wire"),
    lambda finding: {"thread_time": finding and [json_of(each, _KEYS) for each in finding.ranks]},
    _parts,
    merge=_merge,
    definitions=lambda finding: (DEFINITION,) if finding else (),
)
