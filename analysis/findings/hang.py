"""A job that stands for the whole recording, or for what is left of it: which rank is where, and who is waited for.

Where steps were seen before, `stall` tells of them; this needs no mark at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.thread_time import watched, words_of
from netprof.analysis.form import Grid, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.intervals import interval
from netprof.schema import RECEIVE, TRANSMIT, BlockedIn, MarkKind
from netprof.units import duration

LEAST_NS = 1_500_000_000
"""What stands for less may go on in the next moment."""
_STILL = 0.95
"""Share of the time in which a thread that stands is in one thing."""
_HARDLY_BPS = 2_000.0
"""Bytes a second of heartbeats."""
_LOCAL_STEPS = 3
_WAITS = (BlockedIn.SOCKET, BlockedIn.POLL, BlockedIn.LOCK)
_NAMED = 4


@dataclass(frozen=True)
class Standing:
    """One rank: what it is blocked in (None: it runs), for how long of the time it is."""

    pid: int
    rank: int | None
    kind: BlockedIn | None

    @property
    def waits(self) -> bool:
        """Whether it may be waiting for another rank."""
        return self.kind in _WAITS

    @property
    def does(self) -> str:
        """What it does, for a person."""
        return "computing" if self.kind is None else words_of(self.kind)

    @property
    def name(self) -> str:
        """How it is called."""
        return f"pid {self.pid}" if self.rank is None else f"rank {self.rank}"


@dataclass(frozen=True)
class Hang:
    """Nothing was sent, received or done since `since_ns`, or since before the recording began."""

    since_ns: int
    for_ns: int
    from_begin: bool
    ranks: tuple[Standing, ...]

    @property
    def sentence(self) -> str:
        """What is known of it."""
        since = " since before the recording began" if self.from_begin else ""
        lasted = f"stalled for {'at least ' if self.from_begin else ''}{duration(self.for_ns / 1e9)}{since}"
        absent = [each for each in self.ranks if not each.waits]
        waiting = [each for each in self.ranks if each.waits]
        if absent:
            who = ", ".join(f"{each.name} is {each.does}" for each in absent[:_NAMED])
            more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
            return f"{lasted}: {who}{more}; {_names(waiting)} {_wait(waiting)} for another rank, and no byte moves"
        return f"{lasted}: every rank waits ({waiting[0].does}), and no byte moves"

    @property
    def advice(self) -> str:
        """What to do next."""
        absent = [each for each in self.ranks if not each.waits]
        if absent:
            return f"look at {_names(absent)}: netprof attach --stacks, or py-spy dump --pid {absent[0].pid}"
        return (
            "compare the stacks of two ranks (py-spy dump --pid PID): they wait for different collectives, for a rank "
            "that is not recorded, or the network between them is cut"
        )


def _names(ranks: Sequence[Standing]) -> str:
    named = ", ".join(each.name for each in ranks[:_NAMED])
    return named + (f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else "")


def _wait(ranks: Sequence[Standing]) -> str:
    return "waits" if len(ranks) == 1 else "wait"


def find_hang(evidence: Evidence) -> Hang | None:
    """Return the hang in which a recording ends of which hardly any step is known; None where the job moves."""
    pids = watched(evidence)
    if len(pids) < 2 or not len(evidence.recording.end_ns) or not evidence.piece.is_last:
        return None
    if len(evidence.iterations) > _LOCAL_STEPS * len(pids):
        return None
    begin_ns, end_ns = int(evidence.recording.begin_ns[0]), int(evidence.recording.end_ns[-1])
    moved_ns = max([begin_ns, *(_moved_until(pid, evidence) for pid in pids)])
    if end_ns - moved_ns < LEAST_NS:
        return None
    ranks = tuple(_standing(pid, moved_ns, end_ns, evidence) for pid in pids)
    if not any(each.waits for each in ranks):
        return None
    return Hang(moved_ns, end_ns - moved_ns, moved_ns == begin_ns, ranks)


def _moved_until(pid: int, evidence: Evidence) -> int:
    """Return when the process last did a step of training, or moved more than heartbeats."""
    marks = evidence.marks
    last = int(marks.time_ns[(marks.pid == pid) & (marks.kind < MarkKind.PROCESS_FORK)].max(initial=0))
    for way in (TRANSMIT, RECEIVE):
        bins = evidence.links.lanes.of_process(pid, way)
        if bins is None or not len(bins):
            continue
        second = bins.begin_ns // 10**9
        seconds, index = np.unique(second, return_inverse=True)
        lively = seconds[np.bincount(index, weights=bins.payload_bytes) > _HARDLY_BPS]
        if len(lively):
            last = max(last, int(bins.begin_ns[second == lively[-1]][-1]) + bins.bin_ns)
    return last


def _standing(pid: int, since_ns: int, end_ns: int, evidence: Evidence) -> Standing:
    span = interval(since_ns, end_ns)
    blocked = {kind: (times & span).total_ns for kind, times in evidence.blocked.get(pid, {}).items()}
    waits_ns = sum(blocked.get(kind, 0) for kind in _WAITS)
    most = max(blocked, key=lambda kind: blocked[kind], default=None)
    if sum(blocked.values()) < _STILL / 2 * span.total_ns or most is None:
        return Standing(pid, evidence.ranks.get(pid), None)
    if most in _WAITS and waits_ns < _STILL * span.total_ns:
        return Standing(pid, evidence.ranks.get(pid), None)
    return Standing(pid, evidence.ranks.get(pid), most)


def _conclude(analysis: Analysis) -> Hang | None:
    return find_hang(analysis.evidence)


def _document(found: Hang | None) -> dict[str, Any]:
    if found is None:
        return {"hang": None}
    ranks = [{"rank": each.rank, "pid": each.pid, "state": each.does, "waits": each.waits} for each in found.ranks]
    return {"hang": {"since_ns": found.since_ns, "seconds": found.for_ns / 1e9, "ranks": ranks}}


def _parts(found: Hang | None) -> Sequence[Part]:
    if found is None:
        return ()
    rows = [(each.name, str(each.pid), each.does) for each in found.ranks]
    return [Part("Hang", f"for {duration(found.for_ns / 1e9)}", [Grid(("", "pid", "is"), rows, frozenset({"is"}))])]


HANG = Section("hang", _conclude, ("blocked", "marks", "wire"), _document, _parts, merge=lambda parts, whole: parts[-1])
