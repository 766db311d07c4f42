"""Folding the wire table, and questions to the bins, against sums over the rows themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netprof.analysis.tables.flow_table import LaneKey, LinkKey, read_flows
from netprof.analysis.tables.intervals import interval, merge
from netprof.analysis.wire.bins import Bins, combine
from netprof.analysis.wire.fold import WireFold
from netprof.errors import TraceError

BIN = 1000
DAY = 24 * 3600 * 10**9


def flow_table(rows):
    """Rows of (flow_id, netns, device, pid, rank)."""
    count = len(rows)
    names = ("flow_id", "netns", "device", "pid", "rank")
    columns = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    same = {"family": 4, "local_port": 1, "remote_port": 2, "protocol": 6, "local_addr": "a", "remote_addr": "b"}
    same |= {"local_queue_pair": 0, "remote_queue_pair": 0, "congestion_control": "cubic"}
    return columns | {name: [value] * count for name, value in same.items()}


def wire(rows):
    """Rows of (flow, direction, bin number, bytes, offset of the first packet, of the last)."""
    table = np.array(rows, np.int64).reshape(-1, 6)
    start = table[:, 2] * BIN
    return {
        "flow_id": table[:, 0],
        "direction": table[:, 1],
        "bin_start_ns": start,
        "payload_bytes": table[:, 3] // 2,
        "wire_bytes": table[:, 3],
        "retransmitted_bytes": table[:, 3] // 10,
        "packets": np.ones(len(table), np.int64),
        "first_ns": start + table[:, 4],
        "last_ns": start + table[:, 5],
        **{name: np.zeros(len(table), np.int64) for name in ("unsent", "stream_position", "stream_position_ns")},
    }


FLOWS = [(3, 7, "eth0", 100, 0), (8, 7, "eth0", 101, 1), (9, 8, "eth0", 101, 1)]
row = st.tuples(
    st.sampled_from([3, 8, 9, 77]),
    st.integers(0, 1),
    st.integers(0, 50),
    st.integers(0, 10_000),
    st.just(0),
    st.just(999),
)


def folded(*batches):
    """The lanes of some batches of rows."""
    fold = WireFold(read_flows(flow_table(FLOWS), {}), BIN)
    for rows in batches:
        fold.add(wire(rows))
    return by_lane(fold)


def by_lane(fold):
    return {(lane, direction): bins for lane, direction, bins in fold.lanes()}


@given(st.lists(row, max_size=60), st.integers(1, 5), st.randoms())
def test_the_fold_adds_up_every_row_once_in_any_order_and_any_batches(rows, batches, random):
    random.shuffle(rows)
    fold = WireFold(read_flows(flow_table(FLOWS), {}), BIN)
    for part in np.array_split(np.arange(len(rows)), batches):
        fold.add(wire([rows[index] for index in part]))
    assert fold.rows == len(rows)
    assert fold.unknown_bytes == sum(r[3] for r in rows if r[0] == 77)
    for position, (flow, netns, device, pid, _) in enumerate(FLOWS):
        for direction in (0, 1):
            mine = [r for r in rows if r[:2] == (flow, direction)]
            totals = fold.totals(direction)
            assert totals.wire_bytes[position] == sum(r[3] for r in mine)
            assert totals.payload_bytes[position] == sum(r[3] // 2 for r in mine)
            assert totals.retransmitted_bytes[position] == sum(r[3] // 10 for r in mine)
            lane = by_lane(fold).get((LaneKey(LinkKey(netns, device), pid), direction))
            if lane is None:
                assert not mine
                continue
            assert lane.number.tolist() == sorted({r[2] for r in mine})
            for number, held in zip(lane.number, lane.wire_bytes, strict=True):
                assert held == sum(r[3] for r in mine if r[2] == number)


@given(st.lists(row, min_size=1, max_size=40), st.integers(0, 50_000), st.integers(0, 50_000))
def test_bytes_in_parts_of_time_add_up_to_the_whole(rows, first_cut, second_cut):
    fold = WireFold(read_flows(flow_table(FLOWS), {}), BIN)
    fold.add(wire(rows))
    low, high = sorted((first_cut, second_cut))
    for _, _, lane in fold.lanes():
        parts = [lane.wire_bytes_in(interval(a, b)) for a, b in ((-5, low), (low, high), (high, 60_000))]
        assert sum(parts) == pytest.approx(float(lane.wire_bytes.sum()), rel=1e-12)
        assert all(part >= 0 for part in parts)


def test_a_bin_that_straddles_an_edge_is_split_between_its_first_and_last_packet():
    (bins,) = folded([(3, 0, 10, 800, 400, 900)]).values()  # packets from 10_400 to 10_900
    assert bins.wire_bytes_in(interval(0, 10_400)) == 0
    assert bins.wire_bytes_in(interval(0, 10_650)) == 400
    assert bins.payload_bytes_in(interval(10_650, 10_775)) == 100
    assert bins.wire_bytes_in(interval(0, 10_900)) == 800
    assert bins.wire_bytes_in(interval(10_900, 99_000)) == 0


def test_a_lane_grows_to_both_sides_and_past_four_gigabytes_in_a_bin():
    large = (3 << 30) + 1
    (bins,) = folded(*([(3, 0, number, large, 0, 0)] for number in (50_000, 10, 50_000, 200_000))).values()
    assert bins.number.tolist() == [10, 50_000, 200_000]
    assert bins.wire_bytes.tolist() == [large, 2 * large, large]
    assert bins.payload_bytes.sum() == 4 * (large // 2)


@pytest.mark.slow
def test_bytes_of_a_lane_longer_than_a_block_are_those_of_its_rows():
    random = np.random.default_rng(5)
    numbers = np.flatnonzero(random.random(3_000_000) < 0.8)
    amounts = random.integers(1, 1000, len(numbers)).astype(np.uint16)
    point = np.full(len(numbers), 500, np.uint32)  # one packet in the middle of each bin
    lane = Bins(BIN, numbers, amounts, amounts, amounts, point, point)
    edges = np.sort(random.integers(0, 3_000_000, 40)) * BIN
    times = merge(edges[0::2], edges[1::2])
    inside = sum(
        amounts[(numbers * BIN >= begin) & (numbers * BIN < end)].sum()
        for begin, end in zip(times.begin_ns, times.end_ns, strict=True)
    )
    assert lane.wire_bytes_in(times) == inside


def test_times_too_far_apart_are_refused_in_one_line():
    fold = WireFold(read_flows(flow_table(FLOWS), {}), BIN)
    fold.add(wire([(3, 0, 1, 5, 0, 0)]))
    fold.add(wire([(3, 0, 300 * DAY // BIN, 5, 0, 0)]))  # the longest of recordings
    with pytest.raises(TraceError, match="span 400 days"):
        fold.add(wire([(3, 0, 400 * DAY // BIN + 1, 5, 0, 0)]))


def test_combined_lanes_hold_the_sum():
    found = folded([(3, 0, 2, 100, 100, 200), (8, 0, 2, 50, 300, 400), (8, 0, 9, 7, 0, 0)])
    lanes = [found[(LaneKey(LinkKey(7, "eth0"), pid), 0)] for pid in (100, 101)]
    both = combine(lanes)
    assert both is not None
    assert both.number.tolist() == [2, 9]
    assert both.wire_bytes.tolist() == [150, 7]
    assert both.wire_bytes_in(interval(2_000, 2_250)) == 75
    assert combine([]) is None
    assert combine(lanes[:1]) is lanes[0]


def test_flows_take_their_rank_from_the_process_and_their_process_from_the_rank():
    rows = [(1, 7, "eth0", 100, -1), (2, 7, "eth0", 555, 0), (3, 7, "eth0", 900, -1), (3, 8, "eth1", 100, 0)]
    flows = read_flows(flow_table(rows), {100: 0}, {100})
    assert flows.rank.tolist() == [0, 0, 0]  # the second was forked from rank 0; the third was described twice
    assert flows.pid.tolist() == [100, 100, 100]
    assert flows.device.tolist() == ["eth0", "eth0", "eth1"]
    assert flows.positions(np.array([3, 4, 1])).tolist() == [2, -1, 0]


def test_a_restarted_rank_keeps_the_flows_of_each_of_its_processes():
    rows = [(1, 7, "eth0", 100, 0), (2, 7, "eth0", 200, 0), (3, 7, "eth0", 555, 0)]
    flows = read_flows(flow_table(rows), {100: 0, 200: 0, 555: 0}, {100, 200})
    assert flows.pid.tolist() == [100, 200, 555]
