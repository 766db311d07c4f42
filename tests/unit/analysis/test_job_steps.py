"""Steps of jobs that are more than one DDP model with one pass: their phases against what was put there."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples

from netprof.analysis.events.iterations import Dropped, FoundIterations
from netprof.analysis.events.optimizer_steps import find_all_iterations
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.marks import Marks, read_marks
from netprof.schema import MarkKind as K

PID, MAIN, WORKER, OTHER, MS = 7, 7, 8, 9, 1_000_000

Row = tuple[float, int, int, int, int]
"""Time in ms, kind, arg0, arg1, tid."""


def marks(rows: list[Row]) -> Marks:
    names = ("kind", "arg0", "arg1", "tid")
    columns = {name: np.array([row[index + 1] for row in rows], np.int64) for index, name in enumerate(names)}
    times = np.array([round(row[0] * MS) for row in rows], np.int64)
    return read_marks(columns | {"time_ns": times, "pid": times * 0 + PID, "arg2": times * 0})


def find(rows: list[Row]) -> FoundIterations:
    return find_all_iterations(marks(rows))


def phases_ms(found: FoundIterations) -> list[tuple[float, ...]]:
    its = found.iterations
    columns = (its.forward_phase_ns, its.backward_phase_ns, its.exposed_phase_ns, its.rest_phase_ns)
    return sorted({tuple(each) for each in (np.column_stack(columns) / MS).tolist()})


def at(time: float, kind: int, arg0: int = 0, arg1: int = 0, tid: int = MAIN) -> Row:
    return (time, int(kind), arg0, arg1, tid)


def exchanged(
    begin: float, forward: float, backward: float, wait: float, model: int = 1, seen: bool = True
) -> list[Row]:
    """A pass of so many ms each; `seen`: also by the marks that any pass has."""
    middle, waits, done = begin + forward, begin + forward + backward, begin + forward + backward + wait
    ddp = [
        at(begin, K.DDP_FORWARD, model),
        at(middle, K.DDP_BACKWARD, model),
        at(waits - 1, K.BUCKET_LAUNCH, 70 + model, model),
        at(waits, K.DDP_WAIT, model),
        at(done - 0.5, K.BUCKET_DONE, 70 + model, model),
        at(done, K.DDP_STATS, model),
    ]
    return ddp + ([at(begin - 0.01, K.FORWARD), at(middle + 0.1, K.BACKWARD)] if seen else [])


def local(begin: float, forward: float) -> list[Row]:
    return [at(begin, K.FORWARD), at(begin + forward, K.BACKWARD)]


def repeated(step: list[Row], times: int = 6, length: float = 1000.0) -> list[Row]:
    return [(row[0] + number * length, *row[1:]) for number in range(1, times + 1) for row in step]


def one_after_another(models: list[int]) -> list[Row]:
    """A pass a second, of one model after the other."""
    step = {model: exchanged(0, 20, 30, 50, model) for model in models}
    return [(row[0] + 1000.0 * number, *row[1:]) for number, model in enumerate(models, 1) for row in step[model]]


def begins(found: FoundIterations) -> list[float]:
    values: list[float] = (found.iterations.begin_ns / MS).tolist()
    return values


ACCUMULATED = [
    *local(0, 30),  # backward until 100
    *local(100, 30),  # until 200
    *exchanged(200, 40, 60, 50),  # done at 350
    at(360, K.OPTIMIZER_STEP),
]


def test_accumulated_passes_are_forward_and_backward() -> None:
    found = find(repeated(ACCUMULATED))
    assert begins(found) == [2000, 3000, 4000, 5000], "the first may have begun before the recording"
    assert phases_ms(found) == [(100, 200, 50, 650)]
    assert found.accumulates == {PID}
    assert found.forward_unseen == frozenset()
    assert found.dropped == {PID: Dropped(2, 0)}
    assert (found.iterations.backward_ns - found.iterations.begin_ns == 30 * MS).all()
    assert (found.iterations.done_ns - found.iterations.begin_ns == 350 * MS).all()


@pytest.mark.parametrize("from_ms", [0, 39, 40.05, 70, 110])
def test_a_pass_that_a_recording_begins_in_is_no_accumulated_one(from_ms: float) -> None:
    """Its backward pass may be the first thing seen of it, and what is seen next the wait for its buckets."""
    rows = [row for row in repeated(exchanged(0, 40, 60, 50), length=300) if row[0] >= 300 + from_ms]
    found = find(rows)
    assert not found.accumulates
    assert not found.forward_unseen


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("until_ms", [10, 39, 40.05, 70, 99.5, 110])
def test_a_pass_that_a_recording_ends_in_is_no_accumulated_one(until_ms: float, prepared: bool) -> None:
    """What leads to it and what waits for it is not seen any more, or never was: a trace without DDP's preparing."""
    rows = [row for row in repeated(exchanged(0, 40, 60, 50), length=300) if row[0] < 1800 + until_ms]
    if not prepared:
        rows = [row for row in rows if row[1] != K.DDP_BACKWARD or row[0] < 1800]
        if until_ms < 99:
            return  # nothing in it says that its gradients are exchanged
    found = find(rows)
    assert not found.accumulates
    assert not found.forward_unseen


