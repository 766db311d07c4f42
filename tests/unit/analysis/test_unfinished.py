"""Steps that do not end, from marks that stop at a known place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from support.synthetic import BACKWARD, ITERATION_NS, MS, START_NS, WAIT, Job, K, mark_columns, trace_of

from netprof.analysis import analyze
from netprof.analysis.events.iterations import find_iterations
from netprof.analysis.events.optimizer_steps import find_all_iterations
from netprof.analysis.events.unfinished import Unfinished, find_unfinished
from netprof.analysis.tables.marks import read_marks
from netprof.trace import TraceReader

LAST = START_NS + 8 * ITERATION_NS
S = 1000 * MS


def cut(job: Job, at: int, pid: int | None = None) -> Job:
    job.marks = [mark for mark in job.marks if mark[0] < at or (pid is not None and mark[1] != pid)]
    return job


def find(job: Job, until: int) -> Mapping[int, Unfinished]:
    marks = read_marks(mark_columns(job.marks))
    return find_unfinished(marks, find_iterations(marks).iterations, until)


def test_a_job_whose_ranks_wait_for_one_that_stands_still() -> None:
    """Rank 1 stops in its backward pass; rank 0's bucket never comes."""
    job = cut(cut(Job().fill(), LAST + WAIT - MS, pid=101), LAST + WAIT + MS)
    found = find(job, LAST + 3 * S)
    assert found[100] == Unfinished(100, LAST + WAIT, in_wait=True)
    assert not found[101].in_wait
    assert LAST + BACKWARD <= found[101].since_ns < LAST + WAIT


@pytest.mark.parametrize(("after_s", "is_unfinished"), [(1.9, False), (2.2, True)])
def test_a_step_goes_on_for_ten_iterations_before_it_counts(after_s: float, is_unfinished: bool) -> None:
    job = cut(Job().fill(), LAST + WAIT + MS)
    assert bool(find(job, LAST + WAIT + round(after_s * S))) is is_unfinished


def test_it_takes_two_seconds_also_where_iterations_are_short() -> None:
    job = Job(ranks=1)
    for step in range(50):
        job.mark(START_NS + step * 10 * MS, 100, K.DDP_FORWARD)
        job.mark(START_NS + step * 10 * MS + MS, 100, K.DDP_BACKWARD)
        job.mark(START_NS + step * 10 * MS + 2 * MS, 100, K.DDP_WAIT)
        job.mark(START_NS + step * 10 * MS + 3 * MS, 100, K.DDP_STATS)
    end = START_NS + 493 * MS
    assert find(job, end + 1900 * MS) == {}
    assert find(job, end + 2100 * MS) == {100: Unfinished(100, end, in_wait=False)}


def test_a_bucket_that_arrived_is_no_end_of_the_wait() -> None:
    job = cut(Job(ranks=1).fill(), LAST + WAIT + 60 * MS)  # the first of two buckets is unpacked
    assert find(job, LAST + 3 * S)[100] == Unfinished(100, LAST + WAIT, in_wait=True)


def test_a_process_that_ended_is_not_stalled() -> None:
    job = cut(Job().fill(), LAST + WAIT + MS)
    job.mark(LAST + WAIT + 2 * MS, 100, K.PROCESS_EXIT)
    assert set(find(job, LAST + 3 * S)) == {101}


@pytest.mark.parametrize(
    ("kinds", "since", "in_wait"),
    [
        ([(K.COLLECTIVE_ENQUEUE, 5), (K.WORK_WAIT, 5)], 1, True),
        ([(K.COLLECTIVE_ENQUEUE, 5), (K.WORK_WAIT, 5), (K.COLLECTIVE_END, 5)], 1, False),  # it ended, the job did not
        ([(K.HOROVOD_WAIT, 5)], 0, True),
        ([(K.HOROVOD_WAIT, 5), (K.HOROVOD_DONE, 5)], 0, False),
        ([(K.POSTED_WAIT, 0)], 0, True),
        ([(K.POSTED_WAIT, 0), (K.POSTED_WAIT_OVER, 0)], 1, False),
        ([(K.COLLECTIVE_BEGIN, 0), (K.COLLECTIVE_SIZE, 9)], 0, True),
        ([(K.COLLECTIVE_BEGIN, 0), (K.COLLECTIVE_SIZE, 9), (K.COLLECTIVE_END, 0)], 2, False),
    ],
)
def test_other_ways_to_wait(kinds: list[tuple[int, int]], since: int, in_wait: bool) -> None:
    job = Job(ranks=1)
    for step in range(8):
        job.mark(START_NS + step * 100 * MS, 100, K.BACKWARD)
        job.mark(START_NS + step * 100 * MS + 60 * MS, 100, K.OPTIMIZER_STEP)
    for number, (kind, arg0) in enumerate(kinds):
        elsewhere = kind in (K.HOROVOD_DONE,) or (kind == K.COLLECTIVE_END and arg0)
        job.mark(START_NS + 800 * MS + number, 100, kind, arg0, tid=9 if elsewhere else 100)
    marks = read_marks(mark_columns(job.marks))
    found = find_unfinished(marks, find_iterations(marks).iterations, START_NS + 5 * S, [np.array([100 * MS])])
    assert found[100] == Unfinished(100, START_NS + 800 * MS + since, in_wait)
    assert find_unfinished(marks, find_iterations(marks).iterations, START_NS + 5 * S) == {}, "nothing typical is known"


def test_a_step_is_unfinished_also_where_only_backward_passes_tell_of_steps() -> None:
    """A compiled optimizer is not seen to step."""
    job = Job()
    for step in range(8):
        for pid in (100, 101):
            job.mark(START_NS + step * 100 * MS, pid, K.BACKWARD)
            job.mark(START_NS + (step * 100 + 40) * MS, pid, K.COLLECTIVE_BEGIN)
            if step < 7:
                job.mark(START_NS + (step * 100 + 50) * MS, pid, K.COLLECTIVE_END)
    marks = read_marks(mark_columns(job.marks))
    found = find_unfinished(marks, find_all_iterations(marks).iterations, START_NS + 5 * S)
    assert found == {pid: Unfinished(pid, START_NS + 740 * MS, in_wait=True) for pid in (100, 101)}


def test_who_ended_before_says_nothing_about_whether_the_others_went_on() -> None:
    """The marks of rank 0 end in a wait, and rank 1 goes on; a third process trained before, and ended."""
    job = Job(iterations=40).fill()
    job.marks = [mark for mark in job.marks if mark[1] != 100 or mark[0] < LAST + WAIT + MS]
    assert find(job, LAST + 6 * S) == {}
    for step in range(3):
        job.step(2, START_NS + step * ITERATION_NS)
    job.mark(START_NS + 3 * ITERATION_NS, 102, K.PROCESS_EXIT)
    assert find(job, LAST + 6 * S) == {}


@pytest.mark.slow
def test_a_whole_recording_says_it(tmp_path: Path) -> None:
    job = cut(Job(iterations=30).fill(), LAST + WAIT + MS)
    stalled = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).evidence.unfinished
    assert {pid: each.in_wait for pid, each in stalled.items()} == {100: True, 101: True}
    running = analyze(TraceReader(trace_of(iterations=30))).evidence.unfinished
    assert running == {}
