"""Rows of table `profiled`: what a profile's events come to on the clock of its host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from netprof.errors import TraceError
from netprof.model import Clock
from netprof.schema import Profiled
from netprof.trace.kineto import EventKind, Kineto, profiled_rows

CLOCK = Clock(1_000, 5_000)


def kineto(*events: tuple[int, int, EventKind]) -> Kineto:
    """A profile of events: begin and end on the realtime clock, and what each is."""
    begin, end, doing = np.array(events, np.int64).T
    return Kineto(Path("p"), 4_000, begin - 4_000, end - 4_000, doing.astype(np.uint8), frozenset({7}), 0)


def rows(*events: tuple[int, int, EventKind]) -> list[tuple[int, int, int]]:
    found = profiled_rows(kineto(*events), 7, CLOCK)
    assert set(found["pid"].tolist()) == {7}
    return list(zip(found["kind"].tolist(), found["first_ns"].tolist(), found["last_ns"].tolist(), strict=True))


def test_what_follows_or_overlaps_is_one_row_and_what_takes_no_time_none() -> None:
    computes = EventKind.GPU_COMPUTES
    found = rows(
        (5_300, 5_400, computes),
        (5_000, 5_100, computes),
        (5_100, 5_200, computes),
        (5_250, 5_250, computes),
        (5_350, 5_450, computes),
    )
    assert found == [
        (Profiled.SEEN, 1_000, 1_450),
        (Profiled.COMPUTES, 1_000, 1_200),
        (Profiled.COMPUTES, 1_300, 1_450),
    ]


def test_what_the_clock_had_no_time_for_is_left_out() -> None:
    communicates = EventKind.GPU_COMMUNICATES
    found = rows((3_999, 4_010, communicates), (4_000, 4_020, communicates), (4_100, 4_000 + (1 << 62), communicates))
    assert found == [(Profiled.SEEN, 0, 20), (Profiled.COMMUNICATES, 0, 20)]
    with pytest.raises(TraceError, match="holds no event at a time of its host's clock"):
        rows((3_999, 4_010, communicates))


@pytest.mark.parametrize("ahead_ns", [-1_000_000, 1_000_000])
def test_the_latest_time_is_one_of_the_host_s_clock(ahead_ns: int) -> None:
    clock = Clock(2_000_000 + ahead_ns, 2_000_000)
    last_ns = (1 << 62) - 1 - ahead_ns
    computes = (last_ns - 9, last_ns, EventKind.GPU_COMPUTES), (last_ns - 9, last_ns + 1, EventKind.GPU_COMPUTES)
    found = profiled_rows(kineto(*computes), 7, clock)
    assert set(found["last_ns"].tolist()) == {(1 << 62) - 1}
    with pytest.raises(TraceError, match="holds no event at a time of its host's clock"):
        profiled_rows(kineto(computes[1]), 7, clock)


def test_what_ran_on_the_host_counts_only_where_nothing_ran_on_a_gpu() -> None:
    host, gpu = (5_000, 5_100, EventKind.HOST_COMPUTES), (5_050, 5_070, EventKind.GPU_COMMUNICATES)
    assert [kind for kind, _, _ in rows(host)] == [Profiled.SEEN, Profiled.COMPUTES]
    assert [kind for kind, _, _ in rows(host, gpu)] == [Profiled.SEEN, Profiled.COMMUNICATES]


def test_a_profile_of_neither_is_refused() -> None:
    with pytest.raises(TraceError, match="holds neither kernels nor operators") as caught:
        rows((5_000, 5_100, EventKind.OTHER), (5_000, 5_100, EventKind.AROUND))
    assert "CPU or CUDA" in caught.value.hint
