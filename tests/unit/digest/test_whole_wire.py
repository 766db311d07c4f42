"""What the wires of all hosts did is the same whoever is put together with whom first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netprof.analysis.account.bottlenecks import LinkSide, bottlenecks
from netprof.analysis.account.group_times import NOBODY_HOLDS, least_silence_ns, silences
from netprof.analysis.digest.wires_of_job import (
    FullSides,
    Runs,
    Side,
    WirePart,
    _joined,
    _links_together,
    whole_wire,
    wires_together,
)
from netprof.analysis.tables.columns import concatenate
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals, covered_until, merge, union
from netprof.analysis.wire.served import NEVER, Served

MS = 1_000_000
LONG = 10 * MS  # longer than what a link has to be full for


def spans(*pairs: tuple[int, int]) -> Intervals:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return merge(table[:, 0], table[:, 1])


some_times = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), max_size=6).map(
    lambda pairs: spans(*((begin * LONG, (begin + length) * LONG) for begin, length in pairs))
)


def links(turn: Intervals, side: int, own: Intervals) -> FullSides:
    """What a host says whose one link is full now and then."""
    longest = covered_until(own, turn.end_ns) - covered_until(own, turn.begin_ns)
    best = np.where(longest > 0, side, -1)
    won = merge(turn.begin_ns[best >= 0], turn.end_ns[best >= 0])
    return FullSides(best, longest, own & won, NOTHING, own, NOTHING, NOTHING)


@pytest.mark.slow
@given(st.lists(some_times, min_size=1, max_size=4), st.data())
def test_the_link_that_holds_everybody_up_is_that_of_the_account(full, data):
    """In each turn that which is full for longest; where that one is not, any: as `bottlenecks` has it of a trace."""
    turn = Intervals(np.array([0, 20, 45]) * LONG, np.array([20, 45, 70]) * LONG)
    parts = [links(turn, Side(host, 0, 0).number, own) for host, own in enumerate(full)]
    order = data.draw(st.permutations(range(len(parts))))
    found = reduce(lambda a, b: _links_together(turn, [a, b]), [parts[number] for number in order])
    sides = [
        LinkSide(LinkKey(host, "eth0"), 0, 1e9, Served(own.begin_ns, own.end_ns, own.end_ns - own.begin_ns), NEVER)
        for host, own in enumerate(full)
    ]
    expected = bottlenecks(sides, turn, NOTHING)
    every = union([each.own for each in expected])
    longest = np.stack([covered_until(own, turn.end_ns) - covered_until(own, turn.begin_ns) for own in full])
    assert found.best_ns.tolist() == longest.max(axis=0).tolist()
    assert (found.any_own - every).total_ns == (every - found.any_own).total_ns == 0
    at_ns = np.arange(71) * LONG
    count = np.sum([covered_until(own, at_ns + LONG) - covered_until(own, at_ns) for own in full], axis=0)
    assert found.several.total_ns == LONG * (count > LONG).sum()


moves = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12), st.integers(0, 3), st.booleans()), max_size=12)


def runs(rows: Sequence[tuple[int, int, int, bool]]) -> Runs:
    table = np.array([(b * MS, (b + length) * MS, pid, sends) for b, length, pid, sends in rows], np.int64)
    return Runs(*table.reshape(-1, 4).T)


@given(moves, st.integers(0, 12))
def test_silences_are_those_of_the_account(rows, cut):
    """However many hosts the processes are on."""
    parts = [_joined(runs(rows[:cut])), _joined(runs(rows[cut:]))]
    together = _joined(concatenate(Runs, parts))
    found = held(together)
    every = runs(rows)
    sent = {pid: np.sort(every.begin_ns[(every.pid == pid) & (every.sends == 1)]) for pid in range(4)}
    expected = silences(sent, merge(every.begin_ns, every.end_ns), least_silence_ns(0, 0.0))
    assert found.held.times.begin_ns.tolist() == expected.times.begin_ns.tolist()
    assert found.held.times.end_ns.tolist() == expected.times.end_ns.tolist()
    for end, holder in zip(expected.times.end_ns.tolist(), found.held.holder.tolist(), strict=True):
        assert end in sent[holder], "who is said to hold everybody goes on at that moment"


def held(moved: Runs):
    nothing = FullSides(*(np.zeros(0, np.int64),) * 2, *(NOTHING,) * 5)
    return whole_wire(NOTHING, WirePart(nothing, nothing, moved, 0, NOTHING, {}, NOTHING, {}, {}), apart_ns=0.0)


def test_what_is_lost_unseen_is_no_busy_host():
    """A silence that ends while TCP of another host says that it sends again is that flow's."""
    nothing = FullSides(*(np.zeros(0, np.int64),) * 2, *(NOTHING,) * 5)
    ever = FullSides(np.array([-1]), np.array([0]), *(NOTHING,) * 5)
    moved = runs([(0, 10, 1, True), (50, 10, 1, True)])
    mine = WirePart(nothing, ever, moved, 0, NOTHING, {}, NOTHING, {}, {})
    its = WirePart(nothing, ever, runs([]), 3 * MS, spans((0, 5)), {7: spans((45 * MS, 55 * MS))}, NOTHING, {}, {})
    for parts in ([mine, its], [its, mine]):
        found = whole_wire(NOTHING, wires_together(NOTHING, parts), apart_ns=0.0)
        assert len(found.held.times) == len(NOBODY_HOLDS.times) == 0
        assert found.lost[7].total_ns == 40 * MS
        assert found.recovering.total_ns == 40 * MS + 5


def test_a_side_has_one_number():
    for side in (Side(0, 0, 0), Side(3, 5, 1), Side(1 << 20, 1000, 0)):
        assert Side.of(side.number) == side
