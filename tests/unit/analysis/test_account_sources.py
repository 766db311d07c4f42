"""What the account is made from: which bytes went another way, which ports carried what, how likely chance is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.synthetic import collectives

from netprof.analysis.account import account, episodes
from netprof.analysis.account.account import Sources, went_another_way
from netprof.analysis.account.bottlenecks import others_served
from netprof.analysis.account.episodes import _by_size, _by_turns
from netprof.analysis.events.buckets import Buckets
from netprof.analysis.events.members import Members
from netprof.analysis.tables.columns import UNKNOWN
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.analysis.tables.link_history import RateOverTime
from netprof.analysis.wire.lanes import Lanes
from netprof.analysis.wire.served import NEVER
from netprof.schema import RECEIVE, TRANSMIT

A, B = 1, 2
MS = 10**6
PORT, CARD = LinkKey(7, "mlx5_0/1"), LinkKey(7, "eth0")


def spans(*pairs: tuple[int, int]) -> Intervals:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return merge(table[:, 0], table[:, 1])


def pairs(times: Intervals) -> list[tuple[int, int]]:
    return list(zip(times.begin_ns.tolist(), times.end_ns.tolist(), strict=True))


def members(count: int, ranks: int) -> Members:
    nothing = np.zeros(count, np.int64)
    return Members(nothing, nothing, nothing, nothing, nothing, nothing, nothing, np.full(count, ranks))


class Moved:
    """Lanes of processes that move so many bytes at an instant each, by process and way."""

    def __init__(self, **amounts: int) -> None:
        self._amounts = {("A" if name.startswith("a") else "B", name[2:]): n for name, n in amounts.items()}

    def of_process(self, pid: int, way: int) -> Any:
        amount = self._amounts.get(("A" if pid == A else "B", "sent" if way == TRANSMIT else "received"))
        if amount is None:
            return None
        return SimpleNamespace(payload_until=lambda at_ns: np.where(at_ns > 150, amount, 0))


@pytest.mark.parametrize(
    ("moved", "ranks", "size", "expected"),
    [
        ({"a_sent": 49}, 2, 1000, True),
        ({"a_sent": 50}, 2, 1000, False),
        ({"a_sent": 30, "a_received": 20}, 2, 1000, False),
        ({"a_sent": 30, "a_received": 19}, 2, 1000, True),
        ({"b_sent": 1000}, 2, 1000, True),
        ({}, 2, 1000, True),
        ({"a_sent": 70}, 4, 1000, True),  # four ranks send half as much again
        ({"a_sent": 75}, 4, 1000, False),
        ({"a_sent": 60}, UNKNOWN, 1000, False),  # two at least
        ({}, 2, 1, True),
        ({}, 2, UNKNOWN, False),
        ({}, 2, 0, False),
    ],
)
def test_what_hardly_any_byte_was_seen_of_went_another_way(
    moved: dict[str, int], ranks: int, size: int, expected: bool
) -> None:
    found = collectives(A, [100], [200], size=size)
    assert went_another_way(found, members(1, ranks), cast(Lanes, Moved(**moved))).tolist() == [expected]


def test_bytes_of_before_and_after_are_no_collective_s() -> None:
    found = collectives(A, [100, 160, 10], [200, 220, 90])
    assert went_another_way(found, members(3, 2), cast(Lanes, Moved(a_sent=900))).tolist() == [False, True, True]


class Lane(list[Any]):
    """Lanes of ports and cards: (process, link, busy)."""

    def __init__(self, *rows: tuple[int, LinkKey, Intervals]) -> None:
        super().__init__(
            (SimpleNamespace(pid=pid, link=link), RECEIVE, SimpleNamespace(busy=busy)) for pid, link, busy in rows
        )
        self.periods = {PORT: 10 * MS}


def test_only_a_process_s_own_ports_carry_what_it_waits_for() -> None:
    lanes = Lane(
        (A, PORT, spans((0, 10))), (A, CARD, spans((20, 30))), (B, PORT, spans((40, 50))), (A, PORT, spans((60, 70)))
    )
    sources = SimpleNamespace(lanes=lanes, waits=dict.fromkeys((A, B, 3), spans()))
    on_ports = account.on_ports(cast(Sources, sources))
    assert {pid: pairs(times) for pid, times in on_ports.items()} == {A: [(0, 10), (60, 70)], B: [(40, 50)]}


def hidden(waits: Intervals, posted: list[int], *buckets: tuple[int, int, int, int]) -> list[tuple[int, int]]:
    """Return when A waits for what no collective carries; buckets of (process, launch, end, from a collective)."""
    pid, launch, end, carried = np.array(buckets, np.int64).reshape(-1, 4).T
    nothing = np.zeros(len(pid), np.int64)
    sources = SimpleNamespace(
        buckets=Buckets(pid, nothing, launch, nothing, nothing, end, nothing, carried),
        collectives=collectives(A, posted, [at + 5 for at in posted]),
    )
    return pairs(account._without_collective(waits, A, cast(Sources, sources)))


def test_a_wait_before_which_nothing_was_posted_is_for_nothing_that_was_seen() -> None:
    waits = spans((100, 110), (200, 210), (300, 310))
    assert hidden(waits, [50, 250]) == [(200, 210)]
    assert hidden(waits, [105, 205, 305]) == [], "posted while it waits"
    assert hidden(waits, [110]) == [(100, 110), (300, 310)], "posted as the first wait was over"
    assert hidden(waits, []) == [(100, 110), (200, 210), (300, 310)]


def test_so_is_a_bucket_that_no_collective_carries() -> None:
    waits = spans((100, 110))
    assert hidden(waits, [50], (A, 10, 40, 0), (A, 60, 90, 1), (B, 92, 99, 0)) == [(10, 40)]
    assert hidden(waits, [], (A, 10, 40, 0)) == [(10, 40), (100, 110)]


@pytest.mark.parametrize(("changed_ms", "busy_ms"), [(60, 10), (95, 10), (105, 1)])
def test_a_rate_that_changes_is_that_of_the_middle_of_each_time(changed_ms: int, busy_ms: int) -> None:
    """1 Gbit/s at first, then a tenth of it: the middle between the samples at 50 and 150 ms is at 100."""
    rate = RateOverTime(np.array([-(1 << 62), changed_ms * MS]), np.array([1e9, 1e8]))
    times = np.array([0, 50 * MS, 150 * MS])
    found = others_served(times, np.array([0, 1_250_000, 1_250_000 + 125_000]), NEVER, rate)
    assert found.busy_ns.tolist() == [10 * MS, busy_ms * MS]


def test_how_likely_chance_is_by_turns() -> None:
    """Hoeffding's inequality, written down once more."""
    random = np.random.default_rng(1)
    value = random.exponential(size=(3, 40))
    first = np.maximum(np.arange(40) - 9, 0)
    sums = np.array([[value[one, first[k] : k + 1].sum() for k in range(40)] for one in range(3)])
    beyond = sums - sums.mean(axis=0)
    ranges = (value.max(axis=0) - value.min(axis=0)) ** 2
    expected = [
        [np.exp(-2 * max(beyond[one, k], 0) ** 2 / ranges[first[k] : k + 1].sum()) for k in range(40)]
        for one in range(3)
    ]
    assert np.allclose(_by_turns(value, beyond, first), expected)


