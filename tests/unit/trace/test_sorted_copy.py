"""A table cut by time: every row is in the span that it is of, and none is lost, however many spans there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.synthetic import MS, START_NS, Job

from netprof.errors import TraceError
from netprof.schema import tables
from netprof.trace import TraceReader, TraceWriter, index
from netprof.trace.columns import to_arrow, to_numpy
from netprof.trace.index import SortedCopy, TraceIndex

SCHEMA = tables()["counters"]


def batch(*times: int) -> pa.RecordBatch:
    columns = {"series": np.zeros(len(times)), "time_ns": np.array(times), "value": np.array(times)}
    arrays = [to_arrow(columns[field.name], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def times(batches: Any) -> list[int]:
    found: list[int] = [time for each in batches for time in each.column("time_ns").to_pylist()]
    return sorted(found)


def test_rows_are_found_by_the_spans_that_they_are_in() -> None:
    copy = SortedCopy([batch(5, 25, 10), batch(19, 20, 0, 35)], SCHEMA, "time_ns", [10, 20, 30])
    assert times(copy.between(10, 20)) == [10, 19]
    assert times(copy.between(0, 10)) == [0, 5]
    assert times(copy.between(30, 40)) == [35]
    assert times(copy.between(10, 21)) == [10, 19, 20, 25]
    assert times(copy.between(0, 100)) == [0, 5, 10, 19, 20, 25, 35]


def test_of_rows_of_one_span_the_order_stays() -> None:
    copy = SortedCopy([batch(3, 1, 2), batch(9, 4)], SCHEMA, "time_ns", [5])
    assert [each.column("time_ns").to_pylist() for each in copy.between(0, 5)] == [[3, 1, 2], [4]]


@pytest.mark.parametrize("edges", [63, 64, 65, 128, 1000])
def test_there_are_no_more_files_than_may_be_open(edges: int) -> None:
    copy = SortedCopy([batch(*range(0, 10 * edges, 7))], SCHEMA, "time_ns", list(range(0, 10 * edges, 10)))
    files = list(copy._place.path.iterdir())
    assert min(edges, 32) < len(files) <= 65
    every = range(0, 10 * edges, 7)
    assert times(copy.between(0, 10 * edges)) == list(every)
    some = times(copy.between(50, 60))
    assert set(some) >= {each for each in every if 50 <= each < 60}


def test_large_batches_are_cut() -> None:
    count = (1 << 16) + 5
    copy = SortedCopy([batch(*range(count))], SCHEMA, "time_ns", [10, 1 << 20])
    assert times(copy.between(0, count)) == list(range(count))
    assert max(each.num_rows for each in copy.between(0, count)) <= 1 << 16


def test_the_files_go_with_the_copy() -> None:
    copy = SortedCopy([batch(1)], SCHEMA, "time_ns", [0])
    place = copy._place.path
    assert place.exists()
    del copy
    assert not place.exists()


def test_columns_of_a_slice_are_those_of_the_slice() -> None:
    assert to_numpy(batch(1, 2, 3, 4).slice(1, 2).column("time_ns")).tolist() == [2, 3]
    assert to_numpy(pa.array([], pa.int64())).tolist() == []


def test_a_column_of_no_values_needs_no_memory_to_look_at() -> None:
    assert to_numpy(pa.Array.from_buffers(pa.uint8(), 0, [None, None])).tolist() == []


@pytest.fixture
def shuffled(tmp_path: Path) -> TraceReader:
    """Ten batches of ten rows, each from all over the recording."""
    writer = TraceWriter(tmp_path / "t", Job().meta())
    for first in range(10):
        moments = START_NS + MS * np.arange(first, 100, 10)
        writer.append("counters", {"series": np.ones(10), "time_ns": moments, "value": np.arange(first, 100, 10)})
    writer.close(Job().meta())
    return TraceReader(tmp_path / "t")


@pytest.mark.parametrize("prepared", [False, True])
def test_whatever_the_order_each_span_has_its_own_rows(shuffled: TraceReader, prepared: bool) -> None:
    found = TraceIndex(shuffled)
    edges = [START_NS + MS * each for each in range(0, 100, 10)]
    if prepared:
        found.prepare(edges)
    assert bool(found._copies) is prepared
    for number, begin_ns in enumerate(edges):
        values: list[Any] = found.table("counters", begin_ns, begin_ns + 10 * MS).column("value").to_pylist()
        assert sorted(values) == list(range(10 * number, 10 * number + 10))
    assert found.table("counters", START_NS - 10, START_NS).num_rows == 0
    assert found.table("counters", START_NS, START_NS + 1).num_rows == 1
    assert found.table("wire", START_NS, START_NS + MS).num_rows == 0


def test_what_is_in_order_is_not_copied(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t", Job().meta())
    for first in range(0, 100, 10):
        moments = START_NS + MS * np.arange(first, first + 10)
        writer.append("counters", {"series": np.ones(10), "time_ns": moments, "value": np.ones(10)})
    writer.close(Job().meta())
    found = TraceIndex(TraceReader(tmp_path / "t"))
    found.prepare([START_NS + MS * each for each in range(0, 100, 10)])
    assert found._copies == {}
    assert found.tables["counters"].first_ns.tolist() == [START_NS + MS * each for each in range(0, 100, 10)]
    assert found.tables["counters"].last_ns.tolist() == [START_NS + MS * each for each in range(9, 100, 10)]
    assert found.tables["counters"].rows.tolist() == [10] * 10


def test_of_a_part_only_the_batches_are_read_that_it_touches(tmp_path: Path) -> None:
    """What lies before and after it may be damaged: nobody has looked."""
    writer = TraceWriter(tmp_path / "t", Job().meta())
    for first, value in ((0, -(1 << 63)), (10, 10), (20, -(1 << 63))):
        moments = START_NS + MS * np.arange(first, first + 10)
        writer.append("counters", {"series": np.ones(10), "time_ns": moments, "value": [value] * 10})
    writer.close(Job().meta())
    found = TraceIndex(reader := TraceReader(tmp_path / "t"))
    assert found.table("counters", START_NS + 10 * MS, START_NS + 20 * MS).column("value").to_pylist() == [10] * 10
    assert reader.damage == ()
    assert found.table("counters", START_NS + 10 * MS, START_NS + 21 * MS).num_rows == 10
    assert len(reader.damage) == 1


def test_a_single_edge_is_not_worth_a_copy(shuffled: TraceReader) -> None:
    found = TraceIndex(shuffled)
    found.prepare([START_NS + 50 * MS])
    assert found._copies == {}


@pytest.mark.parametrize(("spans", "copied"), [(4, False), (5, True)])
def test_what_would_be_read_more_than_four_times_is_copied(spans: int, copied: bool, tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t", Job().meta())
    moments = START_NS + MS * np.arange(10 * spans)
    writer.append("counters", {"series": np.ones(len(moments)), "time_ns": moments, "value": moments})
    writer.close(Job().meta())
    found = TraceIndex(TraceReader(tmp_path / "t"))
    found.prepare([START_NS + 10 * MS * each for each in range(1, spans)])
    assert bool(found._copies) is copied


def test_where_there_is_no_room_it_is_said(shuffled: TraceReader, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index, "SortedCopy", full)
    with pytest.raises(TraceError, match=r"counters are in no order of time.*No space left") as caught:
        TraceIndex(shuffled).prepare([START_NS + MS * each for each in range(0, 100, 10)])
    assert "TMPDIR" in caught.value.hint
