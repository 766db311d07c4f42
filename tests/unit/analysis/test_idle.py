"""Why a link is idle, and whose turn and whose traffic it is: to the nanosecond, at every edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.line_rates import steady
from support.synthetic import collectives

from netprof.analysis.account.activity import Activity
from netprof.analysis.account.bottlenecks import LinkSide, bottlenecks, others_served, turns
from netprof.analysis.account.causes import AFTER_LAST_BYTE, CAUSES, GRADIENTS_WAITING, NO_GRADIENT, NOTHING_OUTSTANDING
from netprof.analysis.account.group_times import (
    NOBODY_HOLDS,
    GroupTimes,
    Held,
    lost_unseen,
    recoveries,
    silences,
    while_down,
)
from netprof.analysis.account.idle import CauseTimes, IdleTime, cause_times, idle_spans, idle_time
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.events.members import Members
from netprof.analysis.tables.columns import concatenate
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals, interval, merge
from netprof.analysis.wire.served import NEVER, Served

A, B = 1, 2
MS = 10**6
NEVER_NS = np.iinfo(np.int64).min


def spans(*pairs: tuple[int, int]) -> Intervals:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return merge(table[:, 0], table[:, 1])


def pairs(times: Intervals) -> list[tuple[int, int]]:
    return list(zip(times.begin_ns.tolist(), times.end_ns.tolist(), strict=True))


def iterations(*rows: tuple[int, int, int]) -> Iterations:
    """Iterations of (process, begin, end)."""
    pid, begin, end = np.array(rows, np.int64).reshape(-1, 3).T
    return Iterations(pid, begin, begin, end, end, end)


def causes(times: CauseTimes) -> dict[str, list[tuple[int, int]]]:
    return {cause.name: pairs(times.of(cause)) for cause in CAUSES}


def named(no: Any = (), waiting: Any = (), between: Any = (), after: Any = ()) -> dict[str, list[tuple[int, int]]]:
    found = (no, waiting, between, after)
    return {cause.name: list(each) for cause, each in zip(CAUSES, found, strict=True)}


@pytest.mark.parametrize(
    ("outstanding", "expected"),
    [
        ([(30, 40), (50, 80)], named([(0, 30)], [(30, 40), (50, 80)], [(40, 50)], [(80, 100)])),
        ([], named([(0, 100)])),
        ([(-20, 10)], named([], [(-20, 10)], [], [(10, 100)])),
        ([(90, 130)], named([(0, 90)], [(90, 130)])),
        ([(-20, 0)], named([(0, 100)], [(-20, 0)])),  # over as the iteration begins
        ([(100, 120)], named([(0, 100)], [(100, 120)])),  # begun as it is over
        ([(-10, 0), (20, 30), (100, 110)], named([(0, 20)], [(-10, 0), (20, 30), (100, 110)], [], [(30, 100)])),
    ],
)
def test_an_iteration_is_before_the_first_in_between_and_after_the_last(
    outstanding: list[tuple[int, int]], expected: dict[str, list[tuple[int, int]]]
) -> None:
    found = cause_times(iterations((A, 0, 100)), {A: spans(*outstanding)}, [A])
    assert causes(found) == expected
    assert found.window.total_ns == sum(times.total_ns for times in map(found.of, CAUSES)), "disjoint"


def test_of_several_ranks_the_most_urgent_one_s_cause_counts() -> None:
    found = cause_times(
        iterations((A, 0, 100), (B, 0, 120)),
        {A: spans((10, 20), (60, 70)), B: spans((30, 40)), 3: spans((0, 9))},
        [A, B],
    )
    assert causes(found) == named([(0, 10)], [(10, 20), (30, 40), (60, 70)], [(20, 30), (40, 60)], [(70, 120)])


def test_each_iteration_has_a_first_and_a_last() -> None:
    found = cause_times(iterations((A, 0, 100), (A, 100, 200)), {A: spans((10, 20), (130, 140))}, [A])
    assert causes(found) == named([(0, 10), (100, 130)], [(10, 20), (130, 140)], [], [(20, 100), (140, 200)])


def test_what_lies_in_some_time() -> None:
    times = cause_times(iterations((A, 0, 100)), {A: spans((30, 40), (50, 80))}, [A]).within(spans((35, 60)))
    assert causes(times) == named([], [(35, 40), (50, 60)], [(40, 50)])
    assert pairs(times.window) == [(35, 60)]


def test_idle_time_is_by_cause_and_adds_up() -> None:
    times = cause_times(iterations((A, 0, 100)), {A: spans((30, 40), (50, 80))}, [A])
    busy = spans((35, 45), (95, 200))
    found = idle_time(busy, interval(0, 100), times)
    assert found == IdleTime(100 - 10 - 5, 30, 35, 5, 15)
    assert [found.of(cause) for cause in (NO_GRADIENT, GRADIENTS_WAITING, NOTHING_OUTSTANDING, AFTER_LAST_BYTE)] == [
        30,
        35,
        5,
        15,
    ]
    assert {name: pairs(each) for name, each in idle_spans(busy, interval(0, 100), None).items()} == {
        "idle": [(0, 35), (45, 95)]
    }
    assert idle_time(busy, interval(0, 100), None) == IdleTime(85, None, None, None, None)
    assert found + found == IdleTime(170, 60, 70, 10, 30)
    assert found + IdleTime(1, 2, None, 3, 4) == IdleTime(86, 32, None, 8, 19)


def members(*rows: tuple[int, int]) -> Members:
    """What is known of collectives: (communicator, event)."""
    group, event = np.array(rows, np.int64).reshape(-1, 2).T
    nothing = np.zeros(len(event), np.int64)
    return Members(event, group, nothing, nothing, nothing, nothing, nothing, nothing)


def of(pid: int, *times: tuple[int, int]) -> Collectives:
    posted, end = np.array(times, np.int64).reshape(-1, 2).T
    return collectives(pid, posted, end)


def test_a_collective_s_turn_begins_when_those_before_it_are_over() -> None:
    found = concatenate(Collectives, [of(A, (0, 10), (8, 30), (50, 60)), of(B, (5, 12), (9, 28), (45, 70))])
    events = members((0, 0), (0, 1), (0, 2), (0, 0), (0, 1), (0, 2))
    assert pairs(turns(found, events, 0)) == [(0, 12), (12, 30), (45, 70)]
    assert pairs(turns(found, events, 1)) == []


def test_who_is_done_before_is_no_turn_and_other_communicators_are_not_asked() -> None:
    found = of(A, (0, 100), (10, 20), (30, 120), (1, 500))
    assert pairs(turns(found, members((0, 0), (0, 1), (0, 2), (1, 3)), 0)) == [(0, 100), (100, 120)]
    assert pairs(turns(found, members((0, -1), (0, -1), (0, -1), (1, 3)), 0)) == [(0, 100), (100, 120)]
    assert pairs(turns(found, members((0, -1), (0, -1), (0, 7), (1, 3)), 0)) == [(30, 120)], "those seen of several"


def stretch(*rows: tuple[int, int, int]) -> Served:
    begin, end, busy = np.array(rows, np.int64).reshape(-1, 3).T
    return Served(begin, end, busy)


@pytest.mark.parametrize(
    ("counted_ms", "own_ms", "expected_ms"),
    [
        (30, 20, 10),  # a third is others'
        (20, 20, 0),
        (10, 20, 0),  # less than the job's own: it counts otherwise
        (21, 20, 0),  # a twentieth may be headers
        (22, 20, 2),
        (200, 20, 30),  # no more than the time
        (-5, 0, 0),
    ],
)
def test_others_traffic_is_what_a_device_counts_beyond_the_job_s(
    counted_ms: int, own_ms: int, expected_ms: int
) -> None:
    own = stretch((0, 50 * MS, own_ms * MS)) if own_ms else NEVER
    found = others_served(np.array([0, 50 * MS]), np.array([1000, 1000 + 125_000 * counted_ms]), own, steady(1e9))
    assert found.busy_ns.sum() == expected_ms * MS
    if expected_ms:
        assert (found.begin_ns.tolist(), found.end_ns.tolist()) == ([0], [50 * MS])


def test_without_a_line_rate_a_counter_says_nothing() -> None:
    found = others_served(np.array([0, 50 * MS]), np.array([0, 10**7]), NEVER, steady(float("nan")))
    assert len(found.begin_ns) == 0
    assert len(others_served(np.zeros(0, np.int64), np.zeros(0, np.int64), NEVER, steady(1e9)).begin_ns) == 0


def side(netns: int, *full_ms: tuple[int, int], others: Served = NEVER) -> LinkSide:
    own = stretch(*((a * MS, b * MS, (b - a) * MS) for a, b in full_ms)) if full_ms else NEVER
    return LinkSide(LinkKey(netns, "eth0"), 0, 1e9, own, others)


def ms(times: Intervals) -> list[tuple[float, float]]:
    return [(begin / MS, end / MS) for begin, end in pairs(times)]


def test_in_each_turn_another_link_may_be_the_one() -> None:
    turn = Intervals(np.array([0, 40 * MS]), np.array([40 * MS, 100 * MS]))  # which touch
    one, two = side(1, (0, 30), (60, 70)), side(2, (10, 30), (40, 100))
    found = {each.side.link.netns: each for each in bottlenecks([one, two], turn, NOTHING)}
    assert ms(found[1].own) == [(0, 30)]
    assert ms(found[2].own) == [(40, 100)]
    assert found[2].own.total_ns + found[1].own.total_ns == 90 * MS
    assert ms(found[1].full) == [(0, 30), (60, 70)]
    assert not found[1].others.total_ns + found[2].others.total_ns


def test_where_the_one_has_room_any_other_that_is_full_counts() -> None:
    one, two = side(1, (0, 60)), side(2, (50, 80))
    found = {each.side.link.netns: each for each in bottlenecks([two, one], interval(0, 100 * MS), NOTHING)}
    assert ms(found[1].own) == [(0, 60)]
    assert ms(found[2].own) == [(60, 80)]


def test_a_link_that_others_fill_is_said_to_be_theirs() -> None:
    shared = side(1, (0, 10), others=stretch((0, 40 * MS, 40 * MS)))
    (found,) = bottlenecks([shared], interval(0, 100 * MS), NOTHING)
    assert ms(found.own) == [(0, 10)]
    assert ms(found.others) == [(10, 40)]
    assert ms(found.full) == [(0, 40)]


def test_links_that_are_never_full_are_no_bottleneck() -> None:
    assert bottlenecks([side(1)], interval(0, 100 * MS), NOTHING) == ()
    assert bottlenecks([], interval(0, 100 * MS), NOTHING) == ()
    (found,) = bottlenecks([side(1, (0, 50))], NOTHING, NOTHING)
    assert ms(found.own) == [(0, 50)], "without a turn it is full all the same"


def test_when_payload_last_moved_before_an_instant() -> None:
    moved = Activity(np.array([10, 20, 30]), np.array([15, 50, 35]))
    at_ns = np.array([5, 10, 11, 16, 20, 21, 49, 51, 90])
    assert moved.last_before(at_ns).tolist() == [NEVER_NS, NEVER_NS, 11, 15, 15, 21, 49, 50, 50]
    nothing = Activity(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert nothing.last_before(np.array([5])).tolist() == [NEVER_NS]


def test_silences_are_long_and_end_by_sending() -> None:
    moved = spans((0, 10), (50, 60), (100, 110), (151, 160))
    sent = {A: np.array([0, 50, 151]), B: np.array([100])}
    held = silences(sent, moved, 40)
    assert pairs(held.times) == [(110, 151)], "longer than 40"
    assert held.holder.tolist() == [A]
    assert silences(sent, moved, 39).holder.tolist() == [A, B, A]
    assert silences({}, moved, 1) is NOBODY_HOLDS
    assert silences(sent, spans((0, 10)), 1) is NOBODY_HOLDS
    assert silences({A: np.array([99])}, moved, 39).holder.tolist() == [], "sent before it was over, then received"


def test_who_sends_first_after_a_silence_held_it() -> None:
    held = silences({A: np.array([205]), B: np.array([200])}, spans((0, 10), (200, 210)), 40)
    assert held.holder.tolist() == [B]


def test_a_flow_recovers_from_what_it_lost_until_that_has_arrived() -> None:
    found = recoveries(np.array([3, 5, 3]), np.array([10, 20, 40]), np.array([30, 25, 50]), np.array([5, 7, 5]))
    assert {flow: pairs(times) for flow, times in found.items()} == {3: [(10, 35), (40, 55)], 5: [(20, 32)]}


def held(*silence: tuple[int, int]) -> Held:
    return Held(spans(*silence), np.arange(len(silence)) + 70)


@pytest.mark.parametrize(
    ("silence", "resending", "is_lost"),
    [
        ((10, 60), (50, 70), True),
        ((10, 60), (60, 70), False),  # it ends before that
        ((10, 60), (50, 60), True),
        ((10, 60), (50, 59), False),  # it goes on after that
        ((10, 60), (5, 5 + 100 * MS), True),  # samples that are close
        ((10, 60), (5, 6 + 100 * MS), False),  # hardly any of the time between two that are not
        ((0, 120 * MS), (-120 * MS, 120 * MS), True),  # half of it
        ((1, 120 * MS), (-120 * MS, 120 * MS), False),
    ],
)
def test_silences_in_which_tcp_sends_again_are_loss(
    silence: tuple[int, int], resending: tuple[int, int], is_lost: bool
) -> None:
    kept, lost = lost_unseen(held(silence), {5: spans(resending), 6: NOTHING})
    assert [pairs(times) for times in lost.values()] == ([[silence]] if is_lost else [])
    assert kept.holder.tolist() == ([] if is_lost else [70])


def test_a_silence_is_one_flow_s_loss() -> None:
    kept, lost = lost_unseen(held((0, 60), (100, 160)), {5: spans((50, 70)), 6: spans((50, 70), (150, 170))})
    assert {flow: pairs(times) for flow, times in lost.items()} == {5: [(0, 60)], 6: [(100, 160)]}
    assert kept.holder.tolist() == []


def test_a_silence_while_a_link_is_down_is_no_busy_host() -> None:
    kept, lost = while_down(held((0, 60), (100, 160)), {5: spans((50, 55)), 6: spans((60, 100))})
    assert {flow: pairs(times) for flow, times in lost.items()} == {5: [(0, 60)]}
    assert pairs(kept.times) == [(100, 160)]


def test_what_explains_a_communicator_s_time_is_put_together() -> None:
    one, two = bottlenecks([side(1, (0, 60)), side(2, (50, 80))], interval(0, 100 * MS), NOTHING)
    shared = bottlenecks([side(3, others=stretch((85 * MS, 95 * MS, 10 * MS)))], interval(80 * MS, 100 * MS), NOTHING)
    times = GroupTimes((one, two, *shared), {1: spans((5, 9)), 2: spans((7, 12))}, NOBODY_HOLDS)
    assert ms(times.link_full) == [(0, 80)]
    assert ms(times.serving) == [(0, 80)]
    assert ms(times.other_traffic) == [(85, 95)]
    assert pairs(times.recovering) == [(5, 12)]


def test_where_no_time_is_idle_what_was_unknown_stays_so():
    assert IdleTime(9, 4, None, 3, 2).none == IdleTime(0, 0, None, 0, 0)