def test_accumulated_passes_are_seen_also_before_the_pass_that_a_recording_ends_in() -> None:
    rows = [row for row in repeated(ACCUMULATED) if row[1] != K.FORWARD and row[0] < 6270]
    assert find(rows).forward_unseen == {PID}
    rows = [row for row in repeated(exchanged(0, 40, 60, 50)) if row[0] <= 6150]
    rows += [at(6400, K.BACKWARD), *exchanged(6500, 40, 60, 50)[:-2]]
    assert find([row for row in rows if row[1] != K.FORWARD]).forward_unseen == {PID}


def test_the_step_before_a_recording_that_begins_with_an_optimizer_step_is_whole() -> None:
    rows = [at(990, K.OPTIMIZER_STEP), *repeated(ACCUMULATED)]
    assert begins(find(rows))[0] == 1000


def test_accumulated_passes_of_a_trace_without_forward_marks() -> None:
    """Where their forward passes begin is unknown: the first is in the rest, the others in the backward phase."""
    rows = [row for row in repeated(ACCUMULATED) if row[1] != K.FORWARD]
    found = find(rows)
    assert begins(found) == [1200, 2200, 3200, 4200, 5200]
    assert phases_ms(found) == [(40, 60 + 170, 50, 680)]
    assert found.forward_unseen == {PID}


def test_an_evaluation_is_rest_also_between_accumulated_passes() -> None:
    evaluation = [at(600 + 10 * number, K.FORWARD) for number in range(5)]
    in_between = [at(80, K.FORWARD)]  # ends the first backward pass
    rows = repeated([*ACCUMULATED, *evaluation]) + [(row[0] + 3000, *row[1:]) for row in in_between]
    assert phases_ms(find(rows)) == [(100, 180, 50, 670), (100, 200, 50, 650)]


def test_evaluations_right_before_an_accumulated_pass_begin_no_step() -> None:
    rows = repeated(ACCUMULATED) + [at(2970 + 10 * number, K.FORWARD) for number in range(3)]
    assert begins(find(rows)) == [2000, 3000, 4000, 5000]


def test_models_that_take_turns_are_one_step_and_all_of_them_wait() -> None:
    step = [
        *exchanged(0, 20, 30, 100, model=1),
        at(155, K.OPTIMIZER_STEP),
        *exchanged(200, 40, 50, 300, model=2),
        at(595, K.OPTIMIZER_STEP),
    ]
    found = find(repeated(step))
    assert begins(found) == [1000, 2000, 3000, 4000, 5000]
    assert phases_ms(found) == [(60, 80, 400, 460)]
    assert found.turns == {PID: 2}
    assert found.dropped[PID] == Dropped(1, 0)
    assert (found.iterations.done_ns - found.iterations.begin_ns == 590 * MS).all(), "of the last wait"


