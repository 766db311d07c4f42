"""The process of a job that failed first, so that the job ended: how it ended, and for whom it had waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.declared import json_of
from netprof.analysis.events.elsewhere import may_communicate
from netprof.analysis.events.exits import Exit, clock_time, find_exits
from netprof.analysis.events.unfinished import Unfinished, last_state
from netprof.analysis.events.waits import training_threads
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.advice import Advice
from netprof.analysis.findings.names import name_and_pid, name_on_host, own_pid
from netprof.analysis.findings.stalls.after_exit import after_exit
from netprof.analysis.findings.stalls.exits import Ended
from netprof.analysis.findings.stragglers.doing import Doing, what_threads_do
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.intervals import interval, joined
from netprof.schema import MarkKind
from netprof.units import duration, listed

_LEAST_NS = 10**9
_STEPS = 3
"""Times as long as the longest step before: a wait that a time limit ends is far longer than steps are."""
_GAP_NS = 100_000_000
"""Who waits for long looks at the clock now and then."""
_NAMED = 4


@dataclass(frozen=True)
class Stopped:
    """A process that failed, when others still trained or waited; ns.

    Until it gave up it had waited for `waited_ns` for the processes `awaited`, which did not wait; 0: for none. `doing`
    is what those did, where that is known. Names are for a person, with and without numbers of processes.
    """

    exit: Exit
    at: str
    name: str
    name_and_pid: str
    own_pid: int
    waited_ns: int = 0
    awaited: tuple[str, ...] = ()
    awaited_pid: int | None = None
    doing: Doing | None = None

    @property
    def headline(self) -> str:
        """What happened, in a few words."""
        gave_up = f"gave up after {duration(self.waited_ns / 1e9)} of waiting{self._for_whom}"
        what = f"{self.name} {gave_up}" if self.waited_ns else f"{self.name_and_pid} {self.exit.ending}"
        return f"STOPPED at {self.at}: {what}"

    @property
    def sentence(self) -> str:
        """The same, with how the process ended."""
        waited = f", after it had waited for {duration(self.waited_ns / 1e9)}{self._for_whom}" if self.waited_ns else ""
        return f"{self.name_and_pid} {self.exit.ending}{waited}"

    @property
    def _for_whom(self) -> str:
        were = "was" if len(self.awaited) == 1 else "were"
        doing = f", which {were} {self.doing.short}" if self.doing is not None else ""
        return f" for {listed(self.awaited, _NAMED)}{doing}" if self.awaited else ""

    @property
    def next(self) -> tuple[Advice, ...]:
        """What to do about it."""
        if self.awaited_pid is None:
            return (after_exit(self.name_and_pid, self.exit),)
        longer = "or give the collective's time limit more time"
        return (
            Advice(f"see why {self.awaited[0]} came that late, {longer}", f"py-spy dump --pid {self.awaited_pid}"),
            after_exit(self.name_and_pid, self.exit),
        )


def find_stopped(evidence: Evidence) -> Stopped | None:
    """Return the process of those that train that failed first; None where none did, or it is of another piece."""
    marks = evidence.marks.where(evidence.marks.kind < MarkKind.PROCESS_FORK)
    pids = {*np.unique(marks.pid).tolist(), *evidence.ranks}
    failed = [end for pid, end in find_exits(evidence.marks).items() if pid in pids and end.has_failed]
    if not failed or not evidence.piece.owns(np.array([failed[0].time_ns])).all():
        return None
    end = failed[0]
    pid = end.pid
    stopped = Stopped(
        end,
        clock_time(evidence.meta, end.time_ns),
        name_on_host(pid, evidence),
        name_and_pid(pid, evidence),
        own_pid(pid, evidence),
    )
    state = _state(pid, end.time_ns, evidence)
    if state is None or not state.in_wait:
        return stopped
    until_ns = _waited_until(state, end.time_ns, evidence)
    longest_ns = int(evidence.iterations.of_pid(pid).duration_ns.max(initial=0))
    if until_ns - state.since_ns < max(_LEAST_NS, _STEPS * longest_ns):
        return stopped
    others = {other: _state(other, until_ns, evidence) for other in sorted(pids - {pid})}
    absent = [other for other, seen in others.items() if seen is not None and not seen.in_wait]
    span = interval(state.since_ns, until_ns)
    doing = {what_threads_do(evidence.blocked.get(other, {}), span) for other in absent if other in evidence.blocked}
    return replace(
        stopped,
        waited_ns=until_ns - state.since_ns,
        awaited=tuple(name_on_host(other, evidence) for other in absent),
        awaited_pid=own_pid(absent[0], evidence) if absent else None,
        doing=doing.pop() if len(doing) == 1 else None,
    )


def of_ended(ended: Sequence[Ended]) -> Stopped | None:
    """Return the process that failed first of those that ended: all that digests hold of it."""
    first = next((each for each in ended if each.exit.has_failed), None)
    return None if first is None else Stopped(first.exit, first.at, first.name, first.name, first.exit.pid)


def _state(pid: int, at_ns: int, evidence: Evidence) -> Unfinished | None:
    """Return what a process did at some instant, by its marks; None where none tells."""
    marks = evidence.marks
    before = marks.where((marks.pid == pid) & (marks.time_ns <= at_ns) & (marks.kind < MarkKind.PROCESS_FORK))
    return last_state(pid, before) if len(before) and len(training_threads(before)) else None


def _waited_until(state: Unfinished, end_ns: int, evidence: Evidence) -> int:
    """Return until when a process really waited: before it ends, it runs, tells of its error and cleans up."""
    blocked = evidence.blocked.get(state.pid)
    if blocked is None:
        return end_ns
    waits = joined(may_communicate(blocked) & interval(state.since_ns, end_ns), _GAP_NS)
    return int(waits.end_ns[np.argmax(waits.end_ns - waits.begin_ns)]) if len(waits) else state.since_ns


def _merge(parts: Sequence[Stopped | None], whole: Analysis) -> Stopped | None:
    return next((part for part in parts if part is not None), None)


def _document(stopped: Stopped | None) -> dict[str, Any]:
    keys = "name time_ns=exit.time_ns code=exit.code waited_s=waited_ns awaited sentence"
    return {"stopped": None if stopped is None else json_of(stopped, keys)}


STOPPED = Section(
    "stopped", lambda analysis: find_stopped(analysis.evidence), ("marks", "blocked"), _document, merge=_merge
)
"""The process that failed first; that the job went on without it is for the verdict to see."""
