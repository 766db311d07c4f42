"""Who came last, put together from hosts in any order, and said only where their clocks tell."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from support.synthetic import collectives

from netprof.analysis.digest.last_arrivals import Latest, arrivals_of, latest_of, latest_of_all
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.tables.columns import concatenate

BEGIN, END = np.array([0, 1000]), np.array([1000, 2000])


def host(number: int, posted: dict[int, list[tuple[int, int]]], bound_ns: float | None = 0.0) -> Latest:
    """One host: by collective, when which process asked for it; three collectives in all."""
    rows = [(event, time, pid) for event, asked in posted.items() for time, pid in asked]
    event, time, pid = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    own = concatenate(
        Collectives, [collectives(one, at[None], at[None] + 1000) for one, at in zip(pid, time, strict=True)]
    )
    return latest_of(event, own, number, bound_ns, 3)


def arrived(parts: list[Latest], bounds: list[float]) -> list[tuple[int, int, int]]:
    found = arrivals_of(latest_of_all(parts), np.array(bounds), BEGIN, END)
    return list(zip(found.iteration.tolist(), found.pid.tolist(), found.late_ns.tolist(), strict=True))


def test_the_last_of_all_hosts_and_by_how_much():
    parts = [
        host(0, {0: [(100, 10), (110, 11)], 1: [(200, 10)], 2: [(1100, 10)]}),
        host(1, {0: [(150, 20)], 1: [(190, 20)], 2: [(1500, 20), (1490, 21)]}),
        host(2, {0: [(120, 30)], 1: [(230, 30)], 2: [(1200, 30)]}),
    ]
    for order in permutations(range(3)):
        assert arrived([parts[number] for number in order], [0.0, 0.0, 0.0]) == [(0, 30, 30), (1, 20, 10)]


def test_when_it_was_under_way_on_any_host():
    parts = [host(0, {0: [(100, 10), (110, 11)]}), host(1, {0: [(150, 20)], 1: [(90, 20)]})]
    for order in ((0, 1), (1, 0)):
        found = latest_of_all([parts[number] for number in order])
        assert found.first_ns.tolist()[:2] == [100, 90]
        assert found.done_ns.tolist()[:2] == [1150, 1090]


def test_collectives_that_one_process_alone_was_seen_in_tell_nothing():
    assert arrived([host(0, {0: [(100, 10)]}), host(1, {1: [(100, 20)]})], [0.0, 0.0]) == []


def test_what_the_clocks_do_not_tell_is_not_said():
    def of(bound: float | None) -> list[tuple[int, int, int]]:
        parts = [host(0, {0: [(100, 10)]}), host(1, {0: [(150, 20)]}, bound)]
        return arrived(parts, [0.0, np.inf if bound is None else bound])

    assert of(49.0) == [(0, 20, 50)]
    assert of(50.0) == [(0, -1, 50)]
    assert of(None) == [(0, -1, 50)]


def test_a_host_whose_clock_nobody_knows_makes_all_others_unsure_but_for_itself():
    known = [host(0, {0: [(100, 10)]}), host(1, {0: [(400, 20)]})]
    lost = host(2, {0: [(50, 30)]}, None)
    assert arrived([*known, lost], [0.0, 0.0, np.inf]) == [(0, -1, 300)]
    alone = host(0, {0: [(100, 10), (180, 11)]}, None)
    assert arrived([alone], [np.inf]) == [(0, 11, 80)]
