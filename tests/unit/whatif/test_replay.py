"""The replay on programs small enough to follow by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netprof.analysis.whatif.compression import Codec, Half
from netprof.analysis.whatif.points import Points, grid, one
from netprof.analysis.whatif.prices import Pricing, RankLinks
from netprof.analysis.whatif.program import NOT_CHAINED, Action, Program
from netprof.analysis.whatif.recorded_steps import link_seconds, link_starts
from netprof.analysis.whatif.replay import replay
from netprof.analysis.whatif.transports import FullLink
from netprof.schema import CollectiveKind

MB_S = 8e-3  # what a megabyte takes at 1 Gbit/s; an all-reduce among two sends its size


Table = list[list[float]]
Pairs = list[tuple[float, float]]


def program(posts: Table, waits: Table, compute: list[float], megabytes: list[float]) -> Program:
    """One iteration: `posts`, `waits` and `compute` of each rank, in ms; the k-th wait is for the k-th collective."""
    ranks, count = len(posts), len(megabytes)
    return Program(
        kind=np.full(count, int(CollectiveKind.ALL_REDUCE)),
        bytes=np.array(megabytes) * 1e6,
        ranks=np.full(count, 2),
        tensors=np.ones(count),
        after=np.full(count, NOT_CHAINED),
        teams=np.zeros((ranks, count), np.int64),
        steps=tuple(Action(is_wait, k) for k in range(count) for is_wait in (False, True)),
        post_s=np.array(posts)[:, None, :] * 1e-3,
        own_s=None,
        full_s=None,
        wait_s=np.array(waits)[:, None, :] * 1e-3,
        tail_s=np.zeros((ranks, 1, count)),
        waited=np.eye(count, dtype=bool),
        compute_s=np.array(compute)[:, None] * 1e-3,
    )


def iteration_ms(
    told: Program, points: Points | None = None, legs: list[float] | None = None, **codecs: Codec
) -> Pairs:
    """Return each rank's iteration, and how much of it is not its own computing, in ms, at 1 Gbit/s."""
    points = points or one(2, 1e9)
    links = RankLinks(np.full(told.rank_count, 1e9), np.array(legs or [np.inf] * told.rank_count))
    prices = Pricing(FullLink(), links, 2, False, codecs).of(told, points)
    added = replay(told, prices, len(points))
    total = told.compute_s[:, :, None] + added
    pairs = zip(total.ravel().tolist(), added.ravel().tolist(), strict=True)
    return [(round(seconds * 1e3, 6), round(more * 1e3, 6)) for seconds, more in pairs]


def test_a_rank_waits_only_as_long_as_the_collective_takes_beyond_what_it_computes_meanwhile() -> None:
    assert iteration_ms(program([[10]], [[15]], [40], [1])) == [(43, 3)]
    assert iteration_ms(program([[10]], [[30]], [40], [1])) == [(40, 0)]


def test_what_comes_after_a_wait_comes_later_by_as_much() -> None:
    """Gather, compute, gather, as fully sharded models do: every wait is exposed."""
    told = program([[0, 10, 20]], [[0, 10, 20]], [30], [1, 2, 1])
    assert iteration_ms(told) == [(30 + 32, 32)]
    assert iteration_ms(told, one(2, 4e9)) == [(30 + 8, 8)]


def test_links_are_serial() -> None:
    told = replace(
        program([[0, 1]], [[5, 5]], [10], [1, 1]),
        steps=(Action(False, 0), Action(False, 1), Action(True, 0), Action(True, 1)),
    )
    assert iteration_ms(told) == [(10 + 11, 11)]


def test_a_late_rank_makes_the_other_wait_and_loses_nothing_itself() -> None:
    told = program([[10], [40]], [[10], [40]], [20, 50], [1])
    assert iteration_ms(told) == [(58, 38), (58, 8)]
    assert iteration_ms(told.level()) == [(28, 8), (28, 8)]


def test_a_rank_that_is_late_after_the_collective_makes_the_other_wait_in_the_next_iteration() -> None:
    assert iteration_ms(program([[10], [10]], [[10], [10]], [20, 60], [1])) == [(68, 48), (68, 8)]


def test_what_went_before_is_by_how_much_ranks_run_apart() -> None:
    """Who was late is not late again: each iteration begins as the one before it left the ranks."""
    alike = program([[10], [10]], [[10], [10]], [20, 20], [1])
    late_after = program([[10], [10]], [[10], [10]], [20, 60], [1])
    assert iteration_ms(replace(alike, before=late_after)) == [(68, 48), (28, 8)]
    assert iteration_ms(replace(late_after, before=alike)) == [(28, 8), (68, 8)]
    assert iteration_ms(replace(alike, before=late_after).level()) == [(28, 8), (28, 8)]


def test_ranks_of_other_teams_do_not_wait_for_each_other() -> None:
    told = replace(program([[10], [40]], [[10], [40]], [20, 50], [1]), teams=np.array([[0], [1]]))
    assert iteration_ms(told) == [(28, 8), (58, 8)]


def test_one_slow_leg_holds_everybody() -> None:
    told = program([[10], [10]], [[10], [10]], [20, 20], [1])
    assert iteration_ms(told, legs=[np.inf, 2.5e8]) == [(52, 32), (52, 32)]
    assert iteration_ms(told, one(2, 1e8), legs=[np.inf, 2.5e8]) == [(100, 80), (100, 80)]


