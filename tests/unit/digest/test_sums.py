"""What ranks did is summed by their digests as it is by a trace; both ends of a stream keep the same bytes."""

from __future__ import annotations

import numpy as np

from netprof.analysis.digest import passages
from netprof.analysis.digest.asked_stragglers import all_sums, sums_of
from netprof.analysis.digest.digest import Did
from netprof.analysis.digest.passages import thinned
from netprof.analysis.findings.stragglers.doing import Spent, Times
from netprof.analysis.hosts.host_streams import StreamRows, carried_on


def did(times: Times, rows: list[int]) -> Did:
    """The digest of some processes."""
    ns = times.ns[rows].astype(np.float64)
    count = ns.shape[2]
    pid = np.repeat(np.array(times.pids)[rows], count)
    return Did(pid, np.tile(np.arange(count), len(rows)), *(ns[:, of].reshape(-1) for of in Spent))


def test_sums_of_digests_are_those_of_the_trace():
    rng = np.random.default_rng(5)
    ns = rng.integers(0, 10**9, (4, len(Spent), 20)).astype(np.float32)
    ns[1, Spent.RUNNING] = np.nan
    ns[2, Spent.WRITTEN, :7] = np.nan
    times = Times((10, 11, 12, 13), ns)
    asked = [np.array([0, 3, 19]), np.array([5, 6])]
    found = all_sums([sums_of(did(times, rows), asked) for rows in ([0, 1], [2], [3])])
    assert found.pids == times.pids
    for number, rows in enumerate(asked):
        total, known = times.sums(rows)
        assert np.array_equal(found.total[number], total)
        assert np.array_equal(found.known[number], known)


def streams(position: np.ndarray, flow: int = 7, first: int = 0) -> StreamRows:
    """One direction of a flow: after which byte it stands row by row, a row each nanosecond."""
    count = len(position)
    return StreamRows(
        flow_id=np.full(count, flow),
        direction=np.zeros(count, np.int64),
        payload_bytes=np.diff(position, prepend=first),
        stream_position=position % (1 << 32),
        stream_position_ns=np.arange(1, count + 1),
    )


def test_both_ends_keep_the_same_bytes(monkeypatch):
    """One end saw only a part of them."""
    monkeypatch.setattr(passages, "KEPT", 50)
    position = np.cumsum(np.random.default_rng(3).integers(1, 10**6, 5000))
    kept = [carried_on(thinned([streams(each)])) for each in (position, position[::2])]
    assert [len(each) for each in kept] == [50, 50]
    assert all((np.diff(each.time_ns) > 0).all() for each in kept)
    seen = np.isin(kept[0].position, position[::2])
    assert np.isin(kept[0].position[seen], kept[1].position).all()
    assert seen.any()
    assert kept[0].time_ns.max() > 4000, "they are spread over the recording"


def test_of_a_long_recording_the_same_bytes_are_kept_part_by_part(monkeypatch):
    """Sequence numbers begin again many times between two that are kept."""
    monkeypatch.setattr(passages, "KEPT", 50)
    position = np.cumsum(np.random.default_rng(4).integers(1, 10**9, 5000))
    rows = streams(position)
    whole, held = carried_on(thinned([rows])), rows.where(np.arange(0))
    for part in np.array_split(np.arange(len(rows)), 7):
        held = thinned([held, rows.where(part)])
    found = carried_on(held)
    assert found.time_ns.tolist() == whole.time_ns.tolist()
    assert len(found) == 50
    truth = position[found.time_ns - 1]
    for each in (found, whole):
        assert (each.position - each.position[0]).tolist() == (truth - truth[0]).tolist()


def test_what_is_short_is_kept_whole_by_flow_and_direction():
    columns = ([1, 1, 2, 2], [0, 1, 0, 0], [9, 9, 9, 9], [5, 6, 7, 8], [1, 2, 3, 4])
    found = carried_on(thinned([StreamRows(*(np.array(column) for column in columns))]))
    assert found.time_ns.tolist() == [1, 2, 3, 4]


def test_of_very_many_streams_those_that_moved_the_most_are_kept(monkeypatch):
    monkeypatch.setattr(passages, "_MOST_STREAMS", 2)
    rows = [streams(np.arange(1, count + 1), flow) for flow, count in ((1, 3), (2, 1), (3, 5))]
    assert np.unique(thinned(rows).flow_id).tolist() == [1, 3]
