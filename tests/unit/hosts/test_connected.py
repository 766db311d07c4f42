"""Which recordings are of one job, by the connections that join them and by what speaks against it."""

from __future__ import annotations

from collections.abc import Sequence

from netprof.analysis.hosts.connected import Against, OneJob, of_one_job
from netprof.analysis.hosts.host_streams import Ends

ALL = "abcdefgh"


def ends(*peers: str, of: str) -> set[Ends]:
    """Connections from a host to some others, each at a port of their own."""
    return {((of, ord(peer)), (peer, ord(of))) for peer in peers}


def judged(hosts: Sequence[set[Ends]], ranks: Sequence[int], same: Sequence[tuple[int, int]] = ()) -> OneJob:
    """Judge recordings, of each of which the rank is known; `same` are those that have the same processes."""

    def against(number: int, others: Sequence[int]) -> Against | None:
        for other in others:
            if (other, number) in same:
                return Against(f"as {ALL[other]}", of_job=False)
            if ranks[other] == ranks[number]:
                return Against(f"rank {ranks[number]} as {ALL[other]}", of_job=True)
        return None

    return of_one_job(hosts, ALL[: len(hosts)], against)


def test_hosts_of_two_jobs_are_told_apart_by_their_connections():
    """However they are called, the first one's job is taken."""
    hosts = [ends("c", "d", of="a"), ends("e", of="b"), ends("a", of="c"), ends("a", of="d"), ends("b", of="e")]
    found = judged(hosts, [0, 3, 1, 3, 0])
    assert found.kept == [0, 2, 3]
    assert found.left_out == {1: "rank 3 as d", 4: "rank 0 as a"}
    assert found.alone == []


def test_one_that_fits_is_left_out_with_those_it_is_joined_to():
    hosts = [ends("c", of="a"), ends("d", of="b"), ends("a", of="c"), ends("b", of="d")]
    found = judged(hosts, [0, 2, 1, 0])
    assert found.kept == [0, 2]
    assert found.left_out == {1: "connections join it to d; of that one: rank 0 as a", 3: "rank 0 as a"}


def test_by_way_of_others():
    hosts = [ends("b", of="a"), ends("a", "c", of="b"), ends("b", of="c"), set()]
    found = judged(hosts, [0, 1, 2, 2])
    assert found.kept == [0, 1, 2]
    assert found.left_out == {3: "rank 2 as c"}


def test_without_connections_the_first_ones_are_taken():
    found = judged([set(), set(), set()], [0, 1, 0])
    assert (found.kept, found.left_out, found.alone) == ([0, 1], {2: "rank 0 as a"}, [])


def test_a_host_that_no_connection_joins_is_kept_and_told_of():
    found = judged([ends("b", of="a"), ends("a", of="b"), ends("x", of="c")], [0, 1, 2])
    assert (found.kept, found.alone) == ([0, 1, 2], [2])
    assert found.notes("abc") == ["no connection joins c to a, as some join others: is it of the same job?"]
    assert judged([ends("b", of="a"), ends("a", of="b")], [0, 1]).notes("ab") == []


def test_the_same_host_again_is_left_out_alone():
    """It has the same connections; nothing is said of the others that they join it to."""
    hosts = [ends("b", of="a"), ends("a", of="b"), ends("a", of="b")]
    found = judged(hosts, [0, 1, 1], same=[(1, 2)])
    assert found.kept == [0, 1]
    assert found.left_out == {2: "as b"}


def test_what_a_host_says_to_itself_joins_it_to_nobody():
    to_itself = {(("lo", 1), ("lo", 2)), (("lo", 2), ("lo", 1))}
    found = judged([to_itself, to_itself, to_itself], [0, 1, 0])
    assert (found.kept, found.alone) == ([0, 1], [])


def test_the_first_one_may_be_of_two_runs():
    """What conflicts within the first one's own set is left out one by one."""
    hosts = [ends("b", of="a"), ends("a", of="b"), ends("a", of="b")]
    found = judged(hosts, [0, 1, 1])
    assert found.kept == [0, 1]
    assert found.left_out == {2: "rank 1 as b"}