def test_the_one_that_is_last_is_so_by_more_on_slower_links() -> None:
    """Now one rank's link is full for longer, now the other's, and everybody waits for it."""
    full_s = np.array([[[0.008], [0.012]], [[0.012], [0.008]]])
    told = program([[10], [10]], [[10], [10]], [20, 20], [1])
    told = replace(told, own_s=full_s, full_s=full_s)
    links = RankLinks(np.full(2, 1e9), np.full(2, np.inf))
    prices = Pricing(FullLink(), links, 2, True, {})
    for bps, apart_ms in ((1e9, 4), (5e8, 8), (1e8, 40)):
        one_ms, other_ms = prices.of(told, one(2, bps)).link_s(0)[:, 0, 0] * 1e3
        assert other_ms - one_ms == pytest.approx(apart_ms)
    unknown = replace(prices, links=RankLinks(np.full(2, np.inf), np.full(2, np.inf)))
    assert np.isfinite(unknown.of(told, one(2, 1e9)).link_s(0)).all()


@pytest.mark.parametrize(("bps", "apart_ms"), [(2.5e8, 8), (1e9, 2), (5e8, 4)])
def test_what_the_one_slow_link_took_is_nobody_elses_turn(bps: float, apart_ms: float) -> None:
    """Ranks before a narrow link are done while data still wait there, so that it is full for less of their time."""
    full_s = np.array([[[0.036]], [[0.028]]])
    told = replace(program([[10], [10]], [[10], [10]], [20, 20], [1]), own_s=full_s, full_s=full_s)
    prices = Pricing(FullLink(), RankLinks(np.array([1e9, 2.5e8]), np.full(2, np.inf)), 2, True, {})
    one_ms, other_ms = prices.of(told, one(2, bps)).link_s(0)[:, 0, 0] * 1e3
    assert one_ms - other_ms == pytest.approx(apart_ms)
    assert (one_ms + other_ms) / 2 == pytest.approx(32 * 2.5e8 / bps)


def test_a_collective_that_the_end_of_another_posts() -> None:
    told = program([[0, 2]], [[5, 5]], [10], [1, 1])
    told = replace(
        told,
        after=np.array([NOT_CHAINED, 0]),
        waited=np.array([[True, True], [True, True]]),
        steps=(Action(False, 0), Action(False, 1), Action(True, 0), Action(True, 1)),
    )
    assert iteration_ms(told) == [(10 + 13, 13)], "8, then 2 until it is posted, then 8: there at 18"


def test_encoding_delays_what_is_computed_next_and_decoding_what_is_waited_for() -> None:
    told = program([[10]], [[10]], [40], [1])
    points = grid([2], [1e9], [Half("fp16")])
    assert iteration_ms(told, points) == [(44, 4)]
    assert iteration_ms(told, points, fp16=Codec(3e-9, 2e-9)) == [(40 + 3 + 4 + 2, 3 + 4 + 2)]
    assert iteration_ms(told, points, fp16=Codec(0.0, 0.0, 1e-9)) == [(40 + 4 + 2, 6)], "of two workers"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(0, 20)), min_size=1, max_size=12))
def test_at_the_recorded_conditions_the_replay_returns_what_was_recorded(rows: list[tuple[int, int, int]]) -> None:
    """Post, compute, wait; the next post follows the wait: the recorded times lead to the recorded iteration."""
    posted, begin, end, clock, now, waited = [], [], [], 0, 0, 0
    posts: list[float] = []
    waits: list[float] = []
    for duration, before, meanwhile in rows:
        clock, now = clock + before, now + before
        posted.append(now)
        begin.append(now + 1)
        end.append(now + 1 + duration)
        posts.append(clock)
        clock, now = clock + meanwhile, now + meanwhile
        waits.append(clock)
        waited += max(end[-1] - now, 0)
        now = max(now, end[-1])
    told = program([posts], [waits], [clock], [1.0] * len(rows))
    posted_ns, begin_ns, end_ns = (np.array([column]) * 1_000_000 for column in (posted, begin, end))
    own_s = link_seconds(link_starts(posted_ns, begin_ns, end_ns), end_ns)
    told = replace(told, own_s=own_s[:, None, :])
    prices = Pricing(FullLink(), RankLinks.alike(1, 1e9), 2, True, {}).of(told, one(2, 1e9), as_recorded=True)
    assert replay(told, prices, 1).item() == pytest.approx(waited * 1e-3)


def test_what_was_recorded_differs_from_the_model_by_as_much_elsewhere_and_shrinks_with_it() -> None:
    told = replace(program([[10]], [[10]], [20], [1]), own_s=np.full((1, 1, 1), 12e-3))

    def at(points: Points) -> float:
        prices = Pricing(FullLink(), RankLinks.alike(1, 1e9), 2, True, {}).of(told, points)
        return float(replay(told, prices, 1).item())

    assert at(one(2, 1e9)) == pytest.approx(12e-3)
    assert at(one(2, 5e8)) == pytest.approx(20e-3)
    assert at(one(2, np.inf)) == 0
    assert at(grid([2], [1e9], [3.0])) == pytest.approx(4e-3)


def test_buckets_that_were_not_served_evenly_leave_nothing_behind_when_they_shrink() -> None:
    told = replace(program([[0, 0]], [[20, 20]], [20], [1, 1]), own_s=np.array([[[14e-3, 2e-3]]]))
    prices = Pricing(FullLink(), RankLinks.alike(1, 1e9), 2, True, {}).of(told, grid([2], [1e9], [1.0, 1e6]))
    assert replay(told, prices, 2).ravel().tolist() == [0.0, 0.0]
    found = np.sum([prices.link_s(k) for k in (0, 1)], axis=0).ravel()
    assert found == pytest.approx([16e-3, 16e-9])
