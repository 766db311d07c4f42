"""Iterations of processes without DDP, from marks whose answer is known."""

from __future__ import annotations

import numpy as np

from netprof.analysis.events.optimizer_steps import find_all_iterations, find_steps
from netprof.analysis.events.waits import waits
from netprof.analysis.tables.intervals import merge, overlap
from netprof.analysis.tables.marks import Marks, read_marks
from netprof.schema import MarkKind as K

PID, MAIN, WORKER, MS = 7, 7, 8, 1_000_000
WORK = 0xFFFF_0000


Row = tuple[float, int] | tuple[float, int, int] | tuple[float, int, int, int]


def marks(*rows: Row) -> Marks:
    """Build marks from (time in ms, kind, arg0, tid)."""
    full = [(round(row[0] * MS), *row[1:], *(0, MAIN)[len(row) - 2 :]) for row in rows]
    columns = {
        "time_ns": [row[0] for row in full],
        "pid": [PID] * len(full),
        "tid": [row[3] for row in full],
        "kind": [int(row[1]) for row in full],
        "arg0": [row[2] for row in full],
    }
    zeros = [0] * len(full)
    return read_marks({name: np.array(v) for name, v in (columns | {"arg1": zeros, "arg2": zeros}).items()})


def step(at: float, work: int = WORK) -> list[tuple[float, int, int, int]]:
    """One iteration of 100 ms: backward at 0, waiting 30 to 50, step at 60, a collective of the next forward 80-90."""
    return [
        (at, K.BACKWARD, 0, MAIN),
        (at + 29, K.COLLECTIVE_ENQUEUE, work, MAIN),
        (at + 30, K.WORK_WAIT, work, MAIN),
        (at + 31, K.COLLECTIVE_BEGIN, work, WORKER),
        (at + 50, K.COLLECTIVE_END, work, WORKER),
        (at + 60, K.OPTIMIZER_STEP, 0, MAIN),
        (at + 79, K.COLLECTIVE_ENQUEUE, work, MAIN),  # the same address again
        (at + 79.5, K.COLLECTIVE_BEGIN, work, WORKER),
        (at + 80, K.WORK_WAIT, work, MAIN),
        (at + 90, K.COLLECTIVE_END, work, WORKER),
        (at + 91, K.WORK_WAIT, work, MAIN),  # done already: no waiting
    ]


def test_phases_with_waiting_on_both_sides_of_the_step() -> None:
    found = find_steps(marks(*[row for number in range(1, 7) for row in step(100.0 * number)]), frozenset())
    assert found.stepped == (PID,)
    steps = found.iterations
    assert steps.begin_ns.tolist() == [100 * MS * n for n in range(2, 6)], "cut at both edges"
    assert (steps.duration_ns == 100 * MS).all()
    assert (steps.forward_phase_ns == 0).all()
    assert (steps.exposed_phase_ns == 30 * MS).all()
    assert (steps.backward_phase_ns == 40 * MS).all()
    assert (steps.rest_phase_ns == 30 * MS).all()


def test_several_backward_passes_and_nested_steps_are_one_iteration() -> None:
    rows = []
    for number in range(4):
        at = 100.0 * number
        rows += [(at, K.BACKWARD), (at + 10, K.BACKWARD), (at + 20, K.BACKWARD)]
        rows += [(at + 60, K.OPTIMIZER_STEP), (at + 70, K.OPTIMIZER_STEP)]
    found = find_steps(marks(*rows), frozenset()).iterations
    assert found.begin_ns.tolist() == [100 * MS, 200 * MS]
    assert (found.backward_phase_ns == 60 * MS).all()


def test_a_process_with_ddp_iterations_keeps_them_and_one_that_only_enqueues_has_none() -> None:
    rows = [(10.0 * n, (K.BACKWARD, K.OPTIMIZER_STEP)[n % 2]) for n in range(12)]
    assert len(find_steps(marks(*rows), frozenset()).iterations) > 0
    assert find_steps(marks(*rows), frozenset({PID})).stepped == ()
    enqueued = find_steps(marks(*rows, (5.0, K.NCCL_ALL_REDUCE)), frozenset())
    assert enqueued.stepped == ()
    assert enqueued.dropped == {}
    gloo = [(20.0, K.COLLECTIVE_BEGIN, WORK, WORKER), (21.0, K.COLLECTIVE_END, WORK, WORKER)]
    beside = [(10.0 * n + 5, K.NCCL_ALL_GATHER) for n in range(12)]
    assert find_steps(marks(*rows, *beside, *gloo), frozenset()).stepped == (), "a checkpoint over gloo changes nothing"
    assert find_steps(marks(*rows, *gloo), frozenset()).stepped == (PID,)


def test_steps_without_a_backward_pass_are_no_iterations_and_left_to_inference() -> None:
    found = find_all_iterations(marks(*[(10.0 * n, K.OPTIMIZER_STEP) for n in range(9)]))
    assert len(found.iterations) == 0
    assert found.dropped == {}


def test_horovod_waits_end_with_their_handles() -> None:
    rows: list[Row] = [
        (1, K.HOROVOD_WAIT, 5),
        (3, K.HOROVOD_DONE, 5, WORKER),
        (4, K.HOROVOD_DONE, 6, WORKER),
        (6, K.HOROVOD_WAIT, 6),  # done before
        (8, K.HOROVOD_WAIT, 7),  # never done
    ]
    found = waits(marks(*rows))
    assert (found.begin_ns.tolist(), found.end_ns.tolist()) == ([1 * MS], [3 * MS])


def test_a_wait_for_a_work_that_nothing_is_known_of_is_left_out() -> None:
    assert waits(marks((1, K.WORK_WAIT, WORK), (3, K.COLLECTIVE_END, WORK, WORKER))).total_ns == 0
    assert waits(marks((0, K.COLLECTIVE_ENQUEUE, WORK), (1, K.WORK_WAIT, WORK))).total_ns == 0
    other = marks((0, K.COLLECTIVE_ENQUEUE, WORK), (1, K.WORK_WAIT, WORK), (3, K.COLLECTIVE_END, WORK + 8, WORKER))
    assert waits(other).total_ns == 0


def test_overlap_of_windows_with_a_set_of_times() -> None:
    times = merge(np.array([10, 30]), np.array([20, 50]))
    begin, end = np.array([0, 15, 12, 20, 60, 25]), np.array([100, 40, 14, 30, 70, 31])
    assert overlap(times, begin, end).tolist() == [30, 15, 2, 0, 0, 1]
    assert overlap(merge(np.zeros(0, int), np.zeros(0, int)), begin, end).tolist() == [0] * 6
