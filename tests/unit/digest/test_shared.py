"""Which communicators of different hosts' processes are one, told by what digests say of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from support.synthetic import collectives

from netprof.analysis.digest.shared_communicators import Fragment, Fragments, ViewKey, exchanged, find_shared, flows_of
from netprof.analysis.digest.ways import WayOut
from netprof.analysis.events.members import communicators, views_of
from netprof.analysis.hosts.numbers import MOST_PIDS
from netprof.analysis.tables.columns import UNKNOWN

_MATES = ({0, 3 * MOST_PIDS}, {MOST_PIDS, 2 * MOST_PIDS})
STEPS = 1000 * np.arange(40)


def fragment(host: int, place: int = 0, *, rows: int = 40, later: int = 0, ranks: int = 2, number: int = 0) -> Fragment:
    """A communicator of a process of a host that does the same as all others, so much later."""
    pid = host * MOST_PIDS + place
    begin = STEPS + later
    sample = collectives(pid, begin, begin + 500, group=7 + place, ranks=ranks, number=number)
    return Fragment(ViewKey(pid, int(sample.backend[0]), 7 + place), ranks, number, rows, sample)


def connected(*pairs: tuple[int, int]) -> dict[str, tuple[int, float]]:
    """Connections between hosts' first processes."""
    flows: dict[str, tuple[int, float]] = {}
    for port, (one, other) in enumerate(pairs):
        near, far = f"10.0.0.{one}:{port}", f"10.0.0.{other}:{port}"
        flows |= {f"{near} → {far}": (one * MOST_PIDS, 1.0), f"{far} → {near}": (other * MOST_PIDS, 1.0)}
    return flows


def hosts(found: Sequence[Sequence[Fragment]]) -> list[list[int]]:
    return [sorted(each.key.host for each in own) for own in found]


def test_who_is_connected_is_of_one():
    views = tuple(fragment(host, number=host // 2) for host in range(4))
    assert hosts(find_shared(Fragments(views, connected((0, 3), (1, 2))))) == [[0, 3], [1, 2]]
    assert hosts(find_shared(Fragments(views, connected((0, 2), (1, 3))))) == [[0, 2], [1, 3]]


def test_of_a_ring_all_are_of_one():
    views = tuple(fragment(host, ranks=4, number=host // 2) for host in range(8))
    views = tuple(Fragment(v.key, 4, UNKNOWN, v.rows, v.sample) for v in views)
    rings = connected((0, 7), (7, 2), (2, 5), (5, 0), (1, 6), (6, 3), (3, 4), (4, 1))
    assert hosts(find_shared(Fragments(views, rings))) == [[0, 2, 5, 7], [1, 3, 4, 6]]


@pytest.mark.parametrize("numbered", [True, False])
def test_nothing_is_guessed(numbered):
    """Of two pairs without connections each member may be of either; of one pair all that is left is the other one."""

    def views(hosts: int) -> tuple[Fragment, ...]:
        return tuple(fragment(host, number=host % 2 if numbered else UNKNOWN) for host in range(hosts))

    assert hosts(find_shared(Fragments(views(2), {}))) == [[0, 1]]
    assert find_shared(Fragments(views(4), {})) == ()
    assert find_shared(Fragments(views(3), {})) == ()
    assert hosts(find_shared(Fragments(views(4), connected((0, 3))))) == [[0, 3], [1, 2]], (
        "the others are all that is left"
    )


def test_bytes_tell_more_than_that_there_is_a_connection():
    views = tuple(fragment(host, number=host // 2) for host in range(4))
    flows = connected((0, 2), (0, 3), (1, 2), (1, 3))
    little = {flow: (pid, 1.0 if {pid, int(flow.split(" → ")[1].split(":")[0][-1]) * MOST_PIDS} in _MATES else 0.01)
              for flow, (pid, _) in flows.items()}  # fmt: skip
    assert hosts(find_shared(Fragments(views, little))) == [[0, 3], [1, 2]]


def test_what_is_of_one_host_alone_is_not_shared():
    views = (fragment(0), fragment(0, 1, number=1), fragment(1, later=20_000), fragment(1, 1, later=20_000, number=1))
    assert find_shared(Fragments(views, {})) == ()


def test_the_member_with_the_most_collectives_is_the_first():
    views = (fragment(0, rows=40), fragment(1, rows=50, number=1))
    ((first, other),) = find_shared(Fragments(views, {}))
    assert (first.key.host, other.key.host) == (1, 0)


@pytest.mark.parametrize(("most", "told"), [(89, [30]), (90, [30, 60]), (29, [])])
def test_those_with_the_fewest_collectives_are_told_as_long_as_there_is_room(monkeypatch, most, told):
    monkeypatch.setattr("netprof.analysis.digest.shared_communicators.MOST_EVENTS", most)
    views = [fragment(host, rows=60, number=host) for host in (0, 1)]
    views += [fragment(host, rows=30, later=90_000, number=host - 2) for host in (2, 3)]
    assert [own[0].rows for own in find_shared(Fragments(tuple(views), {}))] == told


def test_connections_are_of_processes_that_both_ends_name():
    ways = (WayOut(5, "a → b", 700), WayOut(5, "c → d", 10), WayOut(6, "b → a", 30), WayOut(6, "e → e", 1))
    flows = flows_of(ways, 100)
    assert flows["a → b"] == (105, 700.0)
    assert exchanged(flows) == {(105, 106): 730.0, (106, 105): 730.0}


@pytest.mark.parametrize(("patience", "members"), [(None, 2), (4, 2), (3, 1)])
def test_after_so_many_that_do_not_fit_no_other_is_tried(patience, members):
    """Three communicators look like the first one's and are under way at other times; the fourth is the same."""
    every = [fragment(host, later=host % 4 * 10**6, number=host).sample for host in range(5)]
    views = [view for each in every for view in views_of(each, {}, None)]
    (first, *_) = communicators(views, {(0, host * MOST_PIDS): 9.0 - host for host in range(1, 5)}, patience=patience)
    assert len(first) == members
