"""Tables as columns, process by process."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from netprof.analysis.tables.columns import by_pid, empty
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind


def marks(*rows: tuple[int, int, int]) -> Marks:
    """Marks of which the time, the process and the kind are given."""
    columns = dict(zip(("time_ns", "pid", "kind"), np.array(rows, np.int64).T, strict=True))
    return Marks(**columns, **{name: np.zeros(len(rows), np.int64) for name in ("tid", "arg0", "arg1", "arg2")})


@pytest.mark.parametrize("pids", [[7], [7, 7, 7], [9, 7, 9, 8, 7, 9]])
def test_rows_by_process_are_those_that_a_mask_selects(pids: list[int]) -> None:
    made = marks(*((time, pid, 1) for time, pid in enumerate(pids)))
    found = dict(by_pid(made))
    assert list(found) == sorted(set(pids))
    for pid, own in found.items():
        assert own.time_ns.tolist() == made.where(made.pid == pid).time_ns.tolist()
    assert list(dict(by_pid(made, only={7, 8}))) == sorted(set(pids) & {7, 8})
    assert dict(by_pid(made, only=())) == {}


def test_of_no_rows_there_is_no_process() -> None:
    assert dict(by_pid(empty(Marks))) == {}


def test_marks_of_some_kinds() -> None:
    made = marks((1, 7, MarkKind.DDP_WAIT), (2, 7, MarkKind.BACKWARD), (3, 7, MarkKind.DDP_WAIT))
    assert made.of(MarkKind.DDP_WAIT).time_ns.tolist() == [1, 3]
    assert made.of(MarkKind.DDP_WAIT, MarkKind.BACKWARD).time_ns.tolist() == [1, 2, 3]
    assert made.of(MarkKind.OPTIMIZER_STEP).time_ns.tolist() == []


@pytest.mark.parametrize("pids", [[], [7], [9, 7, 9, 8, 7, 9, -1]])
def test_the_rows_of_one_process_are_those_that_a_mask_selects(pids: list[int]) -> None:
    made = marks(*((time, pid, 1) for time, pid in enumerate(pids))) if pids else empty(Marks)
    for pid in range(-2, 11):
        assert made.rows_of(pid).tolist() == np.flatnonzero(made.pid == pid).tolist()
        assert made.of_pid(pid).time_ns.tolist() == made.where(made.pid == pid).time_ns.tolist()
    assert "_by_pid" not in vars(pickle.loads(pickle.dumps(made))), "that is not sent to other processes"