def test_a_gan_whose_generator_runs_through_the_discriminator() -> None:
    """The generator's forward comes first; the discriminator has a pass of its own and one in the generator's."""
    generator = 2
    step = [
        at(0, K.FORWARD),
        at(0.01, K.DDP_FORWARD, generator),
        at(30, K.DDP_BACKWARD, generator),
        *exchanged(40, 20, 40, 100, model=1),  # done at 200
        at(210, K.OPTIMIZER_STEP),
        *exchanged(250, 20, 80, 50, model=1),  # done at 400
        at(349.5, K.BUCKET_LAUNCH, 90, generator),
        at(401, K.DDP_WAIT, generator),
        at(450, K.BUCKET_DONE, 90, generator),
        at(451, K.DDP_STATS, generator),
        at(460, K.OPTIMIZER_STEP),
    ]
    found = find(repeated(step))
    assert begins(found) == [1000.01, 2000.01, 3000.01, 4000.01, 5000.01]
    assert phases_ms(found) == [(29.99 + 20 + 20, 10 + 40 + 10 + 80 + 1, 100 + 50 + 50, 589.01)]


def test_a_model_that_is_wrapped_again_where_an_earlier_one_was_freed_takes_no_turns() -> None:
    """Fits one after the other, as of a cross-validation: the third one's reducer has the address of the first's."""
    found = find(one_after_another([1] * 20 + [2] * 20 + [1] * 20))
    assert begins(found) == [1000.0 * (n + 1) for n in range(59)]
    assert found.turns == {}
    critic = find(one_after_another(([1] * 20 + [2]) * 3))
    assert critic.turns == {PID: 2}, "a critic may run as often for each pass of its generator"


def test_two_models_that_are_used_in_one_step() -> None:
    step = [
        at(0, K.DDP_FORWARD, 1),
        at(20, K.DDP_BACKWARD, 1),
        at(21, K.DDP_FORWARD, 2),
        at(50, K.DDP_BACKWARD, 2),
        at(51, K.BACKWARD),
        at(90, K.BUCKET_LAUNCH, 72, 2),
        at(99, K.BUCKET_LAUNCH, 71, 1),
        at(100, K.DDP_WAIT, 2),
        at(139, K.BUCKET_DONE, 72, 2),
        at(140, K.DDP_STATS, 2),
        at(145, K.DDP_WAIT, 1),
        at(189, K.BUCKET_DONE, 71, 1),
        at(190, K.DDP_STATS, 1),
        at(200, K.OPTIMIZER_STEP),
    ]
    found = find(repeated(step))
    assert begins(found) == [1000, 2000, 3000, 4000, 5000], "where the first of them runs forward"
    assert phases_ms(found) == [(49, 56, 85, 810)]


def test_a_model_that_runs_twice_before_its_backward_pass_begins_with_the_first_time() -> None:
    step = [at(-30.01, K.FORWARD), at(-30, K.DDP_FORWARD, 1), at(-10, K.DDP_BACKWARD, 1), *exchanged(0, 20, 30, 50)]
    found = find(repeated(step))
    assert begins(found)[0] == 970
    assert phases_ms(found) == [(50, 30, 50, 870)]


def test_a_step_that_lost_marks_of_one_model_is_left_out() -> None:
    step = [*exchanged(0, 20, 30, 100, model=1), *exchanged(200, 40, 50, 300, model=2)]
    rows = repeated(step)
    for kind, model in ((K.DDP_WAIT, 2), (K.DDP_STATS, 2), (K.DDP_BACKWARD, 2), (K.DDP_FORWARD, 2), (K.DDP_WAIT, 1)):
        kept = [row for row in rows if not (row[1] == kind and row[2] == model and 3000 <= row[0] < 4000)]
        found = find(kept)
        assert phases_ms(found) == [(60, 80, 400, 460)], (kind, model)
        assert found.dropped[PID].damaged >= 1, (kind, model)
        assert 3000 not in begins(found), (kind, model)


def waited(begin: float, end: float, tid: int = MAIN, work: int = 0xAB00) -> list[Row]:
    """A collective that a thread waits for, performed by another."""
    return [
        at(begin - 1, K.COLLECTIVE_ENQUEUE, work, tid=tid),
        at(begin - 0.5, K.COLLECTIVE_BEGIN, work, tid=WORKER),
        at(begin, K.WORK_WAIT, work, tid=tid),
        at(end, K.COLLECTIVE_END, work, tid=WORKER),
    ]


@pytest.mark.parametrize(
    ("begin", "phases"),
    [
        (5, (10, 30, 60, 900)),  # synchronized batch normalization, forward
        (25, (20, 20, 60, 900)),  # and backward
        (80, (20, 30, 50, 900)),  # while it waits for buckets anyway
        (300, (20, 30, 60, 890)),  # a metric
    ],
)
def test_waiting_for_other_collectives_is_taken_off_the_phase_it_lies_in(
    begin: float, phases: tuple[float, ...]
) -> None:
    step = [*exchanged(0, 20, 30, 50), *waited(begin, begin + 10)]
    assert phases_ms(find(repeated(step))) == [phases]


