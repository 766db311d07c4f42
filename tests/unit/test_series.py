"""Rows of counters: what changed, the first and the last value, and nothing else."""

from __future__ import annotations

from itertools import count, pairwise

from hypothesis import given
from hypothesis import strategies as st

from netprof.model import Series
from netprof.probes.series import Measure, SeriesRows
from netprof.schema import COUNT, LEVEL, tables

DROPS = Measure("drops", "packets", COUNT, "no room")
HEAT = Measure("heat", "K", LEVEL, "how hot it is")


def rows_of(rows: SeriesRows, *, final: bool = False) -> list[tuple[int, int, int]]:
    columns = rows.drain(final=final)
    assert list(columns) == tables()["counters"].names
    return list(zip(columns["series"], columns["time_ns"], columns["value"], strict=True))


def test_what_stands_still_is_two_rows_however_long_it_is_watched() -> None:
    rows = SeriesRows("oven", count(7))
    for time_ns in range(1000):
        rows.see(time_ns, "left", DROPS, 3)
    assert rows_of(rows) == [(7, 0, 3)]
    assert rows_of(rows) == []
    rows.see(1000, "left", DROPS, 3)
    assert rows_of(rows, final=True) == [(7, 1000, 3)]
    assert rows_of(rows, final=True) == [], "the end comes once"


def test_each_subject_and_quantity_is_a_series_with_a_number_of_its_own() -> None:
    ids = count()
    first, second = SeriesRows("oven", ids), SeriesRows("stove", ids)
    first.see(1, "left", DROPS, 1)
    second.see(1, "left", DROPS, 1)
    first.see(2, "right", DROPS, 5)
    first.see(2, "left", HEAT, -4)
    assert first.series == (
        Series(0, "oven", "left", "drops", "packets", "count", "no room"),
        Series(2, "oven", "right", "drops", "packets", "count", "no room"),
        Series(3, "oven", "left", "heat", "K", "level", "how hot it is"),
    )
    assert [series.id for series in second.series] == [1]
    assert rows_of(first) == [(0, 1, 1), (2, 2, 5), (3, 2, -4)]


def test_a_series_that_ends_early_keeps_the_time_of_its_last_sample() -> None:
    rows = SeriesRows("oven", count())
    rows.see(1, "left", DROPS, 1)
    rows.see(2, "left", DROPS, 1)  # then it is unplugged
    rows.see(1, "right", DROPS, 1)
    rows.see(9, "right", DROPS, 2)
    assert rows_of(rows, final=True) == [(0, 1, 1), (1, 1, 1), (1, 9, 2), (0, 2, 1)]


@given(values=st.lists(st.integers(0, 3), min_size=1), drained_at=st.sets(st.integers(0, 30)))
def test_the_value_at_any_sample_can_be_told_from_the_rows(values: list[int], drained_at: set[int]) -> None:
    rows = SeriesRows("oven", count())
    kept = []
    for time_ns, value in enumerate(values):
        rows.see(time_ns, "left", DROPS, value)
        if time_ns in drained_at:
            kept += rows_of(rows)
    kept += rows_of(rows, final=True)
    assert [time_ns for _, time_ns, _ in kept] == sorted({time_ns for _, time_ns, _ in kept})
    for time_ns, value in enumerate(values):
        assert [was for _, then, was in kept if then <= time_ns][-1] == value
    assert kept[-1][1] == len(values) - 1
    changes = sum(a != b for a, b in pairwise(values))
    assert len(kept) <= changes + 2
