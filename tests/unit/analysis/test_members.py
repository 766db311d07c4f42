"""Which collective of one rank is which of another's, from sequences whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.synthetic import BUCKETS, ELEMENTS, ITERATION_NS, MS, START_NS, Job, collectives

from netprof.analysis import analyze
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.job_ranks import CommunicatorRanks, with_communicator_ranks
from netprof.analysis.events.matching import partners
from netprof.analysis.events.members import UNTOLD_NS, find_members
from netprof.analysis.tables.columns import Int64, concatenate
from netprof.schema import ALL_RANKS, CollectiveKind
from netprof.schema import MarkKind as K
from netprof.trace import TraceReader

GROUP, OTHER = 0x1000, 0x2000


def ring(count: int, late: Int64 | None = None, period: int = 100) -> tuple[Int64, Int64, Int64]:
    """When two ranks post and are done: rank 1 posts `late` after rank 0, both are done 50 after that."""
    at = np.arange(count) * period
    second = at + (np.zeros(count, np.int64) if late is None else late)
    return at, second, np.maximum(at, second) + 50


def test_the_k_th_is_the_k_th():
    first, second, end = ring(600)
    assert partners(collectives(1, first, end), collectives(2, second, end)).tolist() == list(range(600))


@pytest.mark.parametrize("lost", [[0], [0, 1, 2], [300], [10, 11, 400], [599]])
@pytest.mark.parametrize("overlapping", [False, True])
def test_what_one_rank_did_not_see_shifts_the_others_no_longer_than_needed(lost, overlapping):
    first, second, end = ring(600)
    end = end + 60 if overlapping else end  # two are under way at a time, all of one size
    kept = np.setdiff1d(np.arange(600), lost)
    found = partners(collectives(1, first, end), collectives(2, second[kept], end[kept] + 1))
    assert found[kept].tolist() == list(range(len(kept)))
    assert (found[lost] == -1).all()


@pytest.mark.parametrize("behind", [5, 26, 60, 91])
@pytest.mark.parametrize("buckets", [2, 4, 8])
@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_rank_may_stay_behind_by_more_than_the_time_between_two(behind, buckets, lost):
    """A link of one rank is narrow: what was sent waits before it, and the others are done long before."""
    at = (np.arange(30)[:, None] * 320 + np.arange(buckets)).reshape(-1) * 1000
    end = (np.arange(30)[:, None] * 320 + np.arange(buckets) * 26 + 100).reshape(-1) * 1000
    end = end + np.random.default_rng(1).integers(-1000, 1000, len(end))
    early, late = collectives(1, at, end), collectives(2, at + behind * 1000, end + behind * 1000)
    numbers = np.arange(len(at))
    assert partners(early, late.where(numbers[lost:]))[lost:].tolist() == numbers[: len(at) - lost].tolist()
    assert partners(late.where(numbers[lost:]), early).tolist() == numbers[lost:].tolist()


def test_in_an_all_to_all_each_rank_may_send_another_amount():
    first, second, end = ring(600)
    sizes = np.random.default_rng(1).integers(1, 1 << 20, (2, 600))
    pair = [collectives(1 + rank, at, end, sizes[rank]) for rank, at in enumerate((first, second))]
    kind = np.full(600, int(CollectiveKind.ALL_TO_ALL))
    assert partners(*(replace(each, kind=kind) for each in pair)).tolist() == list(range(600))
    assert (partners(*pair) == -1).mean() > 0.9


def test_others_sizes_and_kinds_are_other_collectives():
    first, second, end = ring(50)
    mine, other = collectives(1, first, end, np.arange(50)), collectives(2, second, end, np.arange(50) % 49)
    assert partners(mine, other).tolist() == [*range(49), -1]


def test_the_last_one_to_post_is_named():
    late = np.tile([0, 30, -30], 20)
    first, second, end = ring(60, late)
    both = concatenate(Collectives, [collectives(7, first, end, number=0), collectives(8, second, end, number=1)])
    found = find_members(both, {7: 0, 8: 1}, 2, {})
    assert found.seen.tolist() == [2] * 120
    assert found.ready_ns[:60].tolist() == np.maximum(first, second).tolist()
    assert (found.last_pid[:60][late != 0] == np.where(late > 0, 8, 7)[late != 0]).all()
    assert (found.event[:60] == found.event[60:]).all()


def test_pairs_that_look_alike_are_told_by_whom_they_exchange_bytes_with():
    """Four ranks in two pairs, all with the same sizes at nearly the same times."""
    first, second, end = ring(100)
    views = [
        collectives(pid, at + shift, end + shift, number=number, group=0x100 * pid)
        for pid, at, shift, number in ((1, first, 0, 0), (2, first, 1, 0), (3, second, 1, 1), (4, second, 0, 1))
    ]
    traffic = {(1, 4): 1e6, (4, 1): 1e6, (2, 3): 1e6, (3, 2): 1e6, (1, 3): 10.0, (3, 1): 10.0}
    found = find_members(concatenate(Collectives, views), {}, None, traffic)
    of = {pid: int(found.group[100 * row]) for row, pid in enumerate((1, 2, 3, 4))}
    assert of[1] == of[4] != of[2] == of[3]
    assert (found.ranks == 2).all()


def test_rings_that_look_alike_are_told_by_whom_each_member_exchanges_bytes_with():
    """None exchanges anything with the one opposite: only together do the others tell of which ring that is."""
    rings = [[1, 3, 5, 7], [2, 4, 6, 8]]
    posted = np.arange(50) * 10
    views = [collectives(pid, posted, posted + 5, ranks=4, number=-1) for pid in range(1, 9)]
    traffic: dict[tuple[int, int], float] = {}
    for ring in rings:
        for one, other in zip(ring, [*ring[1:], ring[0]], strict=True):
            traffic |= {(one, other): 1e6, (other, one): 1e6}
    every = concatenate(Collectives, views)
    found = find_members(every, {}, None, traffic)
    groups = {frozenset(every.pid[found.group == number].tolist()) for number in np.unique(found.group)}
    assert groups == set(map(frozenset, rings))


def test_two_communicators_of_the_same_processes_stay_two():
    first, second, end = ring(80)
    views = [
        collectives(pid, at + shift, end + shift, size, group, number=number)
        for pid, at, number in ((1, first, 0), (2, second, 1))
        for group, size, shift in ((GROUP + pid, 1000, 0), (OTHER + pid, 8, 55))
    ]
    found = find_members(concatenate(Collectives, views), {1: 0, 2: 1}, 2, {})
    assert found.group[0] == found.group[160] != found.group[80] == found.group[240]
    assert (found.seen == 2).all()


def of_mpi(pid: int, kinds: list[CollectiveKind], shift: int = 0, **about: int) -> Collectives:
    """Blocking calls of one process, 100 ns apart and 50 long, of one communicator."""
    at = np.arange(len(kinds)) * 100
    calls = collectives(pid, at + shift, at + 50, **about)
    return replace(calls, kind=np.array([int(kind) for kind in kinds], np.int64))


def test_messages_on_a_communicator_do_not_hide_who_is_in_its_collectives() -> None:
    """A pipeline over MPI: what one sends the next receives, and all average now and then."""
    steps = {
        1: [CollectiveKind.SEND, CollectiveKind.ALL_REDUCE],
        2: [CollectiveKind.RECEIVE, CollectiveKind.ALL_REDUCE],
    }
    ranks = [of_mpi(pid, step * 40, 5 * pid, number=pid - 1) for pid, step in steps.items()]
    every = concatenate(Collectives, ranks)
    found = find_members(every, {1: 0, 2: 1}, 2, {})
    averages = every.kind == CollectiveKind.ALL_REDUCE
    assert (found.seen[averages] == 2).all()
    assert (found.last_pid[averages] == 2).all()
    assert (found.seen[~averages] == 1).all()
    assert (found.untold_ns[~averages] == UNTOLD_NS).all(), "nothing tells who the other one is, nor when it came"
    groups = [set(found.group[(every.pid == pid) & ~averages].tolist()) for pid in (1, 2)]
    assert groups == [{1}, {2}]


def test_workers_that_all_receive_from_one_do_not_wait_for_each_other() -> None:
    receives = [CollectiveKind.RECEIVE] * 40
    every = concatenate(Collectives, [of_mpi(pid, receives, 5 * pid, ranks=3, number=pid) for pid in (1, 2)])
    found = find_members(every, {1: 1, 2: 2}, 3, {})
    assert (found.seen == 1).all()
    assert found.last_pid.tolist() == every.pid.tolist()


def test_a_communicator_at_the_address_of_one_that_was_freed_is_another() -> None:
    """Of four, then of two."""
    first, second, end = ring(40)
    views = [collectives(pid, at, end, ranks=4, number=pid - 1) for pid, at in ((1, first), (2, second))]
    views += [
        collectives(pid, at + 10_000, end + 10_000, ranks=2, number=pid - 1) for pid, at in ((1, first), (2, second))
    ]
    found = find_members(concatenate(Collectives, views), {}, None, {})
    assert found.ranks.tolist() == [4] * 80 + [2] * 80
    assert set(found.group[:80].tolist()).isdisjoint(found.group[80:].tolist())


def test_a_member_that_was_not_recorded_is_missing():
    first, _, end = ring(30)
    found = find_members(collectives(1, first, end, ranks=4, number=2), {1: 2}, 4, {})
    assert (found.ranks == 4).all()
    assert (found.seen == 1).all()
    assert found.ready_ns.tolist() == first.tolist()


def test_without_groups_all_are_of_the_whole_job():
    first, second, end = ring(30)
    views = [collectives(pid, at, end, group=-1, ranks=-1, number=-1) for pid, at in ((1, first), (2, second))]
    found = find_members(concatenate(Collectives, views), {}, None, {})
    assert (found.seen == 2).all()


@pytest.mark.slow
@given(st.integers(2, 5), st.integers(1, 60), st.randoms(use_true_random=False))
def test_any_number_of_ranks_is_one_communicator(ranks, count, random):
    at = np.cumsum([random.randint(60, 200) for _ in range(count)])
    posted = np.array([[t + random.randint(0, 40) for t in at] for _ in range(ranks)])
    end = posted.max(axis=0) + 10
    views = [collectives(10 + r, posted[r], end + r % 3, ranks=ranks, number=r) for r in range(ranks)]
    found = find_members(concatenate(Collectives, views), {}, None, {})
    assert (found.seen == ranks).all()
    assert (found.ready_ns.reshape(ranks, count) == posted.max(axis=0)).all()


def said(*rows: tuple[int, int, int]) -> dict[str, Int64]:
    """Marks that say (pid, ranks of the communicator, number in it)."""
    table = np.array(rows, np.int64).reshape(-1, 3)
    kind = np.full(len(table), int(K.COLLECTIVE_GROUP))
    return {"time_ns": kind, "kind": kind, "pid": table[:, 0], "arg0": kind, "arg1": table[:, 1], "arg2": table[:, 2]}


@pytest.mark.parametrize(
    ("rows", "world", "ranks"),
    [
        ([(1, 2, 0), (2, 2, 1)], 2, {1: 0, 2: 1}),
        ([(1, 2, 0), (1, 4, 3), (2, 4, 1)], 4, {1: 3, 2: 1}),
        ([(1, 2, 0), (2, 2, 0), (3, 2, 1)], None, {}),  # pairs: their numbers are no ranks
        ([(1, 4, 0), (2, 2, 1)], None, {}),  # one says more than the other
        ([(1, 1, 0)], None, {}),
        ([(1, 2, 0), (2, 2, 1), (3, 1, 0)], None, {}),  # one is in none with the others
        ([(1, 2, 0), (2, 2, 1), (2, 2, 0)], None, {}),
        ([(1, 3, 0), (1, 3, 1), (2, 3, 2)], 3, {2: 2}),  # a process with two GPUs is two ranks
        ([(1, ALL_RANKS, 0), (2, 0, 0), (3, 2, 2), (4, 2, -1)], None, {}),
        ([], None, {}),
    ],
)
def test_ranks_are_numbers_in_what_can_be_the_whole_job(rows, world, ranks):
    named = CommunicatorRanks()
    named.add(said(*rows))
    assert (named.world_size, named.ranks()) == (world, ranks)


def created(*rows: tuple[int, ...]) -> dict[str, Int64]:
    """Marks of calls that create communicators: a row is (pid, tid, time, kind, three arguments)."""
    names = ("pid", "tid", "time_ns", "kind", "arg0", "arg1", "arg2")
    return dict(zip(names, np.array(rows, np.int64).T, strict=True))


SIZE, NUMBER = int(K.NCCL_COMM_INIT), int(K.NCCL_COMM_RANK)


@pytest.mark.parametrize(
    ("rows", "ranks"),
    [
        ([(1, 1, 500, SIZE, 2, 0xA, 0), (1, 1, 900, NUMBER, 1, 77, 0xA), (2, 2, 7, NUMBER, 0, 77, 0xB)], {1: 1}),
        ([(1, 1, 900, SIZE, 2, 0xA, 0), (1, 1, 500, NUMBER, 1, 77, 0xA)], {1: 1}),
        ([(1, 1, 500, SIZE, 2, 0xA, 0), (1, 1, 900, NUMBER, 1, 77, 0xB)], {}),  # of another communicator
        ([(1, 1, 500, SIZE, 2, 0xA, 0), (1, 3, 900, NUMBER, 1, 77, 0xA)], {}),  # in another thread
        ([(1, 1, 500, SIZE, 2, 0xA, 0), (1, 1, 9 * MS, NUMBER, 1, 77, 0xA)], {}),  # another call
        ([(1, 1, 500, SIZE, 2, 0xA, 0), (1, 1, 900, NUMBER, 2, 77, 0xA)], {}),  # no number of one of two
        (
            [
                (1, 1, 500, SIZE, 4, 0xA, 0),  # whose other half was lost
                (1, 1, 5 * MS, SIZE, 2, 0xA, 0),
                (1, 1, 5 * MS + 1, NUMBER, 0, 77, 0xA),
            ],
            {1: 0},
        ),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_ranks_are_told_by_the_calls_that_create_communicators(rows, ranks, at_once):
    named = CommunicatorRanks()
    for part in [rows] if at_once else sorted([[row] for row in rows], key=lambda part: part[0][2]):
        named.add(created(*part))
    assert named.ranks() == ranks


def test_what_is_known_is_not_contradicted():
    assert with_communicator_ranks({1: 0}, {1: 0, 2: 1}) == {1: 0, 2: 1}
    assert with_communicator_ranks({1: 5}, {1: 0, 2: 1}) == {1: 5}
    assert with_communicator_ranks({3: 1}, {1: 0, 2: 1}) == {3: 1}


def test_bandwidths_are_from_when_the_last_rank_has_asked(tmp_path):
    job = Job(ranks=2)
    for step in range(11):
        for rank in (0, 1):
            job.step(rank, START_NS + step * ITERATION_NS)
    late = 20 * MS  # rank 1 asks for its second bucket that much later
    at = BUCKETS[1][1]
    job.marks = [
        (m[0] + late, *m[1:]) if m[1] == 101 and (m[0] - START_NS) % ITERATION_NS in (at, at + 1) else m
        for m in job.marks
    ]
    evidence = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).evidence
    second = evidence.together.where((evidence.together.pid == 100) & (evidence.together.bytes == 4 * ELEMENTS[1]))
    assert ((second.begin_ns - START_NS) % ITERATION_NS == at + late).all()
    assert (second.duration_ns == BUCKETS[1][2] - at - late).all()