def test_threads_that_do_not_train_keep_nobody_waiting() -> None:
    step = [*exchanged(0, 20, 30, 50), *waited(300, 400, tid=OTHER)]
    assert phases_ms(find(repeated(step))) == [(20, 30, 50, 900)]


def test_an_optimizer_that_steps_inside_of_the_backward_pass_changes_nothing() -> None:
    step = [*exchanged(0, 20, 30, 50), at(30, K.OPTIMIZER_STEP), at(35, K.BACKWARD), at(40, K.OPTIMIZER_STEP)]
    assert phases_ms(find(repeated(step))) == [(20, 30, 50, 900)]


KINDS = (
    K.DDP_FORWARD,
    K.DDP_BACKWARD,
    K.BUCKET_LAUNCH,
    K.DDP_WAIT,
    K.BUCKET_DONE,
    K.DDP_STATS,
    K.FORWARD,
    K.BACKWARD,
    K.OPTIMIZER_STEP,
    K.WORK_WAIT,
    K.COLLECTIVE_ENQUEUE,
    K.COLLECTIVE_BEGIN,
    K.COLLECTIVE_END,
    K.POSTED_WAIT,
    K.POSTED_WAIT_OVER,
)
some_marks = st.lists(
    st.tuples(
        st.integers(0, 4000),
        st.sampled_from(KINDS),
        st.integers(1, 3),
        st.integers(1, 3),
        st.sampled_from((MAIN, WORKER, OTHER)),
    ),
    max_size=60,
)


CLEAN_MS = 5000
"""How long before all else the clean steps begin."""


@st.composite
def some_steps(draw: st.DrawFn) -> list[Row]:
    """Three clean steps, then passes of up to three models that interleave, waits, and anything in between."""
    rows: list[Row] = [row for step in range(3) for row in exchanged(300 * step - CLEAN_MS, 20, 30, 50)]
    for number in range(draw(st.integers(1, 6))):
        for model in range(1, draw(st.integers(1, 3)) + 1):
            forward, backward, wait = (draw(st.integers(1, 90)) for _ in range(3))
            begin = 300 * number + draw(st.integers(0, 250))
            rows += exchanged(begin, forward, backward, wait, model=model, seen=draw(st.booleans()))
        if draw(st.booleans()):
            begin = 300 * number + draw(st.integers(0, 290))
            rows += waited(begin, begin + draw(st.integers(1, 60)), tid=draw(st.sampled_from((MAIN, OTHER))))
        if draw(st.booleans()):
            rows += local(300 * number + draw(st.integers(0, 290)), draw(st.integers(1, 20)))
    noise = draw(some_marks) if draw(st.booleans()) else []
    return rows + [(float(row[0]), int(row[1]), *row[2:]) for row in noise]


@examples(300)
@given(some_steps())
def test_phases_are_disjoint_and_add_up_whatever_comes_when(rows: list[Row]) -> None:
    found = find(rows)
    its = found.iterations
    assert len(its) > 0, "the clean steps are there"
    parts = (its.forward_phase_ns, its.backward_phase_ns, its.exposed_phase_ns, its.rest_phase_ns)
    assert all((part >= 0).all() for part in parts)
    assert (sum(parts, np.zeros(len(its), np.int64)) == its.duration_ns).all()
    assert (its.begin_ns < its.end_ns).all()
    assert (its.begin_ns[1:] >= its.end_ns[:-1]).all()
    edges = (its.begin_ns, its.backward_ns, its.wait_ns, its.done_ns, its.end_ns)
    if PID not in found.stepped:
        assert all((one <= next_one).all() for one, next_one in pairwise(edges))
    for times in found.phases.values():
        whole: list[Int64] = [each.begin_ns for each in (times.forward, times.backward, times.exposed)]
        assert len(times.forward & times.backward) == len(times.forward & times.exposed) == 0
        assert len(times.backward & times.exposed) == 0
        assert all((begin[1:] > begin[:-1]).all() for begin in whole)
