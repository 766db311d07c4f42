"""A coarser look at a link loses no byte and no peak."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rhythm import MS, full_bins

from netprof.analysis.tables.flow_table import LaneKey, LinkKey
from netprof.analysis.wire.cells import aggregate, bins_per_cell, link_cells
from netprof.analysis.wire.lanes import Lanes


@given(
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=300), st.integers(0, 1000), st.sampled_from([1, 2, 8, 64])
)
def test_every_cell_holds_the_sum_and_the_peak_of_its_bins(amounts: list[int], first: int, factor: int) -> None:
    assume(any(amounts))
    cells = aggregate(full_bins(amounts, first), factor)
    assert cells.cell_ns == factor * MS
    assert cells.first_ns % cells.cell_ns == 0
    for index in range(len(cells)):
        low = cells.first_ns // MS + index * factor - first
        held = amounts[max(low, 0) : max(low + factor, 0)]
        assert cells.total_bytes[index] == sum(held)
        assert cells.peak_bytes[index] == max(held, default=0)
    assert cells.total_bytes.sum() == sum(amounts)


@given(st.integers(1, 10**9), st.integers(2, 10**6))
def test_cells_are_as_fine_as_their_number_allows(count: int, most: int) -> None:
    factor = bins_per_cell(count, most)
    assert -(-count // factor) + 1 <= most or factor == 1
    assert factor == 1 or count > (factor // 2) * (most - 1)


def test_the_lanes_of_a_link_are_added_and_others_left_out() -> None:
    here, there = LinkKey(1, "eth0"), LinkKey(2, "eth0")
    lanes = {
        (LaneKey(here, 10), 0): full_bins([1, 2], 5),
        (LaneKey(here, 11), 0): full_bins([10], 6),
        (LaneKey(here, 10), 1): full_bins([99], 0),
        (LaneKey(there, 12), 0): full_bins([99], 0),
    }
    cells = link_cells(Lanes(lanes), here, 0, 100)
    assert cells is not None
    assert cells.total_bytes.tolist() == [1, 12]
    assert cells.first_ns == 5 * MS
    assert link_cells(Lanes(lanes), there, 1, 100) is None


@pytest.mark.parametrize("most", [1, 2, 3])
def test_an_absurd_budget_still_gives_cells(most: int) -> None:
    cells = link_cells(Lanes({(LaneKey(LinkKey(1, "a"), 1), 0): full_bins([1] * 10, 0)}), LinkKey(1, "a"), 0, most)
    assert cells is not None
    assert cells.total_bytes.sum() == 10
