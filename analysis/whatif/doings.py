"""What one process did in each of its steps: the collectives it posted, the waits, on its compute clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from netprof.analysis.events.collectives import Collectives, group_sizes
from netprof.analysis.events.level import level_steps
from netprof.analysis.events.waits import training_threads
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.columns import UNKNOWN, Bool, Float64, Int64, distinct
from netprof.analysis.tables.intervals import Intervals, covered_until, row_at, union
from netprof.analysis.tables.marks import Marks
from netprof.analysis.whatif.program import NOT_CHAINED, Action
from netprof.schema import Backend, MarkKind


@dataclass(frozen=True, eq=False)
class Waits:
    """The waits of one process, by begin, (J,): also those of no length, for what was there already.

    `asked` are pairs (wait, row of the collective), shape (A, 2), where a mark says what the wait is for, and
    `at_begin` whether that mark is the wait's begin. A wait that begins otherwise (DDP's) is for everything that was
    posted before its end and had arrived by then.
    """

    begin_ns: Int64
    end_ns: Int64
    asked: Int64
    at_begin: Bool

    def __len__(self) -> int:
        return len(self.begin_ns)


def find_waits(marks: Marks, collectives: Collectives, times: Intervals) -> Waits:
    """Return the waits of a process: the `times` in which it does nothing else, and calls that return at once.

    All of one process; `collectives` are numbered by row.
    """
    called_ns, row = _asked_for(marks, collectives)
    index = row_at(times.begin_ns, times.end_ns, called_ns)
    inside = index != UNKNOWN
    at_once = distinct(called_ns[~inside])
    begin = np.concatenate((times.begin_ns, at_once))
    end = np.concatenate((times.end_ns, at_once))
    order = np.argsort(begin, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    number = np.where(inside, index, len(times) + np.searchsorted(at_once, called_ns))
    wait = place[number]
    return Waits(begin[order], end[order], np.column_stack((wait, row)), called_ns == begin[order][wait])


def _asked_for(marks: Marks, collectives: Collectives) -> tuple[Int64, Int64]:
    """Return when WORK_WAIT was called, and for which row: the last one of that address that was posted before.

    Only by threads that train: a callback that waits on another thread delays no step.
    """
    calls = marks.of(MarkKind.WORK_WAIT)
    calls = calls.where(np.isin(calls.tid, training_threads(marks)))
    if len(calls) == 0 or len(collectives) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.lexsort((collectives.posted_ns, collectives.work))
    work, posted = collectives.work[order], collectives.posted_ns[order]
    merged = np.concatenate((work, calls.arg0))
    times = np.concatenate((posted, calls.time_ns))
    is_call = np.repeat([0, 1], [len(work), len(calls)])
    together = np.lexsort((is_call, times, merged))
    position = np.where(is_call[together] == 0, np.arange(len(together)), -1)
    last = np.maximum.accumulate(position)
    mine = np.flatnonzero(is_call[together] == 1)
    earlier = last[mine]
    known = (earlier >= 0) & (merged[together[np.maximum(earlier, 0)]] == merged[together[mine]])
    known &= merged[together[mine]] != 0
    call = together[mine[known]] - len(work)
    return calls.time_ns[call], order[together[earlier[known]]]


_NS = 1e-9


@dataclass(frozen=True, eq=False)
class ProcessStep:
    """One step of one process; K collectives in the order in which they were posted, J waits.

    `events` are the same number on all members of a collective, -1 where they are unknown; `serving` is when links that
    are full, and hold a communicator of the process up, serve its bytes, None without line rates; `clock_s` is when
    each was posted on the compute clock (after the end of `after`, where another one's end posts it); `wait_s`,
    `tail_s` and `waited` are as in `Program`. The iteration begins `lead_s` after the step.
    """

    collectives: Collectives
    events: Int64
    serving: Intervals | None
    clock_s: Float64
    after: Int64
    wait_s: Float64
    tail_s: Float64
    waited: Bool
    steps: tuple[Action, ...]
    duration_s: float
    lead_s: float
    exposed_s: float

    @property
    def structure(self) -> tuple[object, ...]:
        """What iterations have in common that can be replayed together."""
        c = self.collectives
        sizes = tuple(column.tobytes() for column in (c.kind, c.bytes, c.ranks, self.after))
        return (*sizes, self.waited.tobytes(), self.steps)


class Doings:
    """What one process did, in the steps of all ranks (`level.LevelSteps`) that its iterations are.

    The first of a run of iterations is none where others follow it. Collectives of unknown size have 0 bytes: no link
    speed changes what they take.
    """

    def __init__(self, evidence: Evidence, pid: int, world_size: int) -> None:
        self.pid = pid
        iterations = evidence.iterations.of_pid(pid)
        steps = level_steps(iterations, evidence.exposed[pid])
        kept = steps.known if steps.known.any() else np.full(len(iterations), True)
        self.begin_ns, self.end_ns = steps.begin_ns[kept], steps.end_ns[kept]
        self.lead_ns: Int64 = iterations.begin_ns[kept] - self.begin_ns
        self.exposed: Intervals = evidence.exposed[pid]
        marks = evidence.marks.of_pid(pid)
        rows = evidence.collectives.rows_of(pid)
        rows = rows[np.argsort(evidence.collectives.posted_ns[rows], kind="stable")]
        collectives = evidence.collectives.where(rows)
        sizes = np.maximum(collectives.bytes, 0)
        self.collectives = replace(collectives, ranks=group_sizes(collectives, world_size), bytes=sizes)
        self.events = evidence.members.event[rows]
        self.serving = _serving(evidence, evidence.members.group[rows])
        self.waits: Waits = find_waits(marks, self.collectives, self.exposed)
        self._wait_row = row_at(self.begin_ns, self.end_ns, self.waits.begin_ns)
        self._row = self._collectives_rows()

    def __len__(self) -> int:
        return len(self.begin_ns)

    @property
    def duration_ns(self) -> Int64:
        """How long each step is."""
        return np.asarray(self.end_ns - self.begin_ns)

    @cached_property
    def last_event(self) -> Int64:
        """The number of the last collective in each step, the same on all members; -1 where it is not known."""
        last = np.full(len(self), -1)
        rows = np.flatnonzero((self._row >= 0) & (self.collectives.bytes > 0))
        last[self._row[rows]] = self.events[rows]  # by posting: the last one stays
        return last

    def of(self, row: int) -> ProcessStep:
        """Return what was done in one iteration."""
        chosen = np.flatnonzero(self._row == row)
        collectives = self.collectives.where(chosen)
        waits = np.flatnonzero(self._wait_row == row)
        begin, end = self.waits.begin_ns[waits], self.waits.end_ns[waits]
        waited = self._waited(chosen, waits)
        arrived = np.where(waited, collectives.end_ns, begin[:, None]).max(axis=1, initial=0)
        after = _chained(collectives, begin, end)
        clock_s = self._clock_s(collectives.posted_ns, row)
        chained = after != NOT_CHAINED
        clock_s[chained] = (collectives.posted_ns[chained] - collectives.end_ns[after[chained]]) * _NS
        return ProcessStep(
            collectives=collectives,
            events=self.events[chosen],
            serving=self.serving,
            clock_s=clock_s,
            after=after,
            wait_s=self._clock_s(begin, row),
            tail_s=np.maximum(end - np.maximum(arrived, begin), 0) * _NS,
            waited=waited,
            steps=_in_order(collectives.posted_ns, end),
            duration_s=int(self.duration_ns[row]) * _NS,
            lead_s=int(self.lead_ns[row]) * _NS,
            exposed_s=float((end - begin).sum()) * _NS,
        )

    def _clock_s(self, at_ns: Int64, row: int) -> Float64:
        """Return instants on the compute clock of an iteration: without the waits since its begin."""
        begin = self.begin_ns[row : row + 1]
        waited = covered_until(self.exposed, at_ns) - covered_until(self.exposed, begin)
        return np.asarray((at_ns - begin - waited) * _NS)

    def _collectives_rows(self) -> Int64:
        """Return the iteration of each collective: in which it is first asked for, else in which it was posted."""
        row = row_at(self.begin_ns, self.end_ns, self.collectives.posted_ns)
        asked, never = self.waits.asked, np.iinfo(np.int64).max
        waiting = self._wait_row[asked[:, 0]]
        first = np.full(len(row), never)
        np.minimum.at(first, asked[:, 1], np.where(waiting >= 0, waiting, never))
        return np.where(first < never, np.maximum(first, row), row)

    def _waited(self, chosen: Int64, waits: Int64) -> Bool:
        """Return which of the chosen collectives each wait is for, (J, K)."""
        end = self.waits.end_ns[waits]
        asked = self.waits.asked[np.isin(self.waits.asked[:, 0], waits) & np.isin(self.waits.asked[:, 1], chosen)]
        waited = np.zeros((len(waits), len(chosen)), bool)
        waited[np.searchsorted(waits, asked[:, 0]), np.searchsorted(chosen, asked[:, 1])] = True
        explained = np.isin(waits, self.waits.asked[self.waits.at_begin, 0])
        posted, ended = self.collectives.posted_ns[chosen], self.collectives.end_ns[chosen]
        there = (posted[None, :] < end[:, None]) & (ended[None, :] <= end[:, None])
        return np.asarray(waited | (there & ~explained[:, None]))


def _serving(evidence: Evidence, groups: Int64) -> Intervals | None:
    """Return when full links of some communicators serve bytes; None where no line rate is known."""
    if not evidence.links.sides:
        return None
    known = evidence.account.groups
    return union([known[number].serving for number in np.unique(groups).tolist() if number in known])


def _chained(collectives: Collectives, wait_begin_ns: Int64, wait_end_ns: Int64) -> Int64:
    """Return for each collective the one whose end posted it, NOT_CHAINED where the job's own computing did.

    What is posted while the job waits is posted because something arrived, and so is what one of gloo's threads posts,
    from a callback (torch's PowerSGD hook does so): the one that ended last on that thread, else on any.
    """
    posted = collectives.posted_ns
    in_wait = np.any((wait_begin_ns[:, None] < posted) & (posted < wait_end_ns[:, None]), axis=0)
    by_callback = np.isin(collectives.backend, [int(Backend.GLOO)]) & (posted < collectives.begin_ns)
    by_callback = by_callback & np.isin(collectives.posted_tid, collectives.tid)
    after = np.full(len(collectives), NOT_CHAINED)
    for k in np.flatnonzero(in_wait | by_callback).tolist():
        arrived = collectives.end_ns <= posted[k]
        here = arrived & by_callback[k] & (collectives.tid == collectives.posted_tid[k])
        rows = np.flatnonzero(here if here.any() else arrived & in_wait[k])
        if len(rows):
            after[k] = rows[np.argmax(collectives.end_ns[rows])]
    return after


def _in_order(posted_ns: Int64, wait_end_ns: Int64) -> tuple[Action, ...]:
    """Return posts and ends of waits in the order of time."""
    times = np.concatenate((posted_ns, wait_end_ns))
    order = np.argsort(times, kind="stable").tolist()
    count = len(posted_ns)
    return tuple(Action(at >= count, at - count if at >= count else at) for at in order)
