"""What explains a communicator's waiting is its own members': their packets, flows, links, ports and waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.synthetic import collectives

from netprof.analysis.account.account import Account, Sources, activities_of, links_of, make_account, on_wire
from netprof.analysis.account.activity import activity
from netprof.analysis.account.bottlenecks import LinkSide, link_sides
from netprof.analysis.account.causes import HOST, LINK_FULL, LOSS, TRANSPORT, UNSEEN, WAIT_CAUSES, Cause
from netprof.analysis.account.waiting import WITHOUT_COLLECTIVE, Waiting
from netprof.analysis.events.buckets import Buckets
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.members import find_members
from netprof.analysis.tables.columns import UNKNOWN, concatenate
from netprof.analysis.tables.flow_table import Flows, LaneKey, LinkKey
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.analysis.tables.link_history import RateOverTime
from netprof.analysis.tables.transport import Resends
from netprof.analysis.wire.bins import Bins
from netprof.analysis.wire.lanes import Lanes
from netprof.analysis.wire.recovery import Resent
from netprof.analysis.wire.served import NEVER, Served
from netprof.schema import RECEIVE, TRANSMIT

A, B, C, D = 1, 2, 3, 4
MS = 10**6
CARD, OTHER, PORT = LinkKey(7, "eth0"), LinkKey(8, "eth0"), LinkKey(7, "mlx5_0/1")
FLOW_OF_A, FLOW_OF_B, FLOW_OF_C = 0, 1, 2
TOGETHER, ELSEWHERE = 0, 1
"""The communicators: of A and B, and of C and D."""


def ms(*pairs: tuple[float, float]) -> Intervals:
    table = np.rint(np.array(pairs, np.float64).reshape(-1, 2) * MS).astype(np.int64)
    return merge(table[:, 0], table[:, 1])


def pairs(times: Intervals) -> list[tuple[int, int]]:
    return list(zip(times.begin_ns.tolist(), times.end_ns.tolist(), strict=True))


def packets(*at_ms: float, payload: int = 1000, resent: int = 0, wire: int = 1000) -> Bins:
    """One packet at each of some instants, in a bin of a millisecond each."""
    at_ns = np.rint(np.array(at_ms) * MS).astype(np.int64)
    wired, new, again = (np.full(len(at_ns), amount) for amount in (wire, payload, resent))
    inside = (at_ns % MS).astype(np.uint32)
    return Bins(MS, at_ns // MS, wired, new, again, np.uint32(MS) - inside, inside)


def busy(*pairs: tuple[float, float]) -> Served:
    times = ms(*pairs)
    return Served(times.begin_ns, times.end_ns, times.end_ns - times.begin_ns)


def side(link: LinkKey, own: Served) -> LinkSide:
    return LinkSide(link, TRANSMIT, 1e9, own, NEVER)


def lanes(rows: Mapping[tuple[int, LinkKey, int], Bins], periods: Mapping[LinkKey, int] | None = None) -> Lanes:
    return Lanes({(LaneKey(link, pid), way): bins for (pid, link, way), bins in rows.items()}, periods or {})


SENT = lanes(
    {
        (A, CARD, TRANSMIT): packets(1000, 1500),
        (B, CARD, TRANSMIT): packets(2000),
        (A, CARD, RECEIVE): packets(2000.25),
    }
)


def together() -> Collectives:
    """One collective of A and B and one of C and D, all posted at 1000 ms and done at 2100 ms."""
    parts = [
        collectives(pid, [1000 * MS], [2100 * MS], group=group, number=number)
        for pid, group, number in ((A, 0x10, 0), (B, 0x10, 1), (C, 0x20, 0), (D, 0x20, 1))
    ]
    return concatenate(Collectives, parts)


def sources(waits: Mapping[int, Intervals], found: Collectives | None = None, **changes: Any) -> Sources:
    found = together() if found is None else found
    nothing = np.zeros(0, np.int64)
    given: dict[str, Any] = {
        "waits": waits,
        "exposed": waits,
        "around": waits,
        "collectives": found,
        "buckets": Buckets(*(nothing,) * 8),
        "members": find_members(found, {}, None, {(A, B): 2.0, (C, D): 1.0}),
        "lanes": SENT,
        "sides": [],
        "flows": cast(Flows, SimpleNamespace(pid=np.array([A, B, C]))),
        "peers": np.full(3, UNKNOWN),
        "moved_bytes": np.ones(3, np.int64),
        "resent": Resent(*(nothing,) * 4),
        "resends": Resends(nothing, nothing, nothing, np.zeros(0, bool), nothing),
        "rtt_ns": np.zeros(3, np.int64),
        "unplaced": {},
        "stopped": {},
        "apart_ns": 0.0,
    }
    return Sources(**(given | changes))


def rows(found: Waiting) -> list[tuple[int, float, float, Cause, int]]:
    """Stretches of (process, begin and end in ms, cause, culprit)."""
    columns = zip(found.pid, found.begin_ns / MS, found.end_ns / MS, found.cause, found.culprit, strict=True)
    return [(int(p), round(float(b), 3), round(float(e), 3), WAIT_CAUSES[int(c)], int(w)) for p, b, e, c, w in columns]


def samples(*rows: tuple[int, int, int]) -> Resends:
    """What TCP said had been sent again: (flow, ms, count)."""
    flow, at_ms, count = np.array(rows, np.int64).T
    return Resends(flow, at_ms * MS, count, np.zeros(len(flow), bool), np.full(len(flow), 60 * MS))


def test_a_single_packet_ends_a_silence_and_its_sender_was_the_one_who_held_everybody() -> None:
    held = make_account(sources({A: ms((1000, 2000))})).groups[TOGETHER].held
    assert pairs(held.times) == [(1000 * MS + 1, 1500 * MS), (1500 * MS + 1, 2000 * MS)]
    assert held.holder.tolist() == [A, B]


@pytest.mark.parametrize(("rtt_ms", "count"), [((249, 1, 1000), 2), ((250, 1, 1000), 0), ((1, 250, 1000), 0)])
def test_what_two_round_trips_of_its_own_flows_take_is_no_silence(rtt_ms: tuple[int, ...], count: int) -> None:
    found = make_account(sources({A: ms((1000, 2000))}, rtt_ns=np.array(rtt_ms) * MS))
    assert len(found.groups[TOGETHER].held.times) == count


def test_who_moves_something_without_waiting_holds_the_others_too() -> None:
    waits = {A: ms((1000, 2100))}
    found = {pid: each.first_ns.tolist() for pid, each in activities_of(sources(waits)).items()}
    assert found == {A: [1000 * MS, 1500 * MS, 2_000_250_000], B: [2000 * MS]}
    assert rows(make_account(sources(waits)).waiting) == [
        (A, 1000, 1000, TRANSPORT, -1),
        (A, 1000, 1500, HOST, A),
        (A, 1500, 1500, TRANSPORT, -1),
        (A, 1500, 2000, HOST, B),
        (A, 2000, 2000.25, TRANSPORT, -1),
        (A, 2000.25, 2100, HOST, A),
    ]


def test_what_its_own_flows_lost_explains_it_seen_or_unseen() -> None:
    """A's flow: one packet is seen again, and TCP says that there was another one. B's was needless, C's is not its."""
    resent = Resent(*np.array([[FLOW_OF_A, 1100, 1120, 1130], [FLOW_OF_B, 1200, 1210, 1220], [FLOW_OF_C, 1, 2, 3]]).T)
    resent = replace(resent, **{name: getattr(resent, name) * MS for name in ("before_ns", "first_ns", "last_ns")})
    said = samples(
        *((FLOW_OF_A, 0, 0), (FLOW_OF_A, 1050, 0), (FLOW_OF_A, 1150, 1), (FLOW_OF_A, 1950, 1), (FLOW_OF_A, 2010, 2)),
        *((FLOW_OF_B, 0, 0), (FLOW_OF_B, 3000, 0)),
        *((FLOW_OF_C, 1490, 0), (FLOW_OF_C, 1510, 1)),
    )
    changes: dict[str, Any] = {"resent": resent, "resends": said, "rtt_ns": np.array([5, 1, 7]) * MS}
    groups = make_account(sources({A: ms((1000, 2000))}, **changes)).groups
    loss = {flow: pairs(times) for flow, times in groups[TOGETHER].loss.items()}
    assert loss == {FLOW_OF_A: [(1100 * MS, 1135 * MS), (1500 * MS + 1, 2000 * MS)]}
    assert groups[TOGETHER].held.holder.tolist() == [A], "the other silence ends in a loss"
    assert {flow: pairs(times) for flow, times in groups[ELSEWHERE].loss.items()} == {FLOW_OF_C: [(MS, 10 * MS)]}


