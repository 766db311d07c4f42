"""Iterations against jobs whose steps are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples
from support.synthetic import BACKWARD, DONE, ITERATION_NS, MS, START_NS, WAIT, Job, K, mark_columns

from netprof.analysis.events.iterations import Dropped, find_iterations
from netprof.analysis.tables.marks import read_marks


def find(job):
    return find_iterations(read_marks(mark_columns(job.marks)))


def begins(found, pid=100):
    return found.iterations.where(found.iterations.pid == pid).begin_ns.tolist()


def steps(*numbers):
    return [START_NS + number * ITERATION_NS for number in numbers]


def test_every_step_but_the_last_is_an_iteration_with_its_own_marks():
    found = find(Job(iterations=5).fill())
    assert begins(found) == begins(found, 101) == steps(0, 1, 2, 3, 4)
    its = found.iterations
    assert set(its.duration_ns.tolist()) == {ITERATION_NS}
    assert set(its.forward_phase_ns.tolist()) == {BACKWARD}
    assert set(its.backward_phase_ns.tolist()) == {WAIT - BACKWARD}
    assert set(its.exposed_phase_ns.tolist()) == {DONE - WAIT}
    assert set(its.rest_phase_ns.tolist()) == {ITERATION_NS - DONE}
    assert found.dropped == {100: Dropped(1, 0), 101: Dropped(1, 0)}


def test_the_step_is_done_at_the_first_stats_after_its_last_bucket():
    job = Job(iterations=2, ranks=1).fill()
    job.mark(START_NS + WAIT + 5 * MS, 100, K.DDP_STATS)  # too early, inside the wait
    job.mark(START_NS + ITERATION_NS - MS, 100, K.DDP_STATS)  # too late, DDP's logger before the next forward
    assert find(job).iterations.exposed_phase_ns.tolist() == [DONE - WAIT] * 2


@pytest.mark.parametrize("with_backward", [False, True])
def test_forward_passes_that_lead_to_nothing_split_no_iteration(with_backward):
    job = Job(iterations=3, ranks=1).fill()
    for at in (160 * MS, 170 * MS, ITERATION_NS + 150 * MS):  # evaluation, or accumulation under no_sync
        job.mark(START_NS + at, 100, K.DDP_FORWARD)
        if with_backward:
            job.mark(START_NS + at + MS, 100, K.DDP_BACKWARD)
            job.mark(START_NS + at + MS + 1, 100, K.DDP_STATS)
    found = find(job)
    assert begins(found) == steps(0, 1, 2)
    assert set(found.iterations.duration_ns.tolist()) == {ITERATION_NS}
    assert set(found.iterations.exposed_phase_ns.tolist()) == {DONE - WAIT}  # the evaluation's stats are not the end
    assert found.dropped[100].damaged == 0


def test_a_step_after_accumulation_begins_at_its_last_forward():
    job = Job(iterations=3, ranks=1)
    for step in range(4):
        at = START_NS + step * ITERATION_NS
        job.step(0, at)
        job.mark(at - 40 * MS, 100, K.DDP_FORWARD)
        job.mark(at - 30 * MS, 100, K.DDP_BACKWARD)
    assert begins(find(job)) == steps(0, 1, 2)


def test_the_recording_begins_in_the_middle_of_a_step():
    for cut in (BACKWARD - MS, WAIT - MS, WAIT + MS, DONE - MS):
        job = Job(iterations=3, ranks=1).fill()
        job.marks = [mark for mark in job.marks if mark[0] >= START_NS + cut]
        found = find(job)
        assert begins(found) == steps(1, 2), cut
        assert found.dropped[100] == Dropped(incomplete=2, damaged=0)


def test_the_recording_ends_in_the_middle_of_a_step():
    job = Job(iterations=3, ranks=1).fill()
    for cut in (MS, BACKWARD + MS, WAIT + MS, DONE + MS):
        end = START_NS + 3 * ITERATION_NS + cut
        found = find_iterations(read_marks(mark_columns([mark for mark in job.marks if mark[0] < end])))
        assert begins(found) == steps(0, 1, 2), cut
        assert found.dropped[100] == Dropped(incomplete=1, damaged=0)


def test_a_last_forward_that_may_be_an_evaluation_ends_nothing():
    job = Job(iterations=3, ranks=1).fill()
    job.mark(START_NS + 160 * MS, 100, K.DDP_FORWARD)  # this job does evaluate
    end = START_NS + 3 * ITERATION_NS + MS
    found = find_iterations(read_marks(mark_columns([mark for mark in job.marks if mark[0] < end])))
    assert begins(found) == steps(0, 1)


@pytest.mark.parametrize(
    ("kind", "whole"),
    [
        (K.DDP_FORWARD, (0, 3, 4)),  # step 1 has no end, step 2 no beginning
        (K.DDP_BACKWARD, (0, 1, 3, 4)),
        (K.DDP_WAIT, (0, 3, 4)),  # what looks like step 1 holds step 2's buckets
        (K.DDP_STATS, (0, 1, 3, 4)),
    ],
)
def test_a_step_with_a_lost_mark_is_left_out_and_never_merged_into_another(kind, whole):
    at = START_NS + 2 * ITERATION_NS
    found = find(Job(iterations=5, ranks=1).fill().without([kind], between=(at, at + ITERATION_NS)))
    assert begins(found) == steps(*whole)
    assert set(found.iterations.duration_ns.tolist()) == {ITERATION_NS}
    assert found.dropped[100].damaged > 0


def test_no_marks_and_marks_without_steps():
    assert find(Job()).dropped == {}
    job = Job()
    job.mark(START_NS, 100, K.DDP_FORWARD)
    found = find(job)
    assert len(found.iterations) == 0
    assert found.dropped == {100: Dropped(incomplete=1)}


def test_ranks_may_have_different_counts():
    job = Job(iterations=4).fill()
    job.marks = [mark for mark in job.marks if mark[1] == 100 or mark[0] < START_NS + 2 * ITERATION_NS + MS]
    found = find(job)
    assert len(begins(found)) == 4
    assert len(begins(found, 101)) == 2


def two_models(job):
    """A discriminator and a generator whose steps take turns, the second's forward inside the first's step."""
    for step in range(5):
        at = START_NS + step * ITERATION_NS
        for offset, kind, reducer in (
            (0, K.DDP_FORWARD, 1),
            (10, K.DDP_FORWARD, 2),
            (20, K.DDP_BACKWARD, 1),
            (25, K.DDP_BACKWARD, 2),
            (30, K.BUCKET_LAUNCH, 1),
            (40, K.DDP_WAIT, 1),
            (50, K.BUCKET_DONE, 1),
            (51, K.DDP_STATS, 1),
            (60, K.BUCKET_LAUNCH, 2),
            (70, K.DDP_WAIT, 2),
            (80, K.BUCKET_DONE, 2),
            (81, K.DDP_STATS, 2),
        ):
            if kind in (K.BUCKET_LAUNCH, K.BUCKET_DONE):
                job.mark(at + offset * MS, 100, kind, 77, reducer)
            else:
                job.mark(at + offset * MS, 100, kind, reducer)
    return job


def test_of_models_that_take_turns_the_first_ones_steps_are_the_iterations():
    found = find(two_models(Job()))
    assert begins(found) == steps(0, 1, 2, 3)
    assert set(found.iterations.exposed_phase_ns.tolist()) == {2 * 11 * MS}, "the waits of both"
    assert set(found.iterations.forward_phase_ns.tolist()) == {20 * MS}
    assert found.turns == {100: 2}
    assert found.dropped[100].damaged == 0


def test_a_model_that_was_wrapped_again_is_followed_by_its_successor():
    job = Job(iterations=5, ranks=1).fill()
    cut = START_NS + 3 * ITERATION_NS
    job.marks = [
        (
            *m[:4],
            m[4] if m[3] >= 10 or m[3] in (4, 6) else int(m[0] >= cut),
            int(m[0] >= cut) if m[3] in (4, 6) else m[5],
        )
        for m in job.marks
    ]
    found = find(job)
    assert begins(found) == steps(0, 1, 2, 3, 4)
    assert found.turns == {}


@st.composite
def random_jobs(draw):
    """Steps with random phases, some marks lost, some evaluations."""
    job, at = Job(ranks=1), START_NS
    for _ in range(draw(st.integers(1, 8))):
        gaps = [draw(st.integers(1, 50 * MS)) for _ in range(6)]
        edges = np.cumsum(gaps) + at
        kinds = (K.DDP_FORWARD, K.DDP_BACKWARD, K.BUCKET_LAUNCH, K.DDP_WAIT, K.BUCKET_DONE, K.DDP_STATS)
        for time, kind in zip(edges.tolist(), kinds, strict=True):
            if draw(st.integers(0, 9)):
                job.mark(time, 100, kind)
        at = int(edges[-1]) + 1
        if draw(st.booleans()):
            job.mark(at, 100, K.DDP_FORWARD)
            at += 1
    return job


@pytest.mark.slow
@examples(200)
@given(random_jobs(), st.randoms())
def test_phases_add_up_exactly_whatever_is_lost_and_in_whatever_order_rows_come(job, random):
    found = find(job)
    its = found.iterations
    total = its.forward_phase_ns + its.backward_phase_ns + its.exposed_phase_ns + its.rest_phase_ns
    assert (total == its.duration_ns).all()
    for phase in (its.forward_phase_ns, its.backward_phase_ns, its.exposed_phase_ns, its.rest_phase_ns):
        assert (phase >= 0).all()
    assert (its.begin_ns[1:] >= its.end_ns[:-1]).all()
    random.shuffle(job.marks)
    again = find(job)
    assert again.dropped == found.dropped
    assert again.iterations.frame().equals(its.frame())
