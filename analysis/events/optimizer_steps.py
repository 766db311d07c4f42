"""Iterations of processes without a DDP reducer: from the autograd engine, the optimizer and what the job waits for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from netprof.analysis.events.iterations import Dropped, FoundIterations, Iterations, find_iterations, iteration_rows
from netprof.analysis.events.job_steps import JobSteps
from netprof.analysis.events.local_passes import LocalPasses
from netprof.analysis.events.phase_times import PhaseTimes, phase_times
from netprof.analysis.events.reducers import Passes
from netprof.analysis.events.waits import waits
from netprof.analysis.tables.columns import by_pid, concatenate, empty, opens
from netprof.analysis.tables.intervals import overlap
from netprof.analysis.tables.marks import Marks
from netprof.schema import ENQUEUED, MarkKind

_NO_PASSES = empty(Passes)


def find_all_iterations(marks: Marks) -> FoundIterations:
    """Find the whole iterations of every process: from DDP's marks where there are any, else from optimizer steps."""
    ddp = find_iterations(marks)
    with_iterations = frozenset(np.unique(ddp.iterations.pid).tolist())
    stepped = find_steps(marks, with_iterations)
    return replace(
        ddp,
        iterations=concatenate(Iterations, [ddp.iterations, stepped.iterations]),
        dropped=ddp.dropped | stepped.dropped,
        stepped=stepped.stepped,
        phases=stepped.phases | {pid: ddp.phases[pid] for pid in ddp.phases if pid not in stepped.stepped},
    )


def find_steps(marks: Marks, known: frozenset[int]) -> FoundIterations:
    """Find the iterations of every process that trains without DDP (`definitions.STEPS`); `known` ones are left out.

    Where optimizer steps are unmarked (a compiled optimizer, one on a parameter server), each backward pass is one.
    A process that is only seen to enqueue (NCCL) waits on the GPU, where no mark sees it, and one whose calls are not
    seen to return waits in them: its phases are unknown, and its iterations are left to inference.
    """
    parts: list[Iterations] = []
    dropped: dict[int, Dropped] = {}
    phases: dict[int, PhaseTimes] = {}
    steps = set(marks.pid[marks.kind == MarkKind.OPTIMIZER_STEP].tolist()) - known
    passes = set(marks.pid[marks.kind == MarkKind.BACKWARD].tolist()) - known - steps
    for pid, process_marks in by_pid(marks, only=steps | passes):
        process_marks = process_marks if pid in steps else _as_if_stepped(process_marks)
        phases[pid] = _phases(process_marks)
        iterations, cut = _of_process(pid, process_marks, phases[pid])
        if len(iterations) and not _only_enqueues(process_marks):
            parts.append(iterations)
            dropped[pid] = cut
    return FoundIterations(concatenate(Iterations, parts), dropped, stepped=tuple(dropped), phases=phases)


def _as_if_stepped(marks: Marks) -> Marks:
    """Return a process's marks with a step right after each backward pass's begin: a pass inside of another is none.

    Nothing tells when such a pass ends.
    """
    begins = marks.of(MarkKind.BACKWARD)
    steps = replace(begins, time_ns=begins.time_ns + 1, kind=np.full(len(begins), int(MarkKind.OPTIMIZER_STEP)))
    return concatenate(Marks, [marks, steps]).sorted_by("time_ns")


def _only_enqueues(marks: Marks) -> bool:
    """Tell whether nothing of what a process begins is seen to end, or little beside what it enqueues.

    A checkpoint that is agreed upon over gloo now and then does not make what NCCL does seen.
    """
    enqueued, begun = marks.are(*ENQUEUED), marks.are(MarkKind.COLLECTIVE_BEGIN)
    ended = marks.are(MarkKind.COLLECTIVE_END, MarkKind.POSTED_WAIT_OVER, MarkKind.HOROVOD_TRANSFER)
    return bool((enqueued | begun).any() and 2 * ended.sum() <= enqueued.sum())


def _phases(marks: Marks) -> PhaseTimes:
    nowhere = np.zeros(0, np.int64)
    passes = LocalPasses(nowhere, marks.times(MarkKind.BACKWARD), nowhere, marks.times(MarkKind.OPTIMIZER_STEP))
    return phase_times(_NO_PASSES, passes, waits(marks))


def _of_process(pid: int, marks: Marks, phases: PhaseTimes) -> tuple[Iterations, Dropped]:
    """Cut at the first backward pass after each optimizer step.

    The waiting may be spread over the iteration: its edges are drawn as if it lay together, between backward pass and
    rest.
    """
    step, backward = marks.times(MarkKind.OPTIMIZER_STEP), marks.times(MarkKind.BACKWARD)
    first = opens(np.searchsorted(step, backward))
    begin = backward[first]
    begin = begin[begin > step[0]]  # the pass that was going on, or the one before the first step, may be cut off
    if len(begin) < 2:
        return empty(Iterations), Dropped(incomplete=1)
    begin, end = begin[:-1], begin[1:]
    stepped = step[np.searchsorted(step, begin, "right")]
    before_step, after_step = overlap(phases.exposed, begin, stepped), overlap(phases.exposed, stepped, end)
    wait = stepped - before_step
    steps = JobSteps(begin, begin, wait, wait + before_step + after_step, end)
    return iteration_rows(pid, steps, phases), Dropped(incomplete=2)
