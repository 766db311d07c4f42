"""The account of waiting: every nanosecond has one cause, and the right one where it is known in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples
from support.synthetic import collectives

from netprof.analysis.account.activity import Activity
from netprof.analysis.account.axis import Axis
from netprof.analysis.account.bottlenecks import Bottleneck, LinkSide, bottlenecks, taking_turns, turns
from netprof.analysis.account.causes import HOST, LATE_RANK, LINK_FULL, LOSS, TRANSPORT, UNSEEN, WAIT_CAUSES, Cause
from netprof.analysis.account.group_times import (
    LEAST_SILENCE_NS,
    NOBODY_HOLDS,
    GroupTimes,
    Held,
    least_silence_ns,
    lost_unseen,
    silences,
)
from netprof.analysis.account.lateness import resolve_lateness
from netprof.analysis.account.wait_pieces import NOTHING as NO_COLLECTIVE
from netprof.analysis.account.wait_pieces import pieces_of
from netprof.analysis.account.waiting import (
    WITHOUT_COLLECTIVE,
    Known,
    OnWire,
    Waiting,
    explain,
    when_all_seen,
)
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.members import Members, find_members
from netprof.analysis.tables.columns import UNKNOWN, concatenate
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals, interval, merge
from netprof.analysis.wire.served import NEVER, Served

A, B, C = 1, 2, 3
NO_GROUP = GroupTimes((), {}, NOBODY_HOLDS)
NEVER_MOVED = Activity(*(np.zeros(0, np.int64),) * 2)


def spans(*pairs: tuple[int, int]) -> Intervals:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return merge(table[:, 0], table[:, 1])


def account(
    waits,
    found: Collectives,
    group=NO_GROUP,
    unseen=None,
    hidden=None,
    moved=None,
    carried=None,
    untold=None,
    unmarked=None,
) -> Waiting:
    members = find_members(found, {}, None, {})
    members = members if untold is None else replace(members, untold_ns=np.full(len(found), untold))
    groups = dict.fromkeys(
        [*np.unique(members.group).tolist(), *([WITHOUT_COLLECTIVE] if carried or unmarked else [])], group
    )
    unseen = np.zeros(len(found), bool) if unseen is None else unseen
    moved_ns = [
        (moved or {}).get(pid, NEVER_MOVED).last_before(found.end_ns[[row]])[0]
        for row, pid in enumerate(found.pid.tolist())
    ]
    on_wire = OnWire(unseen, np.array(moved_ns, np.int64))
    seen = when_all_seen(members, found)
    known = Known(found, members, on_wire, groups, seen, hidden or {}, carried or {}, unmarked or {})
    return resolve_lateness(explain(waits, known), waits)


def pair(posted: tuple[int, int], end: int, start: int = 0) -> Collectives:
    """One collective of A and B, after `start` earlier ones that are long over."""
    before = np.arange(start) * 10
    return concatenate(
        Collectives,
        [
            collectives(pid, np.append(before, at), np.append(before + 5, end), number=number)
            for number, (pid, at) in enumerate(zip((A, B), posted, strict=True))
        ],
    )


def lengths(waiting: Waiting, pid: int) -> dict[Cause, int]:
    own = waiting.where(waiting.pid == pid)
    return {cause: int(own.of(cause).length_ns.sum()) for cause in WAIT_CAUSES if len(own.of(cause))}


def test_before_the_last_one_posts_it_is_late_and_then_the_wire():
    found = account({A: spans((110, 200)), B: spans((150, 200))}, pair((100, 140), 200))
    assert lengths(found, A) == {LATE_RANK: 30, TRANSPORT: 60}
    assert lengths(found, B) == {TRANSPORT: 50}
    assert found.of(LATE_RANK).culprit.tolist() == [B]


def test_who_posts_as_the_others_are_done_was_waited_for_until_then():
    assert lengths(account({A: spans((100, 200))}, pair((100, 200), 200)), A) == {LATE_RANK: 100}


def test_from_when_on_nothing_moves_any_more_it_is_the_hosts_own_if_all_had_posted_by_then():
    for last, expected in ((139, {LATE_RANK: 40, TRANSPORT: 60}), (140, {LATE_RANK: 40, HOST: 60})):
        moved = {A: Activity(np.array([105]), np.array([last]))}
        assert lengths(account({A: spans((100, 200))}, pair((100, 140), 200), moved=moved), A) == expected


def test_while_a_member_is_stopped_that_is_what_holds_everybody_whatever_the_wire_did():
    side = LinkSide(LinkKey(7, "eth0"), 0, 1e9, NEVER, NEVER)
    full = Bottleneck(side, spans((110, 130)), NOTHING, spans((110, 130)))
    group = GroupTimes((full,), {}, NOBODY_HOLDS, stopped={B: spans((120, 150))})
    found = account({A: spans((100, 200))}, pair((100, 100), 200), group)
    assert lengths(found, A) == {LINK_FULL: 10, HOST: 30, TRANSPORT: 60}
    assert found.of(HOST).culprit.tolist() == [B]


def test_each_silence_has_its_own_holder():
    group = GroupTimes((), {}, Held(spans((110, 120), (150, 160)), np.array([B, A])))
    found = account({B: spans((115, 200))}, pair((100, 100), 200), group).of(HOST)
    assert list(zip(found.begin_ns.tolist(), found.culprit.tolist(), strict=True)) == [(115, B), (150, A)]


MS = 10**6


@pytest.mark.parametrize(
    ("untold", "done", "expected"),
    [
        (50 * MS, 200, {LATE_RANK: 40 * MS, UNSEEN: 50 * MS, TRANSPORT: 10 * MS}),
        (LEAST_SILENCE_NS, 200, {LATE_RANK: 40 * MS, TRANSPORT: 60 * MS}),
        (LEAST_SILENCE_NS + 1, 200, {LATE_RANK: 40 * MS, UNSEEN: 2 * MS + 1, TRANSPORT: 58 * MS - 1}),
        (50 * MS, 140, {LATE_RANK: 40 * MS}),
    ],
)
def test_while_another_may_still_be_to_come_as_far_as_clocks_tell_it_is_unseen(untold, done, expected):
    found = account({A: spans((100 * MS, done * MS))}, pair((100 * MS, 140 * MS), done * MS), untold=untold)
    assert lengths(found, A) == expected


def test_ports_explain_only_what_no_collective_does():
    waits, hidden, carried = {A: spans((100, 260))}, {A: spans((200, 220))}, {A: spans((150, 215), (230, 240))}
    found = account(waits, pair((100, 100), 200), hidden=hidden, carried=carried)
    assert lengths(found, A) == {TRANSPORT: 100 + 15, UNSEEN: 5, HOST: 40}
    assert found.of(TRANSPORT).group.tolist() == [0, WITHOUT_COLLECTIVE]


def test_bytes_that_no_mark_tells_of_are_the_links_though_a_collective_is_posted_later():
    """A rank that reads its batch over the network, and those that wait for it meanwhile."""
    side = LinkSide(LinkKey(7, "eth0"), 1, 1e9, NEVER, NEVER)
    full = Bottleneck(side, spans((110, 150)), NOTHING, spans((110, 150)))
    group = GroupTimes((full,), {}, NOBODY_HOLDS)
    waits = {A: spans((100, 200)), B: spans((110, 150), (155, 160), (170, 200))}
    found = account(waits, pair((100, 165), 200), group, unmarked={B: spans((110, 150))})
    assert lengths(found, B) == {LINK_FULL: 40, HOST: 5, TRANSPORT: 30}
    assert lengths(found, A) == {LINK_FULL: 40, HOST: 5, LATE_RANK: 20, TRANSPORT: 35}


def test_who_waits_for_several_waits_for_each_in_turn_and_then_for_itself():
    parts = [collectives(pid, [100, 190], [200, 300], number=number) for number, pid in enumerate((A, B))]
    assert lengths(account({A: spans((100, 320))}, concatenate(Collectives, parts)), A) == {TRANSPORT: 200, HOST: 20}


def test_what_was_posted_first_is_waited_for_until_it_is_done_whatever_is_done_before():
    own = collectives(A, [110, 100, 120], [150, 200, 230])
    waits = {A: spans((100, 250))}
    axis = Axis.around(waits)
    found = pieces_of(axis, axis.laid(waits), own)
    assert axis.time_of(found.begin_ns).tolist() == [100, 200, 230]
    assert found.row.tolist() == [1, 2, NO_COLLECTIVE]
    none = pieces_of(axis, axis.laid(waits), own.where(np.zeros(3, bool)))
    assert none.row.tolist() == [NO_COLLECTIVE], "for none at all"


def test_processes_on_one_axis_do_not_touch():
    """Each has all of the time around what any of them waits, and what reaches beyond it stays its own."""
    waits = {A: spans((100, 250)), B: spans((90, 100), (200, 300))}
    axis = Axis.around(waits)
    both = axis.laid(waits)
    assert axis.pid_of(both.begin_ns).tolist() == [A, B, B]
    assert axis.time_of(both.begin_ns).tolist() == [100, 90, 200]
    assert axis.time_of(both.end_ns).tolist() == [250, 100, 300]
    ever = axis.for_each(np.array([A, B]), spans((-(1 << 62), 1 << 62)))
    assert len(ever) == 2
    assert [(both & ever).total_ns, (both - ever).total_ns] == [both.total_ns, 0]
    assert axis.laid({B: spans((0, 1000)), 7: spans((0, 1000))}).total_ns < axis.end_ns - axis.begin_ns + 4
    parts = [collectives(pid, [100], [end], number=number) for number, (pid, end) in enumerate(((A, 240), (B, 400)))]
    assert axis.pid_of(pieces_of(axis, both, concatenate(Collectives, parts)).begin_ns).tolist() == [A, A, B, B]


def recorded(ranks: int, **events: Sequence[int]) -> list[tuple[int, int]]:
    """Return when all members are seen of which so much was recorded; event k is posted at 100 k and done 50 later."""
    parts = [
        (collectives(pid, np.array(own) * 100, np.array(own) * 100 + 50 + pid), np.array(own, np.int64))
        for pid, own in zip((A, B, C), events.values(), strict=False)
    ]
    found, event = concatenate(Collectives, [part for part, _ in parts]), np.concatenate([own for _, own in parts])
    unsaid = np.zeros(len(event), np.int64)
    members = Members(event, unsaid, unsaid, unsaid, unsaid, unsaid, unsaid, np.full(len(event), ranks))
    times = when_all_seen(members, found)[0]
    return list(zip(times.begin_ns.tolist(), times.end_ns.tolist(), strict=True))


def test_all_are_seen_while_every_member_is_recorded():
    assert recorded(3, a=range(4), b=range(4), c=range(4)) == [(0, 350 + C)], "from the first collective to the last"
    assert recorded(3, a=range(4), b=range(1, 4), c=range(3)) == [(100, 250 + C)], "one begins later, one ends earlier"
    assert recorded(3, a=range(2), b=range(4), c=range(1, 4)) == [(100, 150 + C)]
    assert recorded(3, a=range(1, 4), b=range(4), c=range(4)) == [(100, 350 + C)]
    assert recorded(3, a=range(2), b=range(1, 4), c=range(2, 4)) == [], "never all at once"
    assert recorded(3, a=range(4), b=range(4)) == [], "one is not recorded at all"
    assert recorded(UNKNOWN, a=range(4), b=range(4)) == [(0, 350 + B)], "how many there are is not known"
    ever = np.iinfo(np.int64)
    assert recorded(UNKNOWN, a=[-1, -1]) == [(ever.min, ever.max)], "nobody else was seen"


def test_what_was_not_posted_yet_and_what_is_done_is_the_hosts_own():
    found = account({A: spans((90, 230))}, pair((100, 100), 200))
    assert lengths(found, A) == {HOST: 40, TRANSPORT: 100}
    assert set(found.of(HOST).culprit.tolist()) == {A}


def test_when_bytes_passed_at_unknown_times_only_lateness_is_known():
    group = GroupTimes((), {}, NOBODY_HOLDS, unplaced=spans((130, 170), (195, 400)))
    found = account({A: spans((90, 200)), B: spans((150, 200))}, pair((100, 140), 180), group)
    assert lengths(found, A) == {HOST: 30, LATE_RANK: 40, UNSEEN: 30, TRANSPORT: 10}
    assert lengths(found, B) == {UNSEEN: 20, TRANSPORT: 10, HOST: 20}
    assert set(found.of(UNSEEN).group.tolist()) == {0}


def test_who_is_late_because_it_waits_itself_passes_the_blame_on():
    """B waits until 180 in its first collective with C, whose host is busy; so it posts the one with A late."""
    early = [
        collectives(pid, np.array([100]), np.array([180]), group=0x10 + pid, number=number)
        for number, pid in enumerate((B, C))
    ]
    late = [
        collectives(pid, np.array([at]), np.array([250]), size=9, group=0x20, number=number)
        for number, (pid, at) in enumerate(((A, 110), (B, 190)))
    ]
    busy = {B: Activity(np.array([105]), np.array([120])), C: Activity(np.array([105]), np.array([120]))}
    found = account({A: spans((110, 250)), B: spans((100, 180))}, concatenate(Collectives, early + late), moved=busy)
    assert lengths(found, B) == {TRANSPORT: 20, HOST: 60}
    assert lengths(found, A) == {LATE_RANK: 10, TRANSPORT: 10 + 60, HOST: 60}, "what B waits for, then B itself"


def test_a_late_receiver_of_a_broadcast_holds_nobody():
    found = account({A: spans((100, 150))}, concatenate(Collectives, [pair((100, 100), 150)]))
    late = pair((100, 100), 150)
    late.posted_ns[1] = 170
    late.begin_ns[1], late.end_ns[1] = 150, 180
    assert lengths(found, A) == lengths(account({A: spans((100, 150))}, late), A) == {TRANSPORT: 50}


def test_the_first_that_applies_explains_a_moment():
    side = LinkSide(LinkKey(7, "eth0"), 0, 1e9, NEVER, NEVER)
    full = Bottleneck(side, spans((110, 130)), spans((130, 140)), spans((110, 140)))
    group = GroupTimes((full,), {3: spans((120, 160))}, NOBODY_HOLDS)
    found = account({A: spans((100, 200))}, pair((100, 100), 200), group)
    assert {cause.name: ns for cause, ns in lengths(found, A).items()} == {
        "link_full": 20,
        "other_traffic": 10,
        "loss": 20,
        "transport": 50,
    }


def test_a_member_that_is_not_recorded_may_be_the_reason():
    alone = collectives(A, np.array([100]), np.array([200]), ranks=2)
    side = LinkSide(LinkKey(7, "eth0"), 0, 1e9, NEVER, NEVER)
    group = GroupTimes((Bottleneck(side, spans((110, 130)), NOTHING, spans((110, 130))),), {}, NOBODY_HOLDS)
    assert lengths(account({A: spans((100, 200))}, alone, group), A) == {LINK_FULL: 20, UNSEEN: 80}


def test_what_passed_no_wire_and_what_no_collective_carries_is_unseen():
    found = pair((100, 100), 200)
    assert lengths(account({A: spans((100, 200))}, found, unseen=np.ones(2, bool)), A) == {UNSEEN: 100}
    nobodys = account({A: spans((200, 300))}, found, hidden={A: spans((200, 260))})
    assert lengths(nobodys, A) == {UNSEEN: 60, HOST: 40}
    assert set(nobodys.group.tolist()) == {-1}, "of no communicator"


@pytest.mark.slow
@examples(200)
@given(st.data())
def test_all_waiting_is_explained_and_nothing_else(data):
    count = data.draw(st.integers(0, 6))
    times = st.integers(0, 400)
    parts = []
    for number, pid in enumerate((A, B, C)):
        posted = np.array([data.draw(times) for _ in range(count)], np.int64)
        end = posted + np.array([data.draw(times) for _ in range(count)], np.int64)
        parts.append(collectives(pid, np.sort(posted), end, ranks=3, number=number))
    draw = st.lists(st.tuples(times, times).map(lambda p: (min(p), max(p))), max_size=4)
    waits = {pid: spans(*data.draw(draw)) for pid in (A, B, C)}
    side = LinkSide(LinkKey(7, "eth0"), 0, 1e9, NEVER, NEVER)
    full = Bottleneck(side, spans(*data.draw(draw)), spans(*data.draw(draw)), NOTHING)
    group = GroupTimes((full,), {0: spans(*data.draw(draw))}, NOBODY_HOLDS)
    found = account(waits, concatenate(Collectives, parts), group)
    for pid, own in waits.items():
        mine = found.where(found.pid == pid)
        assert (mine.begin_ns < mine.end_ns).all()
        assert (mine.begin_ns[1:] >= mine.end_ns[:-1]).all(), "disjoint"
        joined = merge(mine.begin_ns, mine.end_ns)
        assert joined.begin_ns.tolist() == own.begin_ns.tolist()
        assert joined.end_ns.tolist() == own.end_ns.tolist()


def busy(*rows: tuple[int, int]) -> Served:
    table = np.array(rows, np.int64).reshape(-1, 2)
    return Served(table[:, 0], table[:, 1], table[:, 1] - table[:, 0])


def test_the_side_that_is_full_for_longest_holds_everybody():
    ms = 10**6
    slow = LinkSide(LinkKey(1, "eth0"), 0, 1e9, busy((0, 90 * ms)), NEVER)
    fast = LinkSide(LinkKey(2, "eth0"), 0, 1e9, busy((0, 30 * ms), (95 * ms, 100 * ms)), NEVER)
    found = {each.side.link.netns: each for each in bottlenecks([fast, slow], interval(0, 100 * ms), NOTHING)}
    assert found[1].own.total_ns == 90 * ms
    assert found[2].own.total_ns < 10 * ms, "only while the slow one has room"
    assert found[2].full.total_ns >= 35 * ms


def when_held(ends_ms: int, *links: tuple[tuple[int, int], ...]) -> list[list[tuple[int, int]]]:
    """Return when each of some links holds everybody up in turns of 100 ms, and until `ends_ms`; ms."""
    ms = 10**6
    sides = [
        LinkSide(LinkKey(number, "eth0"), 0, 1e9, busy(*((a * ms, b * ms) for a, b in rows)), NEVER)
        for number, rows in enumerate(links)
    ]
    edges = np.arange(0, ends_ms + 1, 100) * ms
    found = {each.side.link.netns: each.own for each in bottlenecks(sides, Intervals(edges[:-1], edges[1:]), NOTHING)}
    empty = dict.fromkeys(range(len(links)), NOTHING)
    return [
        list(zip((each.begin_ns // ms).tolist(), (each.end_ns // ms).tolist(), strict=True))
        for _, each in sorted((empty | found).items())
    ]


def test_in_each_turn_it_is_the_side_that_is_full_for_longest_in_that_turn():
    steady, late = ((0, 90), (110, 150)), ((120, 190),)
    assert when_held(200, steady, late) == [[(0, 90), (110, 120)], [(120, 190)]]


def test_no_moment_is_held_against_two_links():
    """In the second turn the third link wins; what the second one does then is not held against it."""
    assert when_held(200, ((0, 100),), ((100, 150),), ((100, 190),)) == [[(0, 100)], [], [(100, 190)]]


def test_between_turns_it_is_the_one_that_is_full_for_longest_in_all_of_them():
    brief, long = ((50, 60), (120, 180)), ((0, 50), (130, 190))
    assert when_held(100, brief, long) == [[(50, 60), (120, 130)], [(0, 50), (130, 190)]]


def test_without_a_turn_or_a_full_link_nothing_is_held_up():
    assert when_held(100, ()) == [[]]
    assert when_held(0, ((10, 90),)) == [[(10, 90)]], "but what is full is full for those who wait"
    rate = LinkSide(LinkKey(7, "eth0"), 0, 1e9, NEVER, NEVER)
    assert bottlenecks([rate], interval(0, 100), NOTHING) == bottlenecks([], interval(0, 100), NOTHING) == ()


def test_the_turns_of_a_communicator_that_is_not_there_are_none():
    found = pair((100, 140), 200)
    members = find_members(found, {}, None, {})
    assert len(turns(found, members, 0)) == 1
    assert len(turns(found, members, 9)) == 0


def test_a_silence_that_ends_by_sending_is_held_by_the_sender_unless_tcp_sent_it_again():
    moved = spans((0, 10), (60, 70), (200, 210))
    held = silences({A: np.array([0, 200]), B: np.array([60])}, moved, 40)
    assert (held.times.begin_ns.tolist(), held.holder.tolist()) == ([10, 70], [B, A])
    assert len(silences({A: np.array([0])}, moved, 40).holder) == 0, "it ends by receiving: it was on its way"
    kept, lost = lost_unseen(held, {5: interval(190, 220)})
    assert kept.holder.tolist() == [B]
    assert lost[5].begin_ns.tolist() == [70]


def test_who_moves_something_once_was_never_silent():
    for sent_ns, moved in (({A: np.array([0])}, spans((0, 10))), ({}, spans((0, 10), (90, 95)))):
        assert len(silences(sent_ns, moved, 40).holder) == 0


def test_a_full_link_serves_where_it_or_another_one_is_busy():
    """Windows that are full reach a little beyond what was really served."""
    bottleneck = [
        Bottleneck(LinkSide(LinkKey(number, "eth0"), 0, 1e9, busy(*rows), NEVER), own, NOTHING, own)
        for number, (own, rows) in enumerate(((spans((0, 50)), [(5, 20)]), (spans((50, 80)), [(30, 60), (90, 99)])))
    ]
    serving = GroupTimes(tuple(bottleneck), {}, NOBODY_HOLDS).serving
    assert (serving.begin_ns.tolist(), serving.end_ns.tolist()) == ([5, 30], [20, 60])


def test_what_is_shorter_than_two_round_trips_or_two_milliseconds_is_no_silence():
    assert [least_silence_ns(rtt_us * 1000, 0.0) for rtt_us in (0, 1000, 1001, 5000)] == [2e6, 2e6, 2.002e6, 10e6]


@pytest.mark.parametrize(("apart_ns", "least_ns"), [(1500.7, 2_001_500), (math.inf, (1 << 60) + 2_000_000)])
def test_by_as_much_as_clocks_are_apart_a_silence_may_be_longer_than_it_was(apart_ns, least_ns):
    assert least_silence_ns(0, apart_ns) == least_ns


@pytest.mark.parametrize("cause", WAIT_CAUSES)
def test_every_cause_can_be_said(cause):
    from netprof.analysis.findings.blame import Blame
    from netprof.analysis.findings.waiting.waiting_words import words

    sentence, advice = words(cause, Blame(label="rank 3", detail="40 %"), 0.25)
    assert sentence
    assert advice


@pytest.mark.parametrize(("in_turn", "expected"), [(False, {LINK_FULL: 20}), (True, {LOSS: 20})])
def test_loss_explains_what_links_that_are_full_in_turn_do_not(in_turn: bool, expected: dict[Cause, int]) -> None:
    side = LinkSide(LinkKey(7, "eth0"), 0, 1e9, NEVER, NEVER)
    full = Bottleneck(side, spans((110, 130)), NOTHING, spans((110, 130)))
    lost = spans((110, 130))
    group = GroupTimes((full,), {0: lost}, NOBODY_HOLDS, alternating=spans((100, 200)) if in_turn else NOTHING)
    found = lengths(account({A: spans((100, 200))}, pair((100, 100), 200), group), A)
    assert found == {**expected, TRANSPORT: 80}


def test_links_take_turns_where_none_is_full_for_most_of_a_turn() -> None:
    turn = Intervals(np.array([0, 100, 200]), np.array([100, 200, 300]))
    found = taking_turns(np.array([30, 70, 50]), spans((0, 50), (100, 190), (200, 270)), turn)
    assert list(zip(found.begin_ns.tolist(), found.end_ns.tolist(), strict=True)) == [(0, 100)]