def test_a_loss_that_only_tcp_tells_of_explains_it_alone() -> None:
    said = samples((FLOW_OF_B, 1950, 0), (FLOW_OF_B, 2010, 1))
    found = make_account(sources({A: ms((1000, 2000))}, resends=said))
    assert {flow: pairs(times) for flow, times in found.groups[TOGETHER].loss.items()} == {
        FLOW_OF_B: [(1500 * MS + 1, 2000 * MS)]
    }
    assert (A, 1500, 2000, LOSS, -1) in rows(found.waiting)


def test_only_its_members_are_stopped_and_have_bytes_at_unknown_times() -> None:
    times = {A: ms((1600, 1610)), C: ms((1700, 1710))}
    group = make_account(sources({A: ms((1000, 2000))}, unplaced=times, stopped=times)).groups[TOGETHER]
    assert pairs(group.unplaced) == [(1600 * MS, 1610 * MS)]
    assert list(group.stopped) == [A]


def test_its_links_are_full_where_its_members_wait() -> None:
    """Two milliseconds are too short to be full but for who waits for just them: A, not C."""
    found = sources(
        {A: ms((1600, 1602)), C: ms((1640, 1642))},
        lanes=lanes({(A, CARD, TRANSMIT): packets(1000), (C, OTHER, TRANSMIT): packets(1000)}),
        sides=[side(CARD, busy((1600, 1602), (1640, 1642))), side(OTHER, busy((1000, 2000)))],
    )
    groups = make_account(found).groups
    assert [each.side.link for each in groups[TOGETHER].bottlenecks] == [CARD]
    assert pairs(groups[TOGETHER].bottlenecks[0].full) == [(1600 * MS, 1602 * MS)]
    assert [each.side.link for each in groups[ELSEWHERE].bottlenecks] == [OTHER]


