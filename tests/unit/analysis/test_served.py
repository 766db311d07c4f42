"""Bytes served over time: at any line rate and bin width, what is served and what is idle are the time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.line_rates import steady

from netprof.analysis.account.bottlenecks import others_served
from netprof.analysis.account.idle import idle_time
from netprof.analysis.definitions import IDLE_THRESHOLD
from netprof.analysis.tables.intervals import interval, merge
from netprof.analysis.wire.bins import Bins
from netprof.analysis.wire.served import FULL, NEVER, Served, full_time, served, window_ns
from netprof.schema import RECEIVE, TRANSMIT

MS, S = 10**6, 10**9
WIDTHS = (100_000, MS, 10 * MS, S)
RATES = (1e7, 1e8, 1e9, 2.5e10, 1e11)


def bins(rows: list[tuple[int, int, int, int]], width: int) -> Bins:
    """Bins of (number, bytes, first and last packet after the bin's begin)."""
    number, amount, first, last = np.array(sorted(rows), np.int64).T
    amounts, lead, last_ns = (column.astype(np.uint32) for column in (amount, width - first, last))
    return Bins(width, number, amounts, amounts, amounts * 0, lead, last_ns)


def one(amount: int, at: int = 0, width: int = MS) -> Bins:
    return bins([(5, amount, at, at)], width)


def test_a_packet_occupies_the_link_for_its_size_over_the_line_rate():
    sent = served(one(12_500), TRANSMIT, steady(1e8))  # 1 ms at 100 Mbit/s
    assert (sent.begin_ns.tolist(), sent.end_ns.tolist(), sent.busy_ns.tolist()) == ([5 * MS], [6 * MS], [MS])
    received = served(one(12_500, MS // 2), RECEIVE, steady(1e8))
    assert (received.begin_ns.tolist(), received.end_ns.tolist()) == ([9 * MS // 2], [11 * MS // 2])


def test_one_large_packet_outlasts_many_bins_and_is_no_idle_time():
    """64 kB at 10 Mbit/s take 52 ms: the bins after the one that it was booked in are empty, the link is not."""
    lane = bins([(0, 65_000, 0, 0), (52, 65_000, 0, 0), (104, 65_000, 0, 0)], MS)
    sent = served(lane, TRANSMIT, steady(1e7))
    window = interval(0, 156 * MS)
    assert sent.busy_in(window) == 156 * MS
    assert idle_time(sent.busy, window, None).total_ns == 0


def test_what_comes_faster_than_the_line_rate_is_served_one_after_the_other():
    sent = served(bins([(0, 250_000, 0, MS // 2), (1, 125_000, 0, MS)], MS), TRANSMIT, steady(1e9))
    assert sent.end_ns.tolist() == [2 * MS, 3 * MS]
    assert sent.busy_in(interval(0, 3 * MS)) == 3 * MS


def test_a_few_packets_far_apart_leave_the_link_idle():
    sent = served(bins([(0, 125, 0, MS)], MS), TRANSMIT, steady(1e9))  # 0.1 % of the line rate
    assert sent.busy.total_ns == 1000


@pytest.mark.parametrize("direction", [TRANSMIT, RECEIVE])
@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 1 << 22), st.integers(0, 99), st.integers(0, 99)),
        min_size=1,
        max_size=40,
        unique_by=lambda row: row[0],
    ),
    st.sampled_from(WIDTHS),
    st.sampled_from(RATES),
)
def test_served_and_idle_are_never_more_than_the_time(direction, rows, width, rate):
    rows = [(n, amount, min(a, b) * width // 100, max(a, b) * width // 100) for n, amount, a, b in sorted(rows)]
    lane = bins(rows, width)
    found = served(lane, direction, steady(rate))
    assert (found.busy_ns <= found.end_ns - found.begin_ns).all()
    assert (found.busy_ns >= IDLE_THRESHOLD * (found.end_ns - found.begin_ns)).all()
    assert (found.begin_ns[1:] >= found.end_ns[:-1]).all(), "disjoint and ascending"
    assert abs(found.busy_ns.sum() - lane.wire_bytes.sum() * 8e9 / rate) <= 1, "every byte is served, once"
    for low, high in ((0, 60 * width), (7 * width, 9 * width), (-S, 200 * S)):
        window = interval(low, high)
        busy, idle = found.busy_in(window), idle_time(found.busy, window, None).total_ns
        assert busy + idle <= window.total_ns * (1 + 1e-12)
    first = min(row[0] * width + row[2] for row in rows)
    last = max(row[0] * width + row[3] for row in rows)
    if direction == TRANSMIT:
        assert found.begin_ns[0] == first, "not before it is sent"
    else:
        assert found.end_ns[-1] == last, "not after it is received"


def stretches(*rows: tuple[int, int, int]) -> Served:
    table = np.array(rows, np.int64)
    return Served(table[:, 0], table[:, 1], table[:, 2])


@pytest.mark.parametrize("share", [0.5, 0.85, 0.95, 1.0])
def test_a_link_is_full_where_a_window_is(share):
    """Bursts of 1 ms, each followed by silence: `share` of the time is served."""
    period = round(MS / share)
    found = full_time([stretches(*((n * period, n * period + MS, MS) for n in range(100)))], window_ns(1e9))
    total = 100 * period
    assert found.total_ns / total == (pytest.approx(1.0, abs=0.05) if share >= FULL else pytest.approx(0.0, abs=0.05))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 150), st.floats(0, 1)), min_size=1, max_size=12))
def test_no_full_window_is_passed_over(rows):
    """Beside another stretch, far away, every window is looked at."""
    ends = np.cumsum([gap + length for gap, length, _ in rows])
    lengths = np.array([length for _, length, _ in rows])
    alone = stretches(*zip(ends - lengths, ends, np.rint(lengths * [share for *_, share in rows]), strict=True))
    found, every = full_time([alone], 100), full_time([alone, stretches((S, S + 1, 1))], 100)
    assert (found.begin_ns.tolist(), found.end_ns.tolist()) == (every.begin_ns.tolist(), every.end_ns.tolist())


def test_a_short_wait_is_full_by_itself():
    burst = stretches((10 * MS, 12 * MS, 2 * MS))
    assert full_time([burst], 5 * MS).total_ns == 0
    wait = merge(np.array([10 * MS]), np.array([12 * MS]))
    assert full_time([burst], 5 * MS, wait).total_ns == 2 * MS


def test_others_are_what_the_device_counted_beyond_the_jobs_bytes():
    own = stretches((0, 50 * MS, 40 * MS))
    times = np.array([0, 50 * MS, 100 * MS])
    counted = np.array([7, 7 + 6_250_000 * 92 // 100, 7 + 6_250_000 * 92 // 100])  # 92 % of 1 Gbit/s for 50 ms
    found = others_served(times, counted, own, steady(1e9))
    assert (found.begin_ns.tolist(), found.end_ns.tolist(), found.busy_ns.tolist()) == ([0], [50 * MS], [6 * MS])
    full = full_time([own, found], 5 * MS)
    assert full.total_ns == 50 * MS, "together they fill the link"
    assert len(full_time([own], 5 * MS)) == 0


def test_what_the_samples_around_lack_is_nobodys_traffic():
    """A shaper lets some bytes through at once, and the device has counted them before they are served."""
    own = stretches((0, 200 * MS, 200 * MS))
    times = np.arange(5) * 50 * MS
    counted = np.array([0, 45, 105, 145, 200]) * MS // 8  # at 1 Gbit/s
    assert len(others_served(times, counted, own, steady(1e9)).begin_ns) == 0
    own = stretches((0, 200 * MS, 100 * MS))
    counted = np.array([0, 25, 75, 100, 125]) * MS // 8
    assert others_served(times, counted, own, steady(1e9)).busy_ns.tolist() == [25 * MS]


def test_a_counter_that_went_back_or_counts_headers_is_nobodys_traffic():
    own = stretches((0, 50 * MS, 40 * MS))
    for counted in ([9_000_000, 10], [0, 5_100_000]):
        found = others_served(np.array([0, 50 * MS]), np.array(counted), own, steady(1e9))
        assert len(found.begin_ns) == 0


def others(counted: int, length_ns: int, own: Served = NEVER) -> list[int]:
    """Return for how long others kept 1 Gbit/s busy between two readings of the counter."""
    return list(others_served(np.array([0, length_ns]), np.array([0, counted]), own, steady(1e9)).busy_ns.tolist())


def test_others_are_believed_from_beyond_a_twentieth_of_what_the_device_moved_on():
    moved = 20 * MS // 8  # 20 ms at 1 Gbit/s
    assert others(moved, 50 * MS, stretches((0, 50 * MS, 19 * MS))) == []
    assert others(moved, 50 * MS, stretches((0, 50 * MS, 19 * MS - 1))) == [MS + 1]


def test_what_the_device_moved_in_an_hour_is_others_to_the_nanosecond():
    assert others(400 * 10**9, 3600 * S) == [3200 * S]


def test_a_counter_that_leaps_beyond_all_reason_either_way_is_not_believed():
    own = stretches((0, 50 * MS, 40 * MS))
    assert others(1 << 62, 50 * MS, own) == others(-(1 << 62), 50 * MS, own) == []


def test_nothing_is_served_where_nothing_moved():
    assert served(None, TRANSMIT, steady(1e9)) is NEVER
    assert NEVER.busy_in(interval(0, S)) == 0
    assert full_time([NEVER], MS).total_ns == 0
