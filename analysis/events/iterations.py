"""Marks to iterations: which steps are whole, and where the time of each went."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from netprof.analysis.events.reducers import main_steps
from netprof.analysis.tables.columns import Bool, Columns, Int64, concatenate, empty
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind

_NEVER, _ALWAYS = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class Iterations(Columns):
    """Whole iterations, ascending within a process; ns. See `definitions.ITERATION` and `definitions.PHASES`.

    begin_ns <= backward_ns <= wait_ns <= done_ns <= end_ns, so the four phases add up to the duration exactly.
    """

    pid: Int64
    begin_ns: Int64
    backward_ns: Int64
    wait_ns: Int64
    done_ns: Int64
    end_ns: Int64

    @property
    def duration_ns(self) -> Int64:
        """From a step's forward to the next step's."""
        return self.end_ns - self.begin_ns

    @property
    def forward_phase_ns(self) -> Int64:
        """Time from the beginning to the end of the forward pass."""
        return self.backward_ns - self.begin_ns

    @property
    def backward_phase_ns(self) -> Int64:
        """Time from the end of the forward pass until the job waits for its buckets."""
        return self.wait_ns - self.backward_ns

    @property
    def exposed_phase_ns(self) -> Int64:
        """Exposed communication: time in which the job does nothing but wait for its buckets."""
        return self.done_ns - self.wait_ns

    @property
    def rest_phase_ns(self) -> Int64:
        """Everything else: optimizer, data loading, evaluation."""
        return self.end_ns - self.done_ns


@dataclass(frozen=True)
class Dropped:
    """Steps of a process that are not reported as iterations."""

    incomplete: int = 0  # cut off by the beginning or the end of the recording: at most one each
    damaged: int = 0  # marks are missing in the middle


@dataclass(frozen=True, eq=False)
class FoundIterations:
    """All whole iterations of all processes, and what was dropped of each process (by pid).

    `turns` are the processes in which several DDP models train in turn, and how many (`reducers.main_steps`).
    `stepped` are the processes whose iterations are told by the optimizer's steps (`definitions.STEPS`).
    """

    iterations: Iterations
    dropped: dict[int, Dropped]
    turns: dict[int, int] = field(default_factory=dict)
    stepped: tuple[int, ...] = ()


def find_iterations(marks: Marks) -> FoundIterations:
    """Find the whole iterations of every process that has a DDP reducer (`definitions.ITERATION`).

    A step is known by its `ddp_wait`. It begins at the last `ddp_forward` before that; forwards that lead to no
    wait (evaluation, gradient accumulation under `no_sync`) begin nothing and so split nothing. It is done at the
    first `ddp_stats` after the wait and its last `bucket_done`, the end of torch's `finalize_backward` (a later one,
    just before the next forward pass, is DDP's logger), and ends where the next step begins.
    """
    marks, turns = main_steps(marks)
    ddp = marks.of(
        MarkKind.DDP_FORWARD,
        MarkKind.DDP_BACKWARD,
        MarkKind.DDP_WAIT,
        MarkKind.DDP_STATS,
        MarkKind.BUCKET_LAUNCH,
        MarkKind.BUCKET_DONE,
    )
    found = {int(pid): _of_process(int(pid), ddp.where(ddp.pid == pid)) for pid in np.unique(ddp.pid)}
    parts = [iterations for iterations, _ in found.values()]
    dropped = {pid: dropped for pid, (_, dropped) in found.items()}
    return FoundIterations(concatenate(Iterations, parts), dropped, turns)


def _of_process(pid: int, marks: Marks) -> tuple[Iterations, Dropped]:
    forward = marks.times(MarkKind.DDP_FORWARD)
    wait = marks.times(MarkKind.DDP_WAIT)
    if len(forward) == 0 or len(wait) == 0:
        return empty(Iterations), Dropped(incomplete=int(len(marks) > 0))
    previous_wait = np.concatenate(([_ALWAYS], wait[:-1]))
    next_wait = np.concatenate((wait[1:], [_NEVER]))
    begin, has_begin = _last_before(forward, wait, after=previous_wait)
    backward, has_backward = _last_before(marks.times(MarkKind.DDP_BACKWARD), wait, after=begin)
    limit = np.minimum(_first_after(forward, wait), next_wait)
    arrived, any_arrived = _last_before(marks.times(MarkKind.BUCKET_DONE), limit, after=wait)
    done = _first_after(marks.times(MarkKind.DDP_STATS), np.where(any_arrived, arrived, wait))
    has_done = done < limit
    end, has_end = _ends(marks, begin, has_begin, wait)
    whole = has_begin & has_backward & has_done & has_end
    whole &= ~_holds_another_step(marks, done, end)
    whole &= begin <= backward
    iterations = Iterations(np.full(len(wait), pid), begin, backward, wait, done, end).where(whole)
    return iterations, _count_dropped(marks, forward, whole, has_begin, has_end)


def _last_before(times: Int64, limit: Int64, after: Int64) -> tuple[Int64, Bool]:
    """Return for each row the last of `times` in (after, limit), and whether there is one."""
    if len(times) == 0:
        return np.zeros(len(limit), np.int64), np.zeros(len(limit), bool)
    index = np.searchsorted(times, limit, "left") - 1
    found = times[np.maximum(index, 0)]
    return found, (index >= 0) & (found > after)


def _first_after(times: Int64, instants: Int64) -> Int64:
    """Return for each instant the first of `times` after it, or the end of all time."""
    return np.append(times, _NEVER)[np.searchsorted(times, instants, "right")]


def _ends(marks: Marks, begin: Int64, has_begin: Bool, wait: Int64) -> tuple[Int64, Bool]:
    """Return where each step ends: at the beginning of the next one, if that is known."""
    last, known = _trailing_begin(marks, begin, has_begin, wait)
    return np.append(begin[1:], last), np.append(has_begin[1:], known)


def _trailing_begin(marks: Marks, begin: Int64, has_begin: Bool, wait: Int64) -> tuple[int, bool]:
    """Find the beginning of the step that the end of the recording cut off before its wait.

    The one forward after the last wait is such a beginning if a bucket was launched after it, or if every earlier
    forward of this process began a step too; otherwise it may be an evaluation, and nothing is known.
    """
    forward = marks.times(MarkKind.DDP_FORWARD)
    trailing = forward[forward > wait[-1]]
    if len(trailing) == 0:
        return 0, False
    launches = marks.times(MarkKind.BUCKET_LAUNCH)
    launches = launches[launches > trailing[0]]
    if len(launches):
        return int(trailing[trailing < launches[0]][-1]), True
    earlier = forward[(forward > begin[0]) & (forward <= wait[-1])]
    always_led_to_a_step = bool(np.isin(earlier, begin[has_begin]).all())
    return int(trailing[0]), len(trailing) == 1 and always_led_to_a_step


def _holds_another_step(marks: Marks, done: Int64, end: Int64) -> Bool:
    """Return whether a bucket moves between a step's done and its end: the marks of the step between are lost."""
    busy = np.sort(np.concatenate((marks.times(MarkKind.BUCKET_LAUNCH), marks.times(MarkKind.BUCKET_DONE))))
    return np.asarray(np.searchsorted(busy, end, "left") > np.searchsorted(busy, done, "right"))


def _count_dropped(marks: Marks, forward: Int64, whole: Bool, has_begin: Bool, has_end: Bool) -> Dropped:
    """Tell what the edges of the recording cut off from what is damaged in the middle."""
    cut_at_begin = bool(marks.time_ns[0] < forward[0])
    excused = np.zeros(len(whole), bool)
    excused[0] |= cut_at_begin and not has_begin[0]
    excused[-1] |= not has_end[-1]
    return Dropped(incomplete=int(cut_at_begin) + 1, damaged=int((~whole & ~excused).sum()))
