"""Columns of a strip: no byte and no peak is lost, causes are those of most of a column."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rhythm import MS, full_bins

from netprof.analysis.account.idle import CauseTimes
from netprof.analysis.live.strip import causes, is_idle, strip
from netprof.analysis.tables.intervals import NOTHING, interval


@pytest.mark.slow
@given(st.lists(st.integers(0, 10**6), max_size=60), st.integers(1, 10), st.integers(1, 20), st.integers(950, 1070))
def test_bytes_and_peaks_are_kept(amounts, each, columns, first):
    seen = strip(full_bins(amounts, 1000), first, each, columns, MS)
    padded = [amounts[i - 1000] if 0 <= i - 1000 < len(amounts) else 0 for i in range(first, first + each * columns)]
    assert np.allclose(seen.mean_bps * each * MS / 8e9, np.array(padded).reshape(columns, each).sum(axis=1))
    assert np.allclose(seen.peak_bps * MS / 8e9, np.array(padded).reshape(columns, each).max(axis=1))


def test_a_column_is_idle_if_every_bin_is_in_every_direction():
    one = strip(full_bins([0, 0, 0, 0, 1200, 0, 0, 125_000], 1000), 1000, 2, 4, MS)
    other = strip(full_bins([0, 0, 2000, 0, 0, 0, 0, 0], 1000), 1000, 2, 4, MS)
    assert is_idle([one, other], 1e9).tolist() == [True, False, True, False]
    assert is_idle([one, other], None).tolist() == [True, False, False, False]
    assert is_idle([strip(None, 0, 2, 3, MS)], 1e9).all()


def test_a_column_has_the_cause_of_most_of_it():
    times = CauseTimes(interval(0, 12), interval(12, 30), NOTHING, interval(30, 44))
    assert causes(times, -20, 10, 7).tolist() == [-1, -1, 0, 1, 1, 3, -1]
    assert causes(None, 0, 10, 2).tolist() == [-1, -1]
