"""For how long the others wait for each: what is one's own alone is held against it, and by how much, to the ns."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netprof.analysis.account.account import Account
from netprof.analysis.account.bottlenecks import Bottleneck, LinkSide
from netprof.analysis.account.causes import (
    HOST,
    LATE_RANK,
    LINK_FULL,
    LOSS,
    OTHER_TRAFFIC,
    TRANSPORT,
    WAIT_CAUSES,
    Cause,
)
from netprof.analysis.account.episodes import Episode, _apart, _episode, episodes, windows
from netprof.analysis.account.group_times import NOBODY_HOLDS, GroupTimes
from netprof.analysis.account.held_up import (
    CAUSES,
    Kind,
    by_links,
    by_paths,
    by_ranks,
    main_ways,
    mates,
)
from netprof.analysis.account.lateness import resolve_lateness
from netprof.analysis.account.wait_pieces import WaitPieces, contains, cut_at
from netprof.analysis.account.waiting import NOBODY, WITHOUT_COLLECTIVE, Waiting, within
from netprof.analysis.tables.columns import UNKNOWN
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals, Windows, at_least, merge
from netprof.analysis.wire.paths import more_than_siblings, sibling_median
from netprof.analysis.wire.served import NEVER

A, B, C, D = 1, 2, 3, 4
S = 10**9
TEN = Windows(np.array([0, 100]), np.array([100, 200]))


def spans(*pairs: tuple[int, int]) -> Intervals:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return merge(table[:, 0], table[:, 1])


def waiting(*rows: tuple[int, int, int, Cause, int]) -> Waiting:
    """Stretches of (process, begin, end, cause, culprit), of communicator 0."""
    columns = [(pid, begin, end, WAIT_CAUSES.index(cause), culprit, 0) for pid, begin, end, cause, culprit in rows]
    return Waiting(*np.array(columns, np.int64).reshape(-1, 6).T)


def rows(found: Waiting) -> list[tuple[int, int, int, Cause, int]]:
    columns = zip(found.pid, found.begin_ns, found.end_ns, found.cause, found.culprit, strict=True)
    return [(int(p), int(b), int(e), WAIT_CAUSES[int(c)], int(w)) for p, b, e, c, w in columns]


EVERYBODY = mates({}, [A, B, C])


def test_how_long_the_median_one_waits_for_each() -> None:
    found = by_ranks(
        waiting(
            (A, 10, 30, LATE_RANK, C),
            (B, 10, 50, LATE_RANK, C),
            (A, 60, 70, HOST, C),
            (B, 90, 120, LATE_RANK, C),  # over the edge of two iterations
            (A, 190, 260, LATE_RANK, B),  # and beyond the last one
            (C, 150, 160, HOST, C),
            (D, 0, 100, LATE_RANK, C),  # nobody of these
        ),
        [A, B, C],
        EVERYBODY,
        TEN,
    )
    assert (found.kind, found.keys) == (Kind.RANK, (A, B, C))
    assert found.ns[2].tolist() == [[(20 + 40 + 10) // 2, 10], [5, 0]]
    assert found.ns[1].tolist() == [[0, 5], [0, 0]], "A waits for 10 of its iteration, C for none"
    assert found.ns[0].tolist() == [[0, 0], [0, 0]]


def test_only_mates_wait_for_one() -> None:
    late = waiting((A, 0, 50, LATE_RANK, C), (B, 0, 70, LATE_RANK, C))
    together = mates({0: [A, C], 1: [B]}, [A, B, C])
    assert together.tolist() == [[False, False, True], [False, False, False], [True, False, False]]
    assert by_ranks(late, [A, B, C], together, TEN).ns[2, 0].tolist() == [50, 0]
    assert not by_ranks(late, [A, B, C], np.zeros((3, 3), bool), TEN).ns.any()


def test_of_no_communicator_all_are_mates() -> None:
    assert EVERYBODY.tolist() == [[False, True, True], [True, False, True], [True, True, False]]
    assert mates({0: [A]}, [A, B]).tolist() == [[False, False], [False, False]]
    assert mates({0: [A, B], 1: [B, C]}, [A, B, C])[0].tolist() == [False, True, False]


def link(netns: int, own: Intervals, others: Intervals = NOTHING, full: Intervals | None = None) -> Bottleneck:
    side = LinkSide(LinkKey(netns, "eth0"), 0, 1e9, NEVER, NEVER)
    return Bottleneck(side, own, others, own | others if full is None else full)


def account(around: Waiting, times: GroupTimes) -> Account:
    return Account(around, around, {0: times})


LINKS = [LinkKey(1, "eth0"), LinkKey(2, "eth0"), LinkKey(3, "eth0")]


def test_a_link_is_held_for_what_it_is_full_alone() -> None:
    times = GroupTimes((link(1, spans((0, 40))), link(2, spans((60, 70)), spans((70, 90)))), {}, NOBODY_HOLDS)
    around = waiting(
        (A, 0, 70, LINK_FULL, NOBODY), (A, 70, 90, OTHER_TRAFFIC, NOBODY), (B, 20, 70, LINK_FULL, NOBODY),
        (C, 10, 20, LINK_FULL, NOBODY), (C, 75, 90, OTHER_TRAFFIC, NOBODY),
    )  # fmt: skip
    found = by_links(account(around, times), {5: [A], 0: [A, B, C]}, LINKS, TEN)
    assert (found.kind, found.keys) == (Kind.LINK, tuple(LINKS))
    assert found.ns[0].tolist() == [[30, 0], [0, 0]], "from 10 on two of three wait"
    assert found.ns[1].tolist() == [[10, 0], [15, 0]]
    assert found.ns[2].sum() == 0


def test_while_another_one_is_full_too_nobody_is_held() -> None:
    times = GroupTimes((link(1, spans((0, 40))), link(2, NOTHING, full=spans((30, 90)))), {}, NOBODY_HOLDS)
    around = waiting((A, 0, 100, LINK_FULL, NOBODY), (B, 0, 100, LINK_FULL, NOBODY))
    assert by_links(account(around, times), {0: [A, B]}, LINKS, TEN).ns[0, 0].tolist() == [30, 0]


def test_who_waits_for_another_communicator_does_not_wait_for_this_one() -> None:
    times = GroupTimes((link(1, spans((0, 40))),), {}, NOBODY_HOLDS)
    around = waiting((A, 0, 40, LINK_FULL, NOBODY), (B, 0, 40, LINK_FULL, NOBODY), (B, 40, 50, LINK_FULL, NOBODY))
    around = replace(around, group=np.array([0, 7, 0]))
    assert by_links(account(around, times), {0: [A, B, C]}, LINKS, TEN).ns[0].sum() == 0
    around = replace(around, group=np.array([0, 0, 7]), pid=np.array([A, B, D]))
    assert by_links(account(around, times), {0: [A, B, C]}, LINKS, TEN).ns[0, 0].tolist() == [40, 0]


def test_time_in_which_two_communicators_wait_for_a_link_is_one_time() -> None:
    times = GroupTimes((link(1, spans((0, 40))),), {}, NOBODY_HOLDS)
    around = waiting((A, 0, 30, LINK_FULL, NOBODY), (B, 20, 40, LINK_FULL, NOBODY))
    around = replace(around, group=np.array([0, 7]))
    both = Account(around, around, {0: times, 7: times})
    assert by_links(both, {0: [A], 7: [B]}, LINKS, TEN).ns[0, 0].tolist() == [40, 0]


def test_time_that_is_in_enough_sets_counts_once_and_touching_is_no_overlap() -> None:
    def pairs(count: int, *sets: Intervals) -> list[tuple[int, int]]:
        found = at_least(sets, count)
        return list(zip(found.begin_ns.tolist(), found.end_ns.tolist(), strict=True))

    assert pairs(2, spans((0, 10)), spans((10, 20))) == []
    assert pairs(1, spans((0, 10)), spans((10, 20))) == [(0, 20)]
    assert pairs(2, spans((0, 10), (20, 30)), spans((5, 25))) == [(5, 10), (20, 25)]
    assert pairs(3, spans((0, 10)), spans((5, 25))) == []


def paths(sent: list[int], busy: dict[int, list[float]]) -> tuple[Any, Any, np.ndarray]:
    """Three ways, each with one flow, of A, B and C."""
    keys = tuple(SimpleNamespace(pid=pid, to_pid=UNKNOWN, to_addr=f"10.0.0.{pid}") for pid in (A, B, C))
    clocks = SimpleNamespace(during=lambda flows, begin, end: np.array(busy[flows[0]]))
    return SimpleNamespace(keys=keys, of_flow=np.arange(3)), clocks, np.array(sent)


def test_a_way_is_held_for_its_loss_and_for_what_tcp_is_busy_beyond_its_siblings() -> None:
    ways, clocks, sent = paths([1000, 1000, 1000], {0: [50.0, 0.0], 1: [10.0, 0.0], 2: [30.0, 90.0]})
    times = GroupTimes((), {1: spans((0, 60))}, NOBODY_HOLDS)
    around = waiting(
        (A, 0, 50, LOSS, NOBODY), (B, 20, 50, LOSS, NOBODY), (C, 90, 95, LOSS, NOBODY),
        (A, 50, 80, TRANSPORT, NOBODY), (B, 50, 80, TRANSPORT, NOBODY), (C, 150, 200, TRANSPORT, NOBODY),
        (A, 150, 170, TRANSPORT, NOBODY),
    )  # fmt: skip
    found = by_paths(account(around, times), {9: [D], 0: [A, B, C]}, ways, clocks, sent, TEN)
    assert found.kind is Kind.PATH
    assert [each.pid for each in found.keys] == [A, B, C]  # type: ignore[attr-defined]
    assert found.ns[:, 0].tolist() == [[0, 0], [30, 0], [0, 0]]
    assert found.ns[:, 1].tolist() == [[30, 0], [0, 0], [0, 20]], "beyond the median of the others, as far as they wait"


def test_a_way_to_somebody_else_is_no_sibling() -> None:
    """A is on the way to D, which is in another communicator: that it is busier is nothing that B and C wait for."""
    ways, clocks, sent = paths([1000, 1000, 1000], {0: [90.0, 0.0], 1: [10.0, 0.0], 2: [30.0, 0.0]})
    ways.keys[0].to_pid, ways.keys[1].to_pid, ways.keys[2].to_pid = D, C, A
    around = waiting(*((pid, 50, 80, TRANSPORT, NOBODY) for pid in (A, B, C)))
    found = by_paths(
        account(around, GroupTimes((), {}, NOBODY_HOLDS)), {0: [A, B, C]}, ways, clocks, sent, TEN
    )  # fmt: skip
    assert found.ns[:, 1].tolist() == [[0, 0], [0, 0], [20, 0]]


@pytest.mark.parametrize(("minor_bytes", "count"), [(99, 2), (100, 3)])
def test_ways_that_carry_hardly_anything_are_no_siblings(minor_bytes: int, count: int) -> None:
    ways, clocks, sent = paths([1000, 1000, minor_bytes], {place: [0.0, 0.0] for place in range(3)})
    found = by_paths(account(waiting(), GroupTimes((), {}, NOBODY_HOLDS)), {0: [A, B, C]}, ways, clocks, sent, TEN)
    assert len(found.keys) == count


def test_a_way_of_a_single_byte_is_one() -> None:
    assert main_ways(paths([1, 0, 0], {})[0], np.array([1, 0, 0])).tolist() == [0]


def test_without_bytes_there_are_no_ways() -> None:
    ways, clocks, sent = paths([0, 0, 0], {})
    found = by_paths(account(waiting(), GroupTimes((), {}, NOBODY_HOLDS)), {0: [A]}, ways, clocks, sent, TEN)
    assert found.ns.shape == (0, 2, 2)


def test_a_single_way_has_nobody_to_be_slower_than() -> None:
    ways, clocks, sent = paths([1000, 0, 0], {0: [90.0, 90.0]})
    around = waiting((A, 0, 200, TRANSPORT, NOBODY))
    found = by_paths(account(around, GroupTimes((), {}, NOBODY_HOLDS)), {0: [A]}, ways, clocks, sent, TEN)
    assert found.ns.sum() == 0


def test_the_causes_of_a_kind_are_those_of_the_account() -> None:
    assert [int(kind) for kind in Kind] == [0, 1, 2], "as the digests of all hosts have them"
    assert CAUSES[Kind.RANK] == (LATE_RANK, HOST)
    assert CAUSES[Kind.LINK] == (LINK_FULL, OTHER_TRAFFIC)
    assert CAUSES[Kind.PATH] == (LOSS, TRANSPORT)
    assert (len(TEN), TEN.of(spans((50, 150))).tolist()) == (2, [50, 50])


def test_a_window_is_ten_iterations_or_five_seconds_whichever_is_longer() -> None:
    begin = np.arange(100) * S // 10
    assert windows(begin, begin + S // 10)[[0, 48, 49, 50, 99]].tolist() == [0, 0, 0, 1, 50]
    begin = np.arange(30) * S
    assert windows(begin, begin + S)[[0, 9, 10, 29]].tolist() == [0, 0, 1, 20]


def test_episodes_of_one_that_overlap_are_one() -> None:
    held_ns = np.ones((2, 100), np.int64)
    first = Episode(0, 10, 20, 12, 11, 0.96, still=False)
    parts = [first, Episode(0, 20, 30, 25, 11, 0.99, still=True), Episode(0, 31, 40, 35, 10, 0.97, still=False)]
    parts.append(Episode(1, 35, 40, 38, 6, 0.97, still=False))
    joined, *others = _apart(parts, held_ns)
    assert joined == Episode(0, 10, 30, 12, 21, 0.99, still=True)
    assert others == parts[2:]
    inside = Episode(0, 12, 15, 25, 4, 0.95, still=False)
    assert _apart([first, inside], held_ns) == [Episode(0, 10, 20, 12, 11, 0.96, still=False)]


def test_an_episode_that_is_over_is_not_still_so() -> None:
    held = np.zeros((4, 200))
    held[2, 50:90] = 60.0
    begin = np.arange(200) * S // 10
    (one,) = episodes((held * 1e6).astype(np.int64), begin, begin + S // 10)
    assert (one.one, one.first, one.last, one.still, one.ns) == (2, 50, 89, False, 40 * 60_000_000)
    assert one.confidence > 0.95


def test_what_does_not_matter_is_not_said_however_sure() -> None:
    held = np.zeros((4, 200))
    held[1] = 5.9  # of 100 ms; the mean of all is a quarter of it
    begin = np.arange(200) * S // 10
    assert not episodes((held * 1e6).astype(np.int64), begin, begin + S // 10)
    held[1] = 7.0
    assert [each.one for each in episodes((held * 1e6).astype(np.int64), begin, begin + S // 10)] == [1]


def test_who_waits_for_one_that_waits_itself_waits_for_what_that_one_does() -> None:
    found = resolve_lateness(waiting((A, 0, 100, LATE_RANK, B), (B, 20, 50, LINK_FULL, NOBODY)), {})
    assert rows(found) == [
        (A, 0, 20, LATE_RANK, B),
        (A, 20, 50, LINK_FULL, NOBODY),
        (A, 50, 100, LATE_RANK, B),
        (B, 20, 50, LINK_FULL, NOBODY),
    ]


def test_who_waits_for_one_s_busy_host_waits_for_that_also_while_that_one_waits() -> None:
    given = waiting((A, 0, 100, HOST, B), (B, 20, 50, LOSS, NOBODY))
    assert rows(resolve_lateness(given, {})) == rows(given)


def test_so_it_goes_from_one_to_the_next() -> None:
    found = resolve_lateness(
        waiting((A, 0, 10, LATE_RANK, B), (B, 0, 10, LATE_RANK, C), (C, 0, 10, LATE_RANK, D), (D, 0, 10, HOST, D)), {}
    )
    assert [(cause, culprit) for *_, cause, culprit in rows(found)] == [(HOST, D)] * 4


def test_each_late_one_passes_on_what_it_waits_for_itself() -> None:
    found = resolve_lateness(
        waiting(
            *((A, 0, 100, LATE_RANK, B), (B, 20, 50, LINK_FULL, NOBODY)),
            *((C, 0, 100, LATE_RANK, D), (D, 30, 60, LOSS, NOBODY)),
        ),
        {},
    )
    assert [(pid, begin, end, cause) for pid, begin, end, cause, _ in rows(found) if pid in (A, C)] == [
        *((A, 0, 20, LATE_RANK), (A, 20, 50, LINK_FULL), (A, 50, 100, LATE_RANK)),
        *((C, 0, 30, LATE_RANK), (C, 30, 60, LOSS), (C, 60, 100, LATE_RANK)),
    ]


@pytest.mark.parametrize(("late", "cause"), [(255, HOST), (256, LATE_RANK)])
def test_a_chain_of_255_late_ranks_is_followed_to_its_end(late: int, cause: Cause) -> None:
    chain = waiting(*((pid, 0, 10, LATE_RANK, pid + 1) for pid in range(late)), (late, 0, 10, HOST, late))
    assert rows(resolve_lateness(chain, {}))[0] == (0, 0, 10, cause, late)


def test_nobody_and_no_communicator_have_numbers_that_none_can_have() -> None:
    assert NOBODY < 0
    assert WITHOUT_COLLECTIVE < 0


def test_two_that_wait_for_each_other_stay_late() -> None:
    found = resolve_lateness(waiting((A, 0, 10, LATE_RANK, B), (B, 0, 10, LATE_RANK, A)), {})
    assert rows(found) == [(A, 0, 10, LATE_RANK, B), (B, 0, 10, LATE_RANK, A)]


def test_who_was_done_later_and_computes_as_long_waited_longer() -> None:
    """A computes from 100 to 200, B from 130 to 230: it is late by what it waited longer for a full link."""
    waits = {A: Intervals(np.array([0, 200]), np.array([100, 240]))}
    stretches = (A, 0, 100, LINK_FULL, NOBODY), (A, 200, 230, LATE_RANK, B), (A, 230, 240, LINK_FULL, NOBODY)
    its = (B, 0, 130, LINK_FULL, NOBODY)
    assert rows(resolve_lateness(waiting(*stretches, its), waits))[1:3] == [
        (A, 200, 230, LINK_FULL, NOBODY),
        (A, 230, 240, LINK_FULL, NOBODY),
    ]


def test_who_was_done_later_and_computes_for_longer_is_late_by_that() -> None:
    """B computes from 130 to 250, 20 longer than A does."""
    waits = {A: Intervals(np.array([0, 200]), np.array([100, 260]))}
    stretches = (A, 0, 100, LINK_FULL, NOBODY), (A, 200, 250, LATE_RANK, B), (A, 250, 260, LINK_FULL, NOBODY)
    its = (B, 0, 130, LINK_FULL, NOBODY)
    assert rows(resolve_lateness(waiting(*stretches, its), waits))[1:3] == [
        (A, 200, 230, LINK_FULL, NOBODY),
        (A, 230, 250, LATE_RANK, B),
    ]


def test_for_how_long_one_computed_is_told_by_its_last_wait_before() -> None:
    waits = {A: Intervals(np.array([0, 100, 300]), np.array([20, 200, 340]))}
    stretches = (A, 100, 200, LINK_FULL, NOBODY), (A, 300, 330, LATE_RANK, B)
    its = (B, 100, 230, LINK_FULL, NOBODY)
    assert rows(resolve_lateness(waiting(*stretches, its), waits))[1] == (A, 300, 330, LINK_FULL, NOBODY)


def test_who_was_done_at_the_same_time_is_late_by_all() -> None:
    waits = {A: Intervals(np.array([0, 200]), np.array([100, 260]))}
    stretches = (A, 0, 100, LINK_FULL, NOBODY), (A, 200, 250, LATE_RANK, B)
    its = (B, 0, 100, LINK_FULL, NOBODY)
    assert rows(resolve_lateness(waiting(*stretches, its), waits))[1] == (A, 200, 250, LATE_RANK, B)


def test_what_lies_within_some_time_is_cut_to_it() -> None:
    found = within(
        waiting((A, 0, 50, LATE_RANK, B), (A, 60, 90, HOST, A), (B, 0, 10, LOSS, NOBODY)),
        {A: spans((20, 30), (40, 70)), C: spans((0, 100))},
    )
    assert rows(found) == [(A, 20, 30, LATE_RANK, B), (A, 40, 50, LATE_RANK, B), (A, 60, 70, HOST, A)]


def test_pieces_are_cut_at_an_instant_each() -> None:
    pieces = WaitPieces(np.array([0, 10, 20, 30]), np.array([10, 20, 30, 40]), np.array([0, 1, 2, 3]))
    before, after = pieces.cut(np.array([-5, 15, 30, 99]))
    assert [each.tolist() for each in (before.begin_ns, before.end_ns, before.row)] == [
        [10, 20, 30],
        [15, 30, 40],
        [1, 2, 3],
    ]
    assert [each.tolist() for each in (after.begin_ns, after.end_ns, after.row)] == [[0, 15], [10, 20], [0, 1]]


def test_pieces_are_split_by_time() -> None:
    pieces = WaitPieces(np.array([0, 20]), np.array([10, 40]), np.array([5, 7]))
    inside, outside = pieces.split(spans((5, 25), (40, 50)))
    assert [each.tolist() for each in (inside.begin_ns, inside.end_ns, inside.row)] == [[5, 20], [10, 25], [5, 7]]
    assert [each.tolist() for each in (outside.begin_ns, outside.end_ns, outside.row)] == [[0, 25], [5, 40], [5, 7]]


def test_stretches_are_cut_at_edges_inside_of_them() -> None:
    begin, end, row = cut_at(np.array([0, 10, 10]), np.array([10, 30, 10]), np.array([0, 10, 15, 20, 30]))
    assert (begin.tolist(), end.tolist(), row.tolist()) == ([0, 10, 15, 20, 10], [10, 15, 20, 30, 10], [0, 1, 1, 1, 2])
    assert contains(spans((5, 10)), np.array([4, 5, 9, 10])).tolist() == [False, True, True, False]
    assert contains(NOTHING, np.array([4])).tolist() == [False]


def test_at_the_beginning_what_matters_is_a_share_of_the_window_that_is_to_come() -> None:
    """Iterations of 2 s: the first window will be 20 s, of which a twentieth is 1 s; two thirds of what one holds."""
    begin = np.arange(12) * 2 * S
    for held_s, named in ((1.4, False), (1.6, True)):
        held = np.zeros((3, 12), np.int64)
        held[0, 0] = int(held_s * S)
        assert bool(episodes(held, begin, begin + 2 * S)) is named


def test_an_episode_of_one_iteration_is_that_one() -> None:
    begin = np.arange(60) * S // 10
    held = np.zeros((3, 60), np.int64)
    held[1, 30] = S
    (one,) = episodes(held, begin, begin + S // 10)
    assert (one.first, one.last, one.known, one.ns) == (30, 30, 30, S)
    assert one.still, "it is in the last window"
    assert one.confidence == pytest.approx(1 - 1 / (1 + 3 * 50)), "as sure as 50 amounts of each of three allow"


def test_times_that_no_window_has_in_common_are_episodes_of_their_own_each_as_sure_as_it_is_by_itself() -> None:
    """Windows of ten iterations of a second each, in which less is seen than in the later ones of fifty short ones."""
    length = np.repeat([S, S // 10], [30, 300])
    end = np.cumsum(length)
    held = np.zeros((3, 330), np.int64)
    held[1, [5, 200, 251]] = 2 * S
    found = episodes(held, end - length, end)
    assert [(each.first, each.last, each.known) for each in found] == [(5, 5, 6), (200, 200, 200), (251, 251, 251)]
    brief, long = 1 - 1 / (1 + 3 * 10), 1 - 1 / (1 + 3 * 50)
    assert [each.confidence for each in found] == pytest.approx([brief, long, long])
    assert not any(each.still for each in found)


@pytest.mark.parametrize("iterations", [1, 60])
def test_of_twenty_alike_a_single_iteration_tells(iterations: int) -> None:
    begin = np.arange(iterations) * S // 10
    held = np.zeros((20, iterations), np.int64)
    held[3, 0] = 2 * S
    (one,) = episodes(held, begin, begin + S // 10)
    assert (one.one, one.first, one.last, one.known) == (3, 0, 0, 0)


@pytest.mark.parametrize(("held_ns", "count"), [(S // 2, 1), (S // 2 - 1, 0)])
def test_exactly_a_twentieth_of_the_time_more_than_the_mean_matters(held_ns: int, count: int) -> None:
    """Of five seconds that is 250 ms: of two alike one holds the other up for 500."""
    begin = np.arange(60) * S // 10
    held = np.zeros((2, 60), np.int64)
    held[0, 30] = held_ns
    assert len(episodes(held, begin, begin + S // 10)) == count


@pytest.mark.parametrize(("tail", "last"), [(100, 19), (130, 29)])
def test_an_episode_ends_where_less_than_half_of_the_mean_of_its_windows_is_left(tail: int, last: int) -> None:
    """What comes after its windows, here from iteration 30 on, is none of it."""
    held = np.repeat([0, 600, tail, 600], 10)
    found = _episode(0, held, (0, 15, 29), 0.96)
    assert (found.first, found.last, found.known, found.ns) == (10, last, 15, held[: last + 1].sum())


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_an_episode_may_be_anywhere_and_still_be_so_if_its_windows_reach_the_end(at: int) -> None:
    held = np.zeros(4, np.int64)
    held[at] = 1
    for until in range(max(at, 2), 4):
        found = _episode(0, held, (0, at, until), 0.96)
        assert (found.first, found.last, found.ns, found.still) == (at, at, 1, until == 3)


@pytest.mark.parametrize(("alike", "iterations"), [(1, 60), (0, 60), (2, 0)])
def test_of_nothing_or_none_to_compare_with_there_are_no_episodes(alike: int, iterations: int) -> None:
    begin = np.arange(iterations) * S
    assert episodes(np.full((alike, iterations), S // 2), begin, begin + S) == []


def test_of_two_ways_the_busier_one_is_held_for_the_difference() -> None:
    ways, clocks, sent = paths([1000, 1000, 0], {0: [50.0, 0.0], 1: [20.0, 0.0]})
    around = waiting((A, 0, 100, TRANSPORT, NOBODY), (B, 0, 100, TRANSPORT, NOBODY))
    found = by_paths(account(around, GroupTimes((), {}, NOBODY_HOLDS)), {0: [A, B]}, ways, clocks, sent, TEN)
    assert found.ns[:, 1].tolist() == [[30, 0], [0, 0]]


Way = namedtuple("Way", "pid to_pid to_addr", defaults=[""])


@given(st.integers(1, 7), st.lists(st.integers(0, 9), max_size=28))
def test_more_than_the_median_of_all_others(rows, numbers):
    """Around a ring, and from ranks of which the receivers are not recorded."""
    columns = len(numbers) // rows
    values = np.array(numbers[: rows * columns], np.float64).reshape(rows, columns)
    ring = [Way(row, (row + 1) % rows) for row in range(rows)]
    found = more_than_siblings(values, ring if rows > 2 else [Way(row, UNKNOWN, str(row)) for row in range(rows)])
    for row in range(rows):
        others = np.delete(values, row, axis=0)
        expected = np.maximum(values[row] - np.median(others, axis=0), 0.0) if rows > 1 else np.zeros(columns)
        assert found[row].tolist() == expected.tolist()


def test_a_way_back_and_another_role_are_no_siblings() -> None:
    """A is slow to B and the root of a star; the way back, and the ways of its leaves, say nothing of it."""
    busy = np.array([[9.0], [1.0]])
    assert more_than_siblings(busy, [Way(A, B), Way(B, A)]).tolist() == [[0.0], [0.0]]
    star = [Way(A, B), Way(A, C), Way(A, D), Way(B, A), Way(C, A), Way(D, A)]
    busy = np.array([[5.0], [5.0], [9.0], [1.0], [1.0], [1.0]])
    assert more_than_siblings(busy, star).ravel().tolist() == [0, 0, 4, 0, 0, 0]
    assert np.isnan(sibling_median(busy[:4:3], star[:4:3])).all(), "of two ranks no way has a sibling"


def test_all_ways_one_way_around_are_siblings_with_two_devices_and_with_a_way_back() -> None:
    busy = np.array([[3.0], [9.0], [1.0], [1.0]])
    both = [Way(A, B, "eth0"), Way(A, B, "eth1"), Way(B, A, "eth0"), Way(B, A, "eth1")]
    assert more_than_siblings(busy, both).ravel().tolist() == [0, 6, 0, 0]
    mesh = [Way(A, B), Way(B, C), Way(A, C), Way(B, A)]
    assert more_than_siblings(busy[:3], [*mesh[:2], Way(C, A)]).ravel().tolist() == [0, 7, 0]
