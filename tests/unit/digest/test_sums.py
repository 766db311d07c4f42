"""What ranks did is summed by their digests as it is by a trace; both ends of a stream keep the same bytes."""

from __future__ import annotations

import numpy as np

from netprof.analysis.digest import passages
from netprof.analysis.digest.digest import Did
from netprof.analysis.digest.stragglers import all_sums, sums_of
from netprof.analysis.findings.stragglers.doing import Of, Times
from netprof.analysis.hosts.streams import Passages


def did(times: Times, rows: list[int]) -> Did:
    """The digest of some processes."""
    ns = times.ns[rows].astype(np.float64)
    count = ns.shape[2]
    pid = np.repeat(np.array(times.pids)[rows], count)
    return Did(pid, np.tile(np.arange(count), len(rows)), *(ns[:, of].reshape(-1) for of in Of))


def test_sums_of_digests_are_those_of_the_trace():
    rng = np.random.default_rng(5)
    ns = rng.integers(0, 10**9, (4, len(Of), 20)).astype(np.float32)
    ns[1, Of.RUNNING] = np.nan
    ns[2, Of.WRITTEN, :7] = np.nan
    times = Times((10, 11, 12, 13), ns)
    asked = [np.array([0, 3, 19]), np.array([5, 6])]
    found = all_sums([sums_of(did(times, rows), asked) for rows in ([0, 1], [2], [3])])
    assert found.pids == times.pids
    for number, rows in enumerate(asked):
        total, known = times.sums(rows)
        assert np.array_equal(found.total[number], total)
        assert np.array_equal(found.known[number], known)


def streams(position: np.ndarray) -> Passages:
    count = len(position)
    return Passages(np.full(count, 7), np.zeros(count, np.int64), position, np.arange(count))


def test_both_ends_keep_the_same_bytes(monkeypatch):
    """Positions of one end begin a wrap later, and it saw only a part of them."""
    monkeypatch.setattr(passages, "KEPT", 50)
    position = np.cumsum(np.random.default_rng(3).integers(1, 10**6, 5000))
    one, other = streams(position), streams(position[::2] + (1 << 32))
    kept = [each.where(passages._kept(each)) for each in (one, other)]
    assert [len(each) for each in kept] == [50, 50]
    assert all((np.diff(each.time_ns) > 0).all() for each in kept)
    seen = np.isin(kept[0].position, position[::2])
    assert np.isin(kept[0].position[seen] + (1 << 32), kept[1].position).all()
    assert seen.any()
    assert kept[0].time_ns.max() > 4000, "they are spread over the recording"


def test_what_is_short_is_kept_whole_by_flow_and_direction():
    every = Passages(*(np.array(c) for c in ([1, 1, 2, 2], [0, 1, 0, 0], [5, 6, 7, 8], [1, 2, 3, 4])))
    assert passages._kept(every).tolist() == [0, 1, 2, 3]
