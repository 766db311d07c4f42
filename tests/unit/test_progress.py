"""Counting iterations while they are recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

from netprof.schema import MarkKind as K
from netprof.session.progress import Progress


def marks(*rows: tuple[int, int, int]) -> dict[str, Any]:
    """Build columns from (time, pid, kind)."""
    table = np.array(rows, np.int64).reshape(-1, 3)
    return {"time_ns": table[:, 0], "pid": table[:, 1], "kind": table[:, 2].astype(np.uint8)}


def test_ddp_counts_its_waits_and_nothing_else() -> None:
    progress = Progress()
    for step in range(4):
        at = 10 * step
        progress.see("marks", marks((at, 1, K.BACKWARD), (at + 1, 1, K.DDP_WAIT), (at + 2, 1, K.OPTIMIZER_STEP)))
    assert progress.iterations == 3


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