def test_a_link_has_sides_if_its_line_rate_is_known_at_some_time_of_the_recording() -> None:
    uncounted = LinkKey(9, "eth0")
    moved = {(A, link, TRANSMIT): packets(100) for link in (OTHER, PORT, CARD, uncounted)}
    briefly = RateOverTime(np.array([-(1 << 62), 0, 500 * MS]), np.array([np.nan, 1e9, np.nan]))
    unknown, known = (RateOverTime(np.zeros(1, np.int64), np.array([bps])) for bps in (np.nan, 1e10))
    rates = {(PORT, TRANSMIT): unknown, (uncounted, RECEIVE): known}
    rates |= {(CARD, way): briefly for way in (TRANSMIT, RECEIVE)}
    counted = {CARD: (np.array([0, 300 * MS]), np.array([0, 25_001_000]), np.array([0, 12_500_000]))}
    found = link_sides(lanes(moved), rates, counted, ms((0, 2000)))
    assert [(each.link, each.direction, each.line_rate_bps) for each in found] == [
        (CARD, TRANSMIT, 1e9),
        (CARD, RECEIVE, 1e9),
        (uncounted, RECEIVE, 1e10),
    ]
    assert [each.others.busy_ns.tolist() for each in found] == [[200 * MS], [100 * MS], []]
    assert [len(each.own.busy) for each in found] == [1, 0, 0]


def used(amounts: list[tuple[int, LinkKey, int, int]]) -> set[LinkKey]:
    return links_of([A, B], lanes({(pid, link, way): packets(0, wire=wire) for pid, link, way, wire in amounts}))


def test_a_link_matters_from_a_hundredth_of_what_the_busiest_one_carries_both_ways() -> None:
    both = [(A, CARD, TRANSMIT, 15_000), (A, CARD, RECEIVE, 4950)]
    assert used([*both, (B, OTHER, TRANSMIT, 200)]) == {CARD, OTHER}
    assert used([*both, (B, OTHER, TRANSMIT, 199)]) == {CARD}
    assert used([(A, CARD, TRANSMIT, 20_000), (B, OTHER, TRANSMIT, 200)]) == {CARD, OTHER}, "exactly that"
    assert used([(A, CARD, TRANSMIT, 100), (C, OTHER, TRANSMIT, 10**6)]) == {CARD}, "another's bytes do not count"
    assert used([]) == set()


