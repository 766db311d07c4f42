"""Clocks are found from the streams between hosts, and the truth is inside the bound."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.streaming_hosts import MS, WRAP, S, Wire, assert_true, bursts
from support.synthetic import Job, collectives, mark_columns

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.hosts.by_collectives import _same, of_whole_job
from netprof.analysis.hosts.clocks import at, backwards, by_collectives, by_delays, by_realtime, one_after_other
from netprof.analysis.hosts.corridor import corridor
from netprof.analysis.hosts.host_streams import Passages, delays, read_streams
from netprof.analysis.hosts.moved import to_reference
from netprof.analysis.live.host_clocks import LiveClocks
from netprof.analysis.tables.columns import concatenate
from netprof.model import Clock, HostClock
from netprof.schema import Backend, CollectiveKind, MarkKind, tables
from netprof.trace.recent_rows import RecentRows


def talk(
    one: Wire,
    other: Wire,
    random: np.random.Generator,
    flow: int = 1,
    ports: tuple[int, int] = (1000, 2000),
    start: int | None = None,
    least_ns: int = 20_000,
    packet: int = 1448,
    seconds: float = 20,
) -> None:
    """Let a connection carry bytes both ways, each packet taking `least_ns` and something more."""
    one.flows.append((flow, "10.0.0.1", ports[0], "10.0.0.2", ports[1]))
    other.flows.append((flow, "10.0.0.2", ports[1], "10.0.0.1", ports[0]))
    for sender, receiver in ((one, other), (other, one)):
        sent = bursts(random, seconds)
        arrived = np.maximum.accumulate(sent + least_ns + random.exponential(30_000, len(sent)).astype(np.int64))
        first = int(random.integers(0, WRAP)) if start is None else start
        position = first + packet * np.arange(1, len(sent) + 1)
        sender.moved(flow, 0, sent, position, first)
        receiver.moved(flow, 1, arrived, position, first)


def found(one: Wire, other: Wire, windows: Sequence[tuple[int, int]] = ((1, 1 << 62),)) -> HostClock | None:
    span, there = (int(one.clock(0)), int(one.clock(20 * S))), other.offset_ns - one.offset_ns
    its = [(begin + there, end + there) for begin, end in windows]
    streams = read_streams(one, windows), read_streams(other, its)  # type: ignore[arg-type]
    return by_delays(*delays(*streams), span)


def test_a_long_recording_is_looked_at_in_windows():
    random = np.random.default_rng(10)
    one, other = Wire(), Wire(offset_ns=2 * S)
    talk(one, other, random, packet=640_000)  # sequence numbers begin again between the windows
    clock = found(one, other, [(0, 2 * S), (9 * S, 11 * S), (18 * S, 20 * S)])
    assert_true(clock, one, other, within_ns=60_000)
    assert clock is not None
    assert clock.pairs < 2000


@pytest.mark.parametrize("seed", range(20))
def test_the_truth_is_inside_the_bound(seed):
    random = np.random.default_rng(seed)
    one = Wire(int(random.integers(0, S)), float(random.uniform(-5e-5, 5e-5)))
    other = Wire(int(random.integers(0, S)), float(random.uniform(-5e-5, 5e-5)), bin_ns=int(random.integers(1, 3)) * MS)
    talk(one, other, random)
    assert_true(found(one, other), one, other)


def test_sequence_numbers_begin_again():
    random = np.random.default_rng(1)
    one, other = Wire(), Wire(offset_ns=123_456_789)
    talk(one, other, random, packet=640_000)  # 25 GB each way
    assert_true(found(one, other), one, other)


def test_sequence_numbers_begin_again_where_no_position_is_known():
    random = np.random.default_rng(11)
    one, other = Wire(), Wire(offset_ns=123_456_789)
    talk(one, other, random, packet=640_000)
    one.rows = [(*row[:3], 0, 0) if 3 * S < row[4] < 17 * S else row for row in one.rows]
    streams = [read_streams(wire, [(0, 1 << 62)]) for wire in (one, other)]  # type: ignore[arg-type]
    there, back = delays(*streams)
    for each, ahead_ns in ((there, other.offset_ns), (back, -other.offset_ns)):
        took_ns = each.arrived_ns - each.sent_ns - ahead_ns
        for near in (each.arrived_ns < 3 * S, (each.arrived_ns > 18 * S) & (each.sent_ns > 17 * S)):
            assert near.sum() > 80
            assert np.median(took_ns[near]) < 20 * MS
    assert_true(found(one, other, [(0, 1 << 62)]), one, other)


def test_one_host_saw_the_first_seconds_and_the_other_the_last():
    random = np.random.default_rng(2)
    one, other = Wire(), Wire(offset_ns=5 * S)
    talk(one, other, random, packet=640_000)
    one.rows = [row for row in one.rows if row[4] < one.clock(15 * S)]
    other.rows = [row for row in other.rows if row[4] > other.clock(8 * S)]
    assert_true(found(one, other), one, other, within_ns=120_000)


def test_what_arrived_after_the_sender_s_recording_had_ended_is_no_measure_of_anything():
    random = np.random.default_rng(5)
    one, other = Wire(), Wire(offset_ns=5 * S)
    talk(one, other, random)
    one.rows = [row for row in one.rows if row[4] < one.clock(3 * S)]
    clock = found(one, other)
    assert_true(clock, one, other, within_ns=10**6)
    assert clock is not None
    assert clock.residual_ns is not None
    assert clock.residual_ns < 5 * MS


def test_bins_without_a_position_say_nothing():
    random = np.random.default_rng(3)
    one, other = Wire(), Wire(offset_ns=77)
    talk(one, other, random)
    for wire in (one, other):
        wire.rows = [row if random.random() < 0.5 else (*row[:3], 0, 0) for row in wire.rows]
    assert_true(found(one, other), one, other)


def test_addresses_that_are_used_again_are_another_connection():
    random = np.random.default_rng(4)
    one, other = Wire(), Wire(offset_ns=3 * S)
    for flow in (1, 2, 3):
        talk(one, other, random, flow, seconds=5)
    other.flows = [(10 - flow[0], *flow[1:]) for flow in other.flows]
    other.rows = [(10 - row[0], *row[1:]) for row in other.rows]
    assert_true(found(one, other), one, other, within_ns=300_000)  # 15 s beyond what there are streams of


def test_equal_addresses_in_another_network_are_another_connection():
    random = np.random.default_rng(5)
    one, other, elsewhere = Wire(), Wire(offset_ns=3 * S), Wire(offset_ns=-9 * S)
    talk(one, elsewhere, random, 1)
    talk(one, other, random, 2)
    talk(elsewhere, other, random, 3)
    assert_true(found(one, other), one, other)


def test_a_router_that_changes_addresses_hides_nothing():
    random = np.random.default_rng(6)
    one, other = Wire(), Wire(offset_ns=-S)
    talk(one, other, random)
    other.flows = [(1, "10.0.0.2", 2000, "203.0.113.7", 55_555)]
    assert_true(found(one, other), one, other)


def test_streams_of_others_tell_nothing():
    random = np.random.default_rng(7)
    one, other, third = Wire(), Wire(), Wire()
    talk(one, third, random)
    talk(third, other, random)
    assert found(one, other) is None


def test_one_way_alone_tells_nothing():
    random = np.random.default_rng(8)
    one, other = Wire(), Wire()
    talk(one, other, random)
    one.rows = [row for row in one.rows if row[1] == 0]
    assert found(one, other) is None


def test_an_asymmetric_way_is_inside_the_bound():
    random = np.random.default_rng(9)
    one, other = Wire(), Wire(offset_ns=S)
    talk(one, other, random, least_ns=5 * MS)
    back = np.array([row[1] == 0 for row in other.rows])
    other.rows = [
        (*row[:4], row[4] + 4 * MS) if is_back else row for row, is_back in zip(other.rows, back, strict=True)
    ]
    clock = found(one, other)
    assert_true(clock, one, other, within_ns=4 * MS)
    assert clock is not None
    assert clock.bound_ns is not None
    assert clock.bound_ns > 2 * MS


def lines(c: Any, at_ns: int) -> tuple[float, float]:
    """The lowest and the highest that a corridor allows at a time."""
    return (
        float((c.low_ns + c.drifts * (at_ns - c.at_ns)).min()),
        float((c.high_ns + c.drifts * (at_ns - c.at_ns)).max()),
    )


@pytest.mark.parametrize("seed", range(10))
def test_the_corridor_holds_all_lines_that_fit_and_no_others(seed):
    random = np.random.default_rng(seed)
    x = np.sort(random.integers(0, 10 * S, 50))
    upper = (x * 2e-5).astype(np.int64) + random.integers(1000, 90_000, 50)
    lower = (x * 2e-5).astype(np.int64) - random.integers(1000, 90_000, 50)
    found = corridor(x, upper, x, lower)
    assert found is not None
    slopes = np.linspace(-1e-4, 1e-4, 20_001)
    high = (upper[None] - slopes[:, None] * x).min(axis=1)
    low = (lower[None] - slopes[:, None] * x).max(axis=1)
    fits = high >= low
    for at_ns in (0, 5 * S, 10 * S):
        wanted = (low + slopes * at_ns)[fits].min(), (high + slopes * at_ns)[fits].max()
        assert lines(found, at_ns) == pytest.approx(wanted, abs=150)
        line = found.middle().of(at_ns)
        assert found.farthest_ns(found.middle(), at_ns) == pytest.approx(
            max(wanted[1] - line, line - wanted[0]), abs=150
        )


def test_clocks_that_do_not_run_straight_have_a_wider_bound():
    x = np.arange(0, 10 * S, MS)
    bent = (50_000 * np.sin(x / (10 * S) * 2 * np.pi)).astype(np.int64)
    found = corridor(x, bent + 100, x, bent - 100)
    assert found is not None
    error = np.abs(found.middle().of(x) - bent).max()
    assert error <= found.farthest_ns(found.middle(), 0) + 1


def forward(clock: HostClock, reference_ns: Any) -> Any:
    times = np.array(reference_ns, np.int64)
    return times + clock.offset_ns + clock.drift * (times - (clock.at_ns - clock.offset_ns))


def test_clocks_one_after_other_and_backwards():
    first = HostClock("flows", 5e8, 4e-5, 10 * S, 1000.0, 1e-8)
    second = HostClock("flows", -3e8, -2e-5, 12 * S, 500.0, 1e-8)
    both = one_after_other(first, second)
    times = np.array([0, 10 * S, 100 * S])
    assert forward(both, times) == pytest.approx(forward(second, np.rint(forward(first, times)).astype(int)), abs=2)
    assert both.bound_ns == 1500.0
    assert to_reference(both, np.rint(forward(both, times)).astype(np.int64)) == pytest.approx(times, abs=1)
    assert forward(backwards(first), np.rint(forward(first, times)).astype(int)) == pytest.approx(times, abs=2)
    assert forward(at(first, 50 * S), times) == pytest.approx(forward(first, times), abs=1)


def steps(random: np.random.Generator, other_by_ns: int, drift: float, jitter_ns: int = 5 * MS) -> Any:
    """The all-reduces of two ranks, of which the second has another clock."""
    begin = np.cumsum(100 * MS + random.integers(0, jitter_ns + 1, 300))
    done = begin + 30 * MS + random.integers(0, 1000, 300)
    posted = [begin - random.integers(0, 2 * MS, 300) for _ in range(2)]
    ends = [done + random.integers(0, 300_000, 300) for _ in range(2)]
    moved = [posted[1] + other_by_ns + np.rint(posted[1] * drift).astype(np.int64),
             ends[1] + other_by_ns + np.rint(ends[1] * drift).astype(np.int64)]  # fmt: skip
    return collectives(1, posted[0], ends[0]), collectives(2, *moved)


@pytest.mark.parametrize(("first", "last"), [(0, 300), (40, 260), (7, 300)])
def test_collectives_tell_where_streams_do_not(first, last):
    mine, its = steps(np.random.default_rng(first), 2 * S, 3e-5)
    its = its.where(np.arange(300) >= first).where(np.arange(300 - first) < last)
    pairs = _same(mine, its, HostClock("realtime", 1.5 * S, at_ns=S))
    assert pairs is not None
    assert (pairs[1] + first == pairs[0]).all()
    clock = by_collectives(mine.where(pairs[0]), its.where(pairs[1]), (0, 31 * S))
    assert clock is not None
    times = np.arange(0, 31 * S, S)
    error = np.abs(forward(clock, times) - (times + 2 * S + times * 3e-5)).max()
    assert clock.bound_ns is not None
    assert error <= clock.bound_ns
    assert error < 300_000
    assert clock.source == "collectives"


def growing(number: int, every: Collectives) -> RecentRows:
    """The newest marks of a host that has been recorded for an hour, and on which no byte was seen."""
    end_ns = every.end_ns + 3600 * S
    begin_ns = every.begin_ns + 3600 * S
    rows = [
        row
        for at, done in zip(begin_ns.tolist(), end_ns.tolist(), strict=True)
        for row in (
            (at, 7, 7, int(MarkKind.COLLECTIVE_BEGIN), 0, int(Backend.GLOO)),
            (at + 1, 7, 7, int(MarkKind.COLLECTIVE_SIZE), 1000, 4, int(CollectiveKind.ALL_REDUCE)),
            (done, 7, 7, int(MarkKind.COLLECTIVE_END), 0, 0),
        )
    ]
    columns, schema = mark_columns(rows), tables()["marks"]
    meta = replace(Job().meta(), boot_id=f"boot{number}", started_ns=0)
    recent = RecentRows(Path(f"h{number}"), meta, {"marks": 10**6})
    recent.add("marks", pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in schema], schema=schema))
    return recent


def test_a_live_view_knows_how_well_the_clocks_are_known_now():
    """Not as the recording began: collectives of a minute say little about an hour ago."""
    mine, its = steps(np.random.default_rng(2), 0, 0.0)
    clock = LiveClocks([growing(0, mine), growing(1, its)]).clocks[1]
    assert clock.source == "collectives"
    assert clock.bound_ns is not None
    assert clock.bound_ns < 200 * MS


def test_steps_that_all_take_the_same_time_tell_nothing():
    mine, its = steps(np.random.default_rng(1), S, 0.0, jitter_ns=0)
    assert _same(mine, its, HostClock("realtime", 0.5 * S, at_ns=S)) is None


def test_the_realtime_clock():
    clock = by_realtime(Clock(100 * S, 1000 * S), Clock(700 * S, 1003 * S))
    assert to_reference(clock, np.array([700 * S])).tolist() == [103 * S]
    assert clock.bound_ns is None


@pytest.mark.slow
def test_points_that_are_all_corners_take_neither_memory_nor_time() -> None:
    """No clock is like that, but somebody may make up a trace; what is found still holds the truth."""
    turn = np.arange(-50_000, 50_000)
    time_ns, upper, lower = turn * MS + 50 * S, turn**2 + MS, -(turn**2) - MS
    tracemalloc.start()
    found = corridor(time_ns, upper, time_ns, lower)
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()
    assert found is not None
    assert len(found.drifts) < 1000, "the work grows with drifts times corners"
    assert abs(found.middle().offset_ns) <= found.farthest_ns(found.middle(), 50 * S)


def test_collectives_of_the_process_that_saw_the_most_are_compared() -> None:
    few, many = collectives(7, [50, 10], [60, 20]), collectives(8, [30, 5, 40], [35, 9, 44])
    found = of_whole_job(concatenate(Collectives, [few, many]), None)
    assert found.pid.tolist() == [8, 8, 8]
    assert found.posted_ns.tolist() == [5, 30, 40], "in their order"


def test_realtime_clocks_that_are_centuries_apart_overflow_nothing() -> None:
    clock = by_realtime(Clock(0, 1 << 62), Clock(1 << 60, 0))
    moved = to_reference(clock, np.array([0, 1 << 60]))
    assert (np.diff(moved) == 1 << 60).all()
    assert (moved < 0).all()


def test_a_stream_is_not_looked_for_among_the_rows_of_all() -> None:
    """A host has thousands in each of 32 windows: 3,000 took 8 s here."""
    flows, rows = 1500, 400
    flow_id, direction = np.repeat(np.arange(flows), 2 * rows), np.tile(np.repeat([0, 1], rows), flows)
    every = Passages(flow_id, direction, np.arange(len(flow_id)), np.arange(len(flow_id)))
    began_s = time.process_time()
    found = [every.of(flow, way) for flow in range(flows) for way in (0, 1)]
    assert time.process_time() - began_s < 2.0
    assert [len(each) for each in found] == [rows] * 2 * flows
    assert np.array_equal(np.concatenate([each.position for each in found]), every.position)
