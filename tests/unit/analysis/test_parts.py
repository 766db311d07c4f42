"""Parts are shared out fairly, and never are there more than there may be."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from netprof.analysis.wire.parts import fair_parts


@given(st.lists(st.integers(-(10**15), 10**15), min_size=1), st.integers(0, 10**6))
def test_nobody_gets_less_than_another_that_wants_less(wanted: list[int], most: int) -> None:
    parts = fair_parts(np.array(wanted, np.int64), most).tolist()
    assert all(1 <= got <= max(1, want) for got, want in zip(parts, wanted, strict=True))
    assert sum(parts) <= max(most, len(wanted))
    cut = [got for got, want in zip(parts, wanted, strict=True) if got < max(1, want)]
    assert len(set(cut)) <= 1, "who wants more than there is gets as much as the others"
    assert not cut or (max(parts) == cut[0] and sum(parts) + len(cut) > most)


def test_nothing_wants_nothing() -> None:
    assert fair_parts(np.zeros(0, np.int64), 5).tolist() == []
