"""Sets of time, checked against a set of single nanoseconds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from netprof.analysis.tables.intervals import NOTHING, Intervals, interval, merge, union

pieces = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8)


def of(rows):
    table = np.array(rows, np.int64).reshape(-1, 2)
    return merge(table[:, 0], table[:, 1])


def instants(times: Intervals):
    return {t for begin, end in zip(times.begin_ns, times.end_ns, strict=True) for t in range(begin, end)}


def as_set(rows):
    return {t for begin, end in rows for t in range(begin, end)}


@given(pieces)
def test_merged_intervals_are_sorted_disjoint_and_hold_the_same_instants(rows):
    merged = of(rows)
    assert instants(merged) == as_set(rows)
    assert (merged.begin_ns[1:] > merged.end_ns[:-1]).all()
    assert (merged.end_ns > merged.begin_ns).all()
    assert merged.total_ns == len(as_set(rows))


@given(pieces, pieces)
def test_set_algebra(first, second):
    a, b = of(first), of(second)
    assert instants(a | b) == as_set(first) | as_set(second)
    assert instants(a & b) == as_set(first) & as_set(second)
    assert instants(a - b) == as_set(first) - as_set(second)


def test_the_empty_set():
    assert len(union([])) == len(NOTHING) == len(interval(5, 5)) == len(interval(5, 4)) == 0
    assert NOTHING.total_ns == 0
    assert instants(NOTHING | interval(1, 3)) == {1, 2}
    assert len(NOTHING & interval(1, 3)) == len(NOTHING - interval(1, 3)) == 0
