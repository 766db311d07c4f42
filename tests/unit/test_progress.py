"""Counting iterations while they are recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netprof.schema import MarkKind as K
from netprof.session.progress import Progress


def marks(*rows: tuple[int, int, int]) -> dict[str, Any]:
    """Build columns from (time, pid, kind), all of one model."""
    return of_models(*[(*row, 7) for row in rows])


def of_models(*rows: tuple[int, int, int, int]) -> dict[str, Any]:
    """Build columns from (time, pid, kind, arg0)."""
    table = np.array(rows, np.int64).reshape(-1, 4)
    return {"time_ns": table[:, 0], "pid": table[:, 1], "kind": table[:, 2].astype(np.uint8), "arg0": table[:, 3]}


def test_ddp_counts_its_waits_and_nothing_else() -> None:
    progress = Progress()
    for step in range(4):
        at = 10 * step
        progress.see("marks", marks((at, 1, K.BACKWARD), (at + 1, 1, K.DDP_WAIT), (at + 2, 1, K.OPTIMIZER_STEP)))
    assert progress.iterations == 3


@pytest.mark.parametrize(("order", "steps"), [("ABABAB", 2), ("ABBABBABB", 5), ("AAABBB", 4), ("ABCABC", 1), ("A", 0)])
def test_models_of_one_step_count_once(order: str, steps: int) -> None:
    """In turn, one more often than the other (the most frequent one counts), and one after the other (one is lost)."""
    progress = Progress()
    for at, model in enumerate(order):
        progress.see("marks", of_models((at, 1, K.DDP_WAIT, ord(model))))
    assert progress.iterations == steps


def test_without_ddp_a_backward_pass_after_a_step_begins_an_iteration() -> None:
    progress = Progress()
    rows = []
    for step in range(5):
        at = 10 * step
        rows += [
            (at, 1, K.BACKWARD),
            (at + 1, 1, K.BACKWARD),
            (at + 2, 1, K.OPTIMIZER_STEP),
            (at + 3, 1, K.OPTIMIZER_STEP),
        ]
    progress.see("marks", marks(*rows[:7][::-1]))  # two CPUs may be out of order, and a batch may end anywhere
    progress.see("marks", marks(*rows[7:]))
    assert progress.iterations == 3, "the first pass may have begun before the recording"


def test_the_slowest_rank_counts() -> None:
    progress = Progress()
    assert progress.iterations == 0
    progress.see("marks", marks(*[(t, 1, K.DDP_WAIT) for t in range(9)], *[(t, 2, K.DDP_WAIT) for t in range(4)]))
    assert progress.iterations == 3


@pytest.mark.parametrize("kinds", [(K.DDP_WAIT,), (K.BACKWARD, K.OPTIMIZER_STEP)])
def test_after_a_restart_those_count_that_were_started_again(kinds: tuple[K, ...]) -> None:
    """A rank that ended at its fourth step would keep --iterations from ever being reached."""
    progress = Progress()
    steps = [(at, kind) for at, kind in enumerate(kinds * 8)]
    progress.see("marks", marks(*[(at, 1, kind) for at, kind in steps[: 4 * len(kinds)]], (90, 1, K.PROCESS_EXIT)))
    assert progress.iterations == 0
    progress.see("marks", marks(*[(100 + at, 2, kind) for at, kind in steps]))
    assert progress.iterations >= 6
    assert list(progress._counter.steps) == [2]
