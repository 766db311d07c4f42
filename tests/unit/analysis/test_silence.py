"""Silence takes no room in a lane: only bins with bytes are held, and every answer is that of a lane without gaps."""

from __future__ import annotations

import tracemalloc
from dataclasses import fields
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.line_rates import steady

from netprof.analysis.account.activity import activity
from netprof.analysis.events.nccl import _on_the_wire
from netprof.analysis.findings.collectives.anatomy import _bytes_until
from netprof.analysis.inference.onsets import BUSY_SHARES, Onsets, onsets_of_bins
from netprof.analysis.live.stall_watch import _blocks
from netprof.analysis.live.strip import strip
from netprof.analysis.tables.flow_table import LaneKey, LinkKey, read_flows
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.analysis.wire.bins import Bins, combine
from netprof.analysis.wire.cells import aggregate, link_cells
from netprof.analysis.wire.fold import WireFold
from netprof.analysis.wire.lanes import Lanes
from netprof.analysis.wire.served import served, sustained_bps
from netprof.schema import RECEIVE, TRANSMIT

MS = 1_000_000
HOUR = 3600 * 10**9
LINK = LinkKey(7, "eth0")
COLUMNS = [field.name for field in fields(Bins)][1:]

Row = tuple[int, int, int, int, int, int]
"""Bin number, bytes, of those payload, payload again, and the first and the last packet after the bin's begin."""

amounts = st.just(0) | st.integers(0, 1500) | st.integers(0, 2_000_000) | st.integers(2**32 - 2, 2**34)
rows = st.tuples(
    st.integers(100, 160) | st.integers(160, 1500) | st.integers(5000, 5010),
    amounts,
    amounts,
    amounts,
    st.integers(0, MS),
    st.integers(0, MS),
).map(lambda row: (*row[:4], min(row[4:]), max(row[4:])))
lanes = st.lists(rows, min_size=1, max_size=50)
instants = st.lists(st.integers(90 * MS, 170 * MS) | st.integers(4999 * MS, 5012 * MS), min_size=1, max_size=30)


def fold_of(*batches: list[Row], bin_ns: int = MS) -> WireFold:
    """One flow's rows, a batch after the other."""
    flows: dict[str, Any] = {"flow_id": [1], "netns": [7], "device": ["eth0"], "pid": [10], "rank": [0], "family": [4]}
    flows |= {"local_port": [1], "remote_port": [2], "protocol": [6], "local_addr": ["a"], "remote_addr": ["b"]}
    flows |= {"local_queue_pair": [0], "remote_queue_pair": [0], "congestion_control": ["cubic"]}
    fold = WireFold(read_flows(flows, {}), bin_ns)
    for batch in batches:
        fold.add(fold_columns(batch, bin_ns))
    return fold


def fold_columns(batch: list[Row], bin_ns: int = MS) -> dict[str, Any]:
    """The columns of `wire`."""
    number, wire, payload, resent, first, last = np.array(batch, np.int64).reshape(-1, 6).T
    columns = {"payload_bytes": payload, "wire_bytes": wire, "retransmitted_bytes": resent, "packets": wire * 0}
    columns |= dict.fromkeys(("unsent", "stream_position", "stream_position_ns"), wire * 0)
    start = number * bin_ns
    columns |= {"flow_id": wire * 0 + 1, "direction": wire * 0, "bin_start_ns": start}
    return columns | {"first_ns": start + first, "last_ns": start + last}


def lane_of(*batches: list[Row]) -> Bins:
    ((_, _, bins),) = fold_of(*batches).lanes()
    return bins