@pytest.mark.parametrize("least_s", [0.0, 6.0, 1e9])
def test_how_likely_chance_is_by_size(least_s: float) -> None:
    """Vysochanskij and Petunin's, written down once more: among those that do not matter, if there are any."""
    random = np.random.default_rng(2)
    value = random.exponential(0.1, size=(4, 200))
    value[2] += 1.0
    first = np.maximum(np.arange(200) - 99, 0)
    count = (np.arange(200) - first + 1).astype(float)
    total = np.array([[value[one, first[k] : k + 1].sum() for k in range(200)] for one in range(4)])
    found = _by_size(value, total, count, np.full(200, least_s), first)
    for k in (99, 150, 199):
        window = value[:, first[k] : k + 1]
        for one in range(4):
            others = [each for each in range(4) if total[each, k] < least_s] or [e for e in range(4) if e != one]
            amounts = window[others].ravel()
            size = (window[one] ** 2).sum() / window[one].sum() - amounts.mean()
            chance = count[k] * 4 / 9 * amounts.var() / max(size, 1e-12) ** 2
            floor = 1 / (1 + 4 * count[k]) / 4 / 2
            assert found[one, k] == pytest.approx(max(chance, floor))


def test_nobody_is_surer_than_the_amounts_that_were_seen_allow() -> None:
    """Others that never hold anybody up do not vary: 3 x 50 amounts were seen, and there are two ways to be sure."""
    value = np.zeros((3, 50))
    value[0] = 1.0
    first, count = np.zeros(50, np.int64), np.arange(1.0, 51.0)
    found = _by_size(value, np.cumsum(value, axis=1), count, np.full(50, 0.5), first)
    assert found[0, 49] == pytest.approx(1 / (1 + 3 * 50) / 3 / 2)


def test_who_holds_up_for_just_enough_to_matter_is_none_of_the_others() -> None:
    """Of 0, 1 and 2 s in a window the last two matter from 1 s on: only the first one's amounts are the others'."""
    value = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    total, first, count = value.cumsum(axis=1), np.zeros(2, np.int64), np.array([1.0, 2.0])
    floor = 1 / (1 + 3 * 2) / 3 / 2
    assert _by_size(value, total, count, np.full(2, 1.0), first)[2, 1] == pytest.approx(floor), "which do not vary"
    chance = 2 * 4 / 9 * np.var([0.0, 0.0, 0.0, 1.0]) / (2.0 - 0.25) ** 2
    assert chance > floor
    assert _by_size(value, total, count, np.full(2, 1.01), first)[2, 1] == pytest.approx(chance)


def test_a_long_recording_is_looked_at_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    held_ns = random.integers(0, 20 * MS, (3, 3000))
    held_ns[1, 500:700] += 90 * MS
    held_ns[2, 2900:] += 90 * MS
    begin_ns = np.arange(3000) * 200 * MS
    whole = episodes.episodes(held_ns, begin_ns, begin_ns + 200 * MS)
    assert {each.one for each in whole} == {1, 2}
    monkeypatch.setattr(episodes, "_AT_ONCE", 64)
    assert episodes.episodes(held_ns, begin_ns, begin_ns + 200 * MS) == whole
