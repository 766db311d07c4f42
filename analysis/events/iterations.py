"""Marks to iterations: which steps of a job are whole, and where the time of each went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from netprof.analysis.events.job_steps import JobSteps, find_job_steps
from netprof.analysis.events.local_passes import LocalPasses, find_local_passes
from netprof.analysis.events.phase_times import PhaseTimes, phase_times
from netprof.analysis.events.reducers import DDP_MARKS, find_passes, models_of, stray_times
from netprof.analysis.events.waits import waits
from netprof.analysis.tables.columns import Columns, Int64, by_pid, concatenate, narrowed
from netprof.analysis.tables.intervals import overlap
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind


def _not_given() -> Int64:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Iterations(Columns):
    """Whole iterations, ascending within a process; ns. See `definitions.ITERATION` and `definitions.PHASES`.

    begin_ns <= backward_ns <= wait_ns <= done_ns <= end_ns are its edges: where its first backward part begins, and
    from when to when it waited for the last of its buckets. Its phases may come in several parts, of which the columns
    are the sums: they are disjoint, and with the rest add up to the duration exactly. Phases that are not given lie
    between the edges.
    """

    pid: Int64
    begin_ns: Int64
    backward_ns: Int64
    wait_ns: Int64
    done_ns: Int64
    end_ns: Int64
    forward_phase_ns: Int64 = field(default_factory=_not_given)
    backward_phase_ns: Int64 = field(default_factory=_not_given)
    exposed_phase_ns: Int64 = field(default_factory=_not_given)

    def __post_init__(self) -> None:
        if len(self.forward_phase_ns) != len(self.pid):
            object.__setattr__(self, "forward_phase_ns", self.backward_ns - self.begin_ns)
            object.__setattr__(self, "backward_phase_ns", self.wait_ns - self.backward_ns)
            object.__setattr__(self, "exposed_phase_ns", self.done_ns - self.wait_ns)

    @property
    def duration_ns(self) -> Int64:
        """From a step's forward to the next step's."""
        return self.end_ns - self.begin_ns

    @property
    def rest_phase_ns(self) -> Int64:
        """Everything else: optimizer, data loading, evaluation."""
        return self.duration_ns - self.forward_phase_ns - self.backward_phase_ns - self.exposed_phase_ns


@dataclass(frozen=True, eq=False)
class IterationTimes(Columns):
    """What is kept of a recording's iterations, however many there are: ns, in the narrowest types that hold them.

    `level_after_ns` is how long after its begin all ranks are level, `level_ns` how long each lasts from when they were
    before, 0 where that is not known, and `level_exposed_ns` how much of that is exposed (`level.LevelSteps`).
    """

    pid: Int64
    begin_ns: Int64
    duration_ns: Int64
    forward_phase_ns: Int64
    backward_phase_ns: Int64
    exposed_phase_ns: Int64
    level_after_ns: Int64
    level_ns: Int64
    level_exposed_ns: Int64

    @property
    def rest_phase_ns(self) -> Int64:
        """Everything else: optimizer, data loading, evaluation."""
        known = self.forward_phase_ns.astype(np.int64) + self.backward_phase_ns + self.exposed_phase_ns
        return self.duration_ns - known


def times_of(iterations: Iterations, level: Sequence[Int64]) -> IterationTimes:
    """Return when iterations were, and how long each phase took in them; `level` are the columns of that name."""
    names = [name for name in IterationTimes.__dataclass_fields__ if not name.startswith("level")]
    return IterationTimes(*(narrowed(getattr(iterations, name)) for name in names), *map(narrowed, level))


def narrow(times: IterationTimes) -> IterationTimes:
    """Return iterations with each column in the narrowest type that holds it."""
    return IterationTimes(*(narrowed(getattr(times, name)) for name in IterationTimes.__dataclass_fields__))


@dataclass(frozen=True)
class Dropped:
    """Steps of a process that are not reported as iterations."""

    incomplete: int = 0  # cut off by the beginning or the end of the recording: at most one each
    damaged: int = 0  # marks are missing in the middle

    def __add__(self, other: Dropped) -> Dropped:
        """Return both."""
        return Dropped(self.incomplete + other.incomplete, self.damaged + other.damaged)


@dataclass(frozen=True, eq=False)
class FoundIterations:
    """All whole iterations of all processes, and what was dropped of each process (by pid).

    `turns` are the processes in which several DDP models train in turn or at once, and how many.
    `stepped` are the processes whose iterations are told by the optimizer's steps (`definitions.STEPS`).
    `damaged_ns` says when those lie that miss marks, by pid.
    `phases` are the phases of every process that trains over all of the recording, by pid. `accumulates` are the
    processes with passes whose gradients are not exchanged at once; of those in `forward_unseen` nothing tells where
    the forward passes begin.
    """

    iterations: Iterations
    dropped: dict[int, Dropped]
    turns: dict[int, int] = field(default_factory=dict)
    stepped: tuple[int, ...] = ()
    phases: dict[int, PhaseTimes] = field(default_factory=dict)
    damaged_ns: dict[int, Int64] = field(default_factory=dict)
    accumulates: frozenset[int] = frozenset()
    forward_unseen: frozenset[int] = frozenset()


def find_iterations(marks: Marks) -> FoundIterations:
    """Find the whole iterations of every process that has a DDP reducer (`definitions.ITERATION`).

    A step is known by its `ddp_wait`. It begins at the last `ddp_forward` before that; forwards that lead to no
    wait (an evaluation) begin nothing and so split nothing. Accumulated passes before it are a part of it, where marks
    tell of them. It ends where the next step begins. Of a process whose buckets are only seen to be launched, no
    step is known to end.
    """
    is_ddp = marks.are(*(kind for kind in DDP_MARKS if kind is not MarkKind.GRADIENT_READY))
    pids = set(np.unique(marks.pid[is_ddp]).tolist()) - _only_launch(marks)
    by_process = {pid: _of_process(pid, process_marks) for pid, process_marks in by_pid(marks, pids)}
    return FoundIterations(
        iterations=concatenate(Iterations, [process.iterations for process in by_process.values()]),
        dropped={pid: process.dropped for pid, process in by_process.items()},
        damaged_ns={pid: process.damaged_ns for pid, process in by_process.items()},
        turns={pid: process.models for pid, process in by_process.items() if process.models > 1},
        phases={pid: process.phases for pid, process in by_process.items()},
        accumulates=frozenset(pid for pid, process in by_process.items() if len(process.local.backward_ns)),
        forward_unseen=frozenset(pid for pid, process in by_process.items() if process.local.accumulates_unseen),
    )


def _only_launch(marks: Marks) -> set[int]:
    """Return the processes that launch buckets, of which none is seen to arrive."""
    launched = np.unique(marks.pid[marks.kind == MarkKind.BUCKET_LAUNCH]).tolist()
    ended = marks.of(MarkKind.BUCKET_DONE, MarkKind.DDP_STATS).pid
    return set(launched) - set(np.unique(ended).tolist())


def iteration_rows(pid: int, steps: JobSteps, phases: PhaseTimes) -> Iterations:
    """Return steps of a process as iterations, with the time of each phase in them."""
    begin, end = steps.begin_ns, steps.end_ns
    spent = (overlap(times, begin, end) for times in (phases.forward, phases.backward, phases.exposed))
    return Iterations(np.full(len(begin), pid), begin, steps.backward_ns, steps.wait_ns, steps.done_ns, end, *spent)


@dataclass(frozen=True, eq=False)
class _OfProcess:
    iterations: Iterations
    dropped: Dropped
    damaged_ns: Int64
    models: int
    local: LocalPasses
    phases: PhaseTimes


def _of_process(pid: int, marks: Marks) -> _OfProcess:
    models = models_of(marks)
    passes = find_passes(models, marks.times(MarkKind.BACKWARD))
    local = find_local_passes(marks, passes)
    phases = phase_times(passes, local, waits(marks, passes))
    steps = find_job_steps(models, passes, local, stray_times(models, passes))
    dropped = Dropped(steps.incomplete, len(steps.damaged_ns))
    return _OfProcess(iteration_rows(pid, steps.whole, phases), dropped, steps.damaged_ns, len(models), local, phases)