class Dense:
    """A lane with an element for each bin from the first to the last one, and every question asked bin by bin."""

    def __init__(self, table: list[Row]) -> None:
        self.first_bin = min(row[0] for row in table)
        count = max(row[0] for row in table) - self.first_bin + 1
        self.wire, self.payload, self.resent, self.lead, self.last = ([0] * count for _ in range(5))
        for number, wire, payload, resent, first, last in table:
            index = number - self.first_bin
            self.wire[index] += wire
            self.payload[index] += payload
            self.resent[index] += resent
            self.lead[index] = max(self.lead[index], MS - first)
            self.last[index] = max(self.last[index], last)

    def until(self, held: list[int], at_ns: int) -> float:
        total = 0.0
        for index, amount in enumerate(held):
            offset = at_ns - (self.first_bin + index) * MS
            first, last = MS - self.lead[index], self.last[index]
            share = (offset - first) / (last - first) if last > first else float(offset > first)
            total += amount * min(max(share, 0.0), 1.0) if 0 <= offset < MS else amount * (offset >= MS)
        return total

    def evenly_until(self, at_ns: int) -> float:
        offsets = ((at_ns - (self.first_bin + index) * MS) / MS for index in range(len(self.wire)))
        return sum(amount * min(max(share, 0.0), 1.0) for amount, share in zip(self.wire, offsets, strict=True))

    def served(self, line_rate_bps: float) -> list[tuple[int, int, int]]:
        """When what was sent is served, one bin after the other, before what is idle is taken off."""
        found, total, end = [], 0, None
        for index, amount in enumerate(self.wire):
            if amount == 0:
                continue
            begin = (self.first_bin + index) * MS
            first = begin + MS - self.lead[index]
            work = round((total + amount) * (8e9 / line_rate_bps)) - round(total * (8e9 / line_rate_bps))
            first, last = first if end is None else max(first, end), begin + self.last[index]
            total, end = total + amount, max(last, first + work)
            found.append((first, end, work))
        return found

    def sustained_bps(self) -> float:
        parts = [sum(self.wire[at : at + 100]) for at in range(0, len(self.wire), 100)]
        moved = sorted(part for part in parts if part)
        return max(0.0, moved[-max(3, len(moved) // 10)] - (256 << 10)) * 80 if len(moved) >= 3 else 0.0

    def onsets(self, busy_share: float) -> Onsets | None:
        """The bursts, from arrays without gaps."""
        payload = np.array(self.payload, np.float64)
        if payload.sum() == 0:
            return None
        typical = (payload * payload).sum() / payload.sum()
        busy = payload >= busy_share * typical
        silent = ~busy
        silent[1:] &= ~busy[:-1]
        silent[:-1] &= ~busy[1:]
        floor = payload[silent].mean() if silent.any() and np.median(payload[silent]) > 0 else 0.0
        amount = np.where(busy, payload - floor, 0.0) if floor > 0.005 * typical else payload
        starts = np.flatnonzero(busy & np.concatenate(([True], ~busy[:-1])))
        stops = np.flatnonzero(busy & np.concatenate((~busy[1:], [True])))
        middles = np.concatenate((starts[:1], (stops[:-1] + 1 + starts[1:]) // 2))
        onset = (self.first_bin + starts + 1) * MS - np.array(self.lead)[starts]
        end = (self.first_bin + stops) * MS + np.array(self.last)[stops]
        silence = np.concatenate(([0], np.maximum(onset[1:] - end[:-1], 0)))
        return Onsets(onset, silence, np.concatenate(([0.0], np.cumsum(amount)))[middles])


@pytest.mark.slow
@given(lanes, instants)
def test_bytes_until_and_in_any_time_are_those_of_a_lane_without_gaps(table: list[Row], at_ns: list[int]) -> None:
    lane, dense = lane_of(table), Dense(table)
    times = merge(np.sort(at_ns)[0:-1:2], np.sort(at_ns)[1::2])
    ends = list(zip(times.begin_ns.tolist(), times.end_ns.tolist(), strict=True))
    for own, held, asked in (
        (dense.wire, lane.wire_bytes, lane.wire_bytes_in),
        (dense.payload, lane.payload_bytes, lane.payload_bytes_in),
    ):
        assert int(held.sum(dtype=np.int64)) == sum(own)
        inside = sum(dense.until(own, end) - dense.until(own, begin) for begin, end in ends)
        assert asked(times) == pytest.approx(inside, rel=1e-9, abs=1e-3)
    until = lane.payload_until(np.array(at_ns))
    assert until.tolist() == pytest.approx([dense.until(dense.payload, at) for at in at_ns], rel=1e-12)
    evenly = _bytes_until(lane, np.array([at_ns]))[0]
    assert evenly.tolist() == pytest.approx([dense.evenly_until(at) for at in at_ns], rel=1e-12)


@pytest.mark.slow
@given(lanes, st.sampled_from([1e7, 1e9, 1e11]))
def test_what_is_served_and_kept_up_is_that_of_a_lane_without_gaps(table: list[Row], rate: float) -> None:
    lane, dense = lane_of(table), Dense(table)
    expected = dense.served(rate)
    found = served(lane, TRANSMIT, steady(rate))
    assert found.begin_ns.tolist() == [begin for begin, _, _ in expected]
    assert found.busy_ns.tolist() == [work for _, _, work in expected]
    busy = [work >= 0.01 * (end - begin) for begin, end, work in expected]
    assert found.end_ns[busy].tolist() == [end for (_, end, _), is_busy in zip(expected, busy, strict=True) if is_busy]
    received = served(lane, RECEIVE, steady(rate))
    assert received.busy_ns.sum() == found.busy_ns.sum()
    assert sustained_bps(lane) == pytest.approx(dense.sustained_bps(), rel=1e-12)


@pytest.mark.slow
@given(lanes, st.sampled_from([1, 2, 8, 64, 4096]))
def test_cells_and_strips_are_those_of_a_lane_without_gaps(table: list[Row], factor: int) -> None:
    lane, dense = lane_of(table), Dense(table)
    first = dense.first_bin // factor
    padded = [0] * (dense.first_bin - first * factor) + dense.wire
    padded += [0] * (-len(padded) % factor)
    cells = np.array(padded, np.int64).reshape(-1, factor)
    found = aggregate(lane, factor)
    assert (found.cell_ns, found.first_ns) == (factor * MS, first * factor * MS)
    assert found.total_bytes.tolist() == cells.sum(axis=1).tolist()
    assert found.peak_bytes.tolist() == cells.max(axis=1).tolist()
    seen = strip(lane, first * factor, factor, len(cells), MS)
    assert seen.mean_bps == pytest.approx(cells.mean(axis=1) * 8e9 / MS)
    assert seen.peak_bps == pytest.approx(cells.max(axis=1) * 8e9 / MS)


@pytest.mark.slow
@given(lanes, st.sampled_from(BUSY_SHARES), st.booleans())
def test_bursts_are_those_of_a_lane_without_gaps(table: list[Row], share: float, has_background: bool) -> None:
    if has_background:
        level = max(row[2] for row in table) // 50 + 10
        holding = (number for number in range(95, 5015) if number % 4 or table[0][0] % 2)
        table = [*table, *((number, level, level + number % 7 * level // 10, 0, 0, MS) for number in holding)]
    found, expected = onsets_of_bins(lane_of(table), share), Dense(table).onsets(share)
    if expected is None:
        assert len(found) == 0
        return
    assert found.onset_ns.tolist() == expected.onset_ns.tolist()
    assert found.silence_ns.tolist() == expected.silence_ns.tolist()
    assert found.moved.tolist() == pytest.approx(expected.moved.tolist(), rel=1e-9)


@pytest.mark.slow
@given(lanes, instants)
def test_what_follows_a_launch_is_that_of_a_lane_without_gaps(table: list[Row], at_ns: list[int]) -> None:
    dense, launches = Dense(table), sorted(set(at_ns))
    launches = launches[:1] + [at for before, at in pairwise(launches) if at - before > MS]
    end_ns = 6000 * MS
    first, last, moved = _on_the_wire(np.array(launches), lane_of(table), end_ns)
    for row, (begin, end) in enumerate(zip(launches, [*launches[1:], end_ns], strict=True)):
        low, high = (max(at // MS - dense.first_bin, 0) for at in (begin, end))
        held = [index for index in range(low, min(high, len(dense.wire))) if dense.wire[index]]
        assert moved[row] == sum(dense.wire[index] for index in held)
        if held:
            assert first[row] == (dense.first_bin + held[0] + 1) * MS - dense.lead[held[0]]
            assert last[row] == (dense.first_bin + held[-1]) * MS + dense.last[held[-1]]


@pytest.mark.slow
@given(lanes, lanes)
def test_activity_is_that_of_bins_with_payload_new_or_again(sent: list[Row], received: list[Row]) -> None:
    found = activity([lane_of(sent), None, lane_of(received)])
    edges = []
    for dense in (Dense(sent), Dense(received)):
        for index, amount in enumerate(dense.payload):
            begin = (dense.first_bin + index) * MS
            if amount or dense.resent[index]:
                edges.append((begin + MS - dense.lead[index], begin + dense.last[index]))
    assert found.first_ns.tolist() == sorted(first for first, _ in edges)
    assert sorted(zip(found.first_ns.tolist(), found.last_ns.tolist(), strict=True)) == sorted(edges)


@given(lanes)
def test_new_bytes_in_tenths_of_a_second_until_now_are_those_of_a_lane_without_gaps(table: list[Row]) -> None:
    key = LaneKey(LINK, 10), RECEIVE
    since_ns, now_ns = 50 * MS, 5008 * MS
    links = SimpleNamespace(lanes=Lanes({key: lane_of(table)}))
    evidence: Any = SimpleNamespace(meta=SimpleNamespace(started_ns=since_ns), links=links)
    found, first_ns = _blocks(evidence, now_ns)
    assert (len(found), first_ns) == (49, 108 * MS)
    expected = [0] * 49
    for number, _, payload, *_ in table:
        if 108 <= number < 5008:
            expected[(number - 108) // 100] += payload
    assert found.tolist() == expected


@pytest.mark.slow
@given(st.lists(lanes, min_size=1, max_size=4))
def test_lanes_put_together_are_one_lane_of_all_rows(tables: list[list[Row]]) -> None:
    whole = lane_of([row for table in tables for row in table])
    both = combine([lane_of(table) for table in tables])
    assert both is not None
    assert (np.diff(both.number) > 0).all()
    for name in COLUMNS:
        assert getattr(both, name).tolist() == getattr(whole, name).tolist(), name


@pytest.mark.slow
@given(lanes, st.integers(1, 6), st.randoms(), st.booleans())
def test_batches_in_any_order_give_the_same_however_often_one_asks(
    table: list[Row], batches: int, random: Any, asks: bool
) -> None:
    whole, shuffled = lane_of(table), table.copy()
    random.shuffle(shuffled)
    fold, seen = fold_of(), []
    for part in np.array_split(np.arange(len(table)), batches):
        fold.add_all([] if len(part) == 0 else [fold_columns([shuffled[row] for row in part])])
        if asks:
            seen.append([(bins, int(bins.wire_bytes.sum(dtype=np.int64))) for _, _, bins in fold.lanes()])
    ((_, _, again),) = fold.lanes()
    for name in COLUMNS:
        assert getattr(again, name).tolist() == getattr(whole, name).tolist(), name
    assert all(bins.wire_bytes.sum(dtype=np.int64) == before for looks in seen for bins, before in looks)


@pytest.mark.slow
def test_parts_that_pile_up_are_put_together_without_being_asked_for() -> None:
    fold = fold_of()
    tracemalloc.start()
    for number in range(200):  # one after the other, each over the same bins
        fold.add(fold_columns([(number + at, 1000, 900, 0, 0, MS) for at in range(1000)]))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 100_000 * 40, "not all 200,000 rows"
    ((_, _, bins),) = fold.lanes()
    assert len(bins) == 1199
    assert bins.wire_bytes.max() == 200 * 1000


def test_a_gap_of_months_costs_nothing() -> None:
    table = [(100, 9000, 8000, 0, 10, 20), (101, 9000, 8000, 0, 10, 20), (7000 * HOUR // MS, 10**6, 10**6, 0, 10, 20)]
    tracemalloc.start()
    fold = fold_of(table[:2], table[2:])
    lane = next(bins for _, _, bins in fold.lanes())
    assert [len(getattr(lane, name)) for name in COLUMNS] == [3] * len(COLUMNS)
    assert sum(getattr(lane, name).nbytes for name in COLUMNS) <= 3 * 32
    both = combine([lane, lane])
    assert both is not None
    assert len(both) == 3
    assert len(served(lane, TRANSMIT, steady(1e9)).begin_ns) == len(served(lane, RECEIVE, steady(1e9)).begin_ns) == 3
    assert len(lane.busy) == 2
    assert len(activity([lane, lane]).first_ns) == 6
    assert len(onsets_of_bins(lane)) == 1, "what is small beside the bin of a megabyte is silence"
    assert sustained_bps(lane) == 0
    cells = link_cells(Lanes({(LaneKey(LINK, 10), TRANSMIT): lane}), LINK, TRANSMIT, 1000)
    assert cells is not None
    assert len(cells) <= 1000
    assert cells.total_bytes.sum() == 1_018_000
    assert lane.wire_bytes_in(Intervals(np.array([0]), np.array([8000 * HOUR]))) == 1_018_000
    assert strip(lane, 99, 1, 4, MS).peak_bps.tolist() == [0, 72e6, 72e6, 0]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 << 20, "no array has an element for each of the 25 thousand million bins"


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_sums_are_exact_beyond_four_gibibytes(count: int) -> None:
    amount = 2**32 + 1
    lane = lane_of(*([(5, amount, amount, 1, 0, MS), (6, 1, 1, 0, 0, MS)] for _ in range(count)))
    assert lane.wire_bytes.tolist() == [count * amount, count]
    assert lane.resent_bytes.tolist() == [count, 0]
    both = combine([lane, lane])
    assert both is not None
    assert both.payload_bytes.tolist() == [2 * count * amount, 2 * count]
    assert lane.payload_until(np.array([10 * MS])).tolist() == [count * (amount + 1)]


def test_amounts_take_no_more_room_than_they_need() -> None:
    lane = lane_of([(5, 1500, 1448, 0, 0, 0), (9, 60_000, 50_000, 0, 0, 0)])
    assert (lane.wire_bytes.itemsize, lane.payload_bytes.itemsize, lane.resent_bytes.itemsize) == (2, 2, 1)
    one, other = lane_of([(5, 2**32 - 1, 0, 0, 0, 0)]), lane_of([(5, 1, 0, 0, 0, 0)])
    both = combine([one, other])
    assert both is not None
    assert both.wire_bytes.tolist() == [2**32], "and grow with what they hold"


def test_what_is_kept_up_is_counted_in_tenths_of_a_second_from_the_first_bin_on() -> None:
    lane = lane_of([(number, 10_000, 0, 0, 0, MS) for number in range(750, 1750) if number % 100 != 60])
    assert sustained_bps(lane) == (99 * 10_000 - (256 << 10)) * 80
