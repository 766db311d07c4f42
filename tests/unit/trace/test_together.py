"""Small batches are read as one: the same rows, the same ends, from whichever place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.synthetic import MS, START_NS, Job

from netprof.errors import TraceError
from netprof.trace import TraceReader, TraceWriter

ROWS = 10
IMPOSSIBLE = -(1 << 63)


@pytest.fixture(autouse=True)
def _three_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netprof.trace.reader._ENOUGH_ROWS", 3 * ROWS)


def written(path: Path, values: Sequence[int]) -> TraceReader:
    """Write a batch of ROWS rows for each value."""
    writer = TraceWriter(path, replace(Job().meta(), stopped_ns=None))
    for number, value in enumerate(values):
        moments = START_NS + MS * np.arange(ROWS * number, ROWS * (number + 1))
        writer.append("counters", {"series": np.ones(ROWS), "time_ns": moments, "value": np.full(ROWS, value)})
    writer.close(Job().meta())
    return TraceReader(path)


def values_of(batches: Any) -> list[list[int]]:
    return [batch.column("value").to_pylist()[::ROWS] for batch in batches]


def test_batches_are_put_together_until_there_are_enough_rows(tmp_path: Path) -> None:
    reader = written(tmp_path / "t", range(8))
    assert values_of(reader.batches("counters")) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    places = [place for place, _ in reader.places("counters", ["value"])]
    assert len(places) == 8
    assert values_of(reader.batches_at("counters", places)) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert values_of(reader.batches_at("counters", places[1:7:2])) == [[1, 3, 5]]
    assert values_of(reader.batches_at("counters", places[3:4])) == [[3]]
    assert reader.damage == ()


@pytest.mark.parametrize(("bad", "left"), [(0, []), (1, [[0]]), (3, [[0, 1, 2]]), (4, [[0, 1, 2], [3]])])
def test_what_no_recorder_writes_ends_the_table_in_the_middle_of_a_group(
    bad: int, left: list[list[int]], tmp_path: Path
) -> None:
    values = [IMPOSSIBLE if number == bad else number for number in range(8)]
    reader = written(tmp_path / "t", values)
    assert values_of(reader.batches("counters")) == left
    assert len(reader.damage) == 1
    assert values_of(reader.batches("counters")) == left, "read again"
    again = TraceReader(tmp_path / "t")
    places = [place for place, _ in again.places("counters", ["series"])]
    assert values_of(again.batches_at("counters", places)) == left
    assert len(again.damage) == 1


def test_a_group_that_lost_its_end_meanwhile_was_changed(tmp_path: Path) -> None:
    reader = written(tmp_path / "t", range(4))
    places = [place for place, _ in reader.places("counters", ["value"])]
    os.truncate(tmp_path / "t" / "counters.arrows", places[2])
    with pytest.raises(TraceError, match="changed while it was read"):
        list(reader.batches_at("counters", places))
