"""Of a long recording, what looks at every event looks at its most typical piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, Job

from netprof.analysis import analyze
from netprof.analysis.events.iterations import IterationTimes
from netprof.analysis.piece import Piece
from netprof.analysis.pieces import PieceSize, typical_piece
from netprof.analysis.whatif.from_trace import from_trace
from netprof.schema import MarkKind
from netprof.trace import TraceReader

LOWEST, HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
PIECES = [Piece(LOWEST, 1000), Piece(1000, 2000), Piece(2000, 3000), Piece(3000, HIGHEST)]


def times(*pieces: list[tuple[int, int]]) -> IterationTimes:
    """Return iterations, as (duration, exposed) for each piece."""
    rows = [(1000 * number + 10 * row, *each) for number, piece in enumerate(pieces) for row, each in enumerate(piece)]
    begin, duration, exposed = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    nothing = np.zeros(len(rows), np.int64)
    return IterationTimes(nothing, begin, duration, nothing, nothing, exposed, nothing, nothing, nothing)


@pytest.mark.parametrize(
    ("pieces", "typical"),
    [
        ([[(9, 2)] * 5, [(5, 2)] * 5, [(5, 2)] * 5, [(2, 2)] * 5], 1),
        ([[(9, 2)] * 20, [(6, 2)] * 20, [(5, 2)] * 20, [(5, 2)] * 2], 1),  # few at the end
        ([[(5, 0)] * 5, [(5, 4)] * 5, [(5, 2)] * 5, [(5, 2)] * 5], 2),  # as long, but it waits otherwise
        ([[(9, 2)] * 5, [], [(5, 2)] * 5, [(5, 2)] * 5], 2),
    ],
)
def test_it_is_as_long_and_waits_as_much_as_all_together(pieces: list[list[tuple[int, int]]], typical: int) -> None:
    assert typical_piece(PIECES, times(*pieces)) == PIECES[typical]


def test_without_iterations_it_is_in_the_middle() -> None:
    nothing = [np.zeros(0, np.int64)] * 9
    assert typical_piece(PIECES, IterationTimes(*nothing)) == PIECES[2]


def is_late(mark: tuple[int, ...], step: int) -> bool:
    """Tell whether a mark is of the end of a step."""
    return START_NS + step * ITERATION_NS + 60 * MS <= mark[0] < START_NS + (step + 1) * ITERATION_NS


@pytest.mark.slow
def test_what_if_replays_it_and_says_so(tmp_path: Path) -> None:
    job = Job(iterations=50).fill()
    for step in range(3):  # as a recorder samples them: at the beginning
        for index, ms in enumerate((20, 30, 35)):
            job.mark(START_NS + step * ITERATION_NS + ms * MS, 100, MarkKind.GRADIENT_READY, index, tid=200)
    for step in range(10):  # which is not typical
        job.marks = [(m[0] + 3 * MS, *m[1:]) if is_late(m, step) else m for m in job.marks]
    path = job.write(tmp_path / "t.netprof")
    whole = from_trace(analyze(TraceReader(path)))
    part = from_trace(analyze(TraceReader(path), size=PieceSize(5000, at_once=5000, shortest_ns=1)))
    assert whole.recorded is not None
    assert part.recorded is not None
    assert whole.observed is not None
    assert part.observed is not None
    assert 3 <= part.recorded.iterations < whole.recorded.iterations
    assert part.observed.iteration_s == pytest.approx(whole.observed.iteration_s)
    assert part.observed.overhead == pytest.approx(whole.observed.overhead)
    assert part.compute_s == pytest.approx(whole.compute_s)
    assert len(part.ready_s) == 3, "gradients are sampled at the beginning"
    assert part.ready_s == pytest.approx(whole.ready_s)
    assert any("its most typical part is replayed, from" in note for note in part.notes)
    assert not any("part is replayed" in note for note in whole.notes)