def test_when_each_process_s_payload_last_moved_before_a_collective_was_done() -> None:
    found = sources({A: ms((1000, 2100)), D: ms((1000, 2100))})
    moved_ns = on_wire(found, activities_of(found)).moved_ns
    never = np.iinfo(np.int64).min
    assert moved_ns.tolist() == [2_000_250_000, 2000 * MS, never, never], "C was not seen at all, D only to wait"


def test_the_account_is_of_the_iterations_and_what_lies_around_them_is_kept_beside_it() -> None:
    waits = {A: ms((1000, 2000))}
    found = make_account(sources(waits, exposed={A: ms((1200, 1300))}, around={A: ms((1200, 1400))}))
    assert (rows(found.waiting), rows(found.around)) == ([(A, 1200, 1300, HOST, A)], [(A, 1200, 1400, HOST, A)])


def of_ports(**changes: Any) -> Account:
    """A and B wait for what is no collective from 1000 to 1100 ms; a port of A moves something until 1060 ms."""
    moved = {
        (A, PORT, TRANSMIT): packets(*range(1000, 1060)),
        (A, CARD, TRANSMIT): packets(1000),
        (C, LinkKey(9, "mlx5_0/1"), TRANSMIT): packets(1000),
    }
    return make_account(
        sources(
            {pid: ms((1000, 1100)) for pid in (A, B)},
            collectives(A, [], []),
            lanes=lanes(moved, {PORT: 10 * MS, LinkKey(9, "mlx5_0/1"): 10 * MS}),
            sides=[side(link, busy((1000, 1040))) for link in (PORT, CARD, LinkKey(9, "mlx5_0/1"))],
            **changes,
        )
    )


def test_what_ports_moved_is_explained_by_those_of_who_waits() -> None:
    found = of_ports()
    assert [each.side.link for each in found.groups[WITHOUT_COLLECTIVE].bottlenecks] == [PORT], "no card, nor C's port"
    assert rows(found.waiting) == [
        (A, 1000, 1040, LINK_FULL, -1),
        (A, 1040, 1060, TRANSPORT, -1),
        (A, 1060, 1100, UNSEEN, -1),
        (B, 1000, 1100, UNSEEN, -1),
    ]


def test_where_it_is_not_known_when_a_port_s_bytes_passed_nothing_explains_it() -> None:
    found = of_ports(unplaced={A: ms((1030, 1050)), C: ms((1000, 1100))})
    assert pairs(found.groups[WITHOUT_COLLECTIVE].unplaced) == [(1030 * MS, 1050 * MS)]
    assert rows(found.waiting)[:3] == [
        (A, 1000, 1030, LINK_FULL, -1),
        (A, 1030, 1050, UNSEEN, -1),
        (A, 1050, 1060, TRANSPORT, -1),
    ]


def test_without_ports_there_is_nothing_that_they_explain() -> None:
    assert set(make_account(sources({A: ms((1000, 2000))})).groups) == {TOGETHER, ELSEWHERE}


def test_activity_is_payload_for_the_first_time_or_again_and_no_mere_acknowledgement() -> None:
    acknowledged = packets(1, 2, payload=0, wire=66)
    again, new = packets(5.25, payload=0, resent=1, wire=67), packets(3.5, payload=1, wire=67)
    found = activity([acknowledged, again, None, new])
    assert (found.first_ns.tolist(), found.last_ns.tolist()) == ([3_500_000, 5_250_000],) * 2


def test_a_silence_that_ends_while_a_flow_has_timed_out_is_loss() -> None:
    """Its own device does not take what it sends again, so TCP does not count it."""
    said = samples((FLOW_OF_B, 1500, 0), (FLOW_OF_B, 2000, 0))
    for timed_out, expected in ((False, 2), (True, 1)):
        times_out = replace(said, timed_out=np.array([False, timed_out]))
        group = make_account(sources({A: ms((1000, 2000))}, resends=times_out)).groups[TOGETHER]
        assert len(group.held.holder) == expected
        assert list(group.loss) == [FLOW_OF_B] * timed_out
