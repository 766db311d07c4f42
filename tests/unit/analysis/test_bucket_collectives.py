"""Which collectives carry a bucket, whatever its communication hook does."""

from __future__ import annotations

import numpy as np
import pytest

from netprof.analysis.events.buckets import Buckets, find_buckets
from netprof.analysis.events.collectives import find_collectives
from netprof.analysis.events.iterations import find_iterations
from netprof.analysis.tables.columns import UNKNOWN
from netprof.analysis.tables.marks import Marks, read_marks
from netprof.schema import CollectiveKind
from netprof.schema import MarkKind as K

PID, MAIN, FIRST, SECOND, MS = 7, 7, 8, 9, 1_000_000
Row = tuple[float, int, int, int, int, int]
"""Time in ms, kind, arg0, arg1, arg2, tid."""


def at(time: float, kind: int, *arguments: int, tid: int = MAIN) -> Row:
    arg0, arg1, arg2 = (*arguments, 0, 0, 0)[:3]
    return (time, int(kind), arg0, arg1, arg2, tid)


def marks(rows: list[Row]) -> Marks:
    names = ("kind", "arg0", "arg1", "arg2", "tid")
    columns = {name: np.array([row[index + 1] for row in rows], np.int64) for index, name in enumerate(names)}
    times = np.array([round(row[0] * MS) for row in rows], np.int64)
    return read_marks(columns | {"time_ns": times, "pid": times * 0 + PID})


def collective(
    posted: float, begin: float, end: float, elements: int, work: int = 0xF0, by: int = MAIN, on: int = FIRST
) -> list[Row]:
    return [
        at(posted, K.COLLECTIVE_ENQUEUE, work, tid=by),
        at(begin, K.COLLECTIVE_BEGIN, work, tid=on),
        at(begin + 0.1, K.COLLECTIVE_SIZE, elements, 4, CollectiveKind.ALL_REDUCE, tid=on),
        at(end, K.COLLECTIVE_END, work, tid=on),
    ]


def step(*more: Row) -> list[Row]:
    """Buckets launched at 20 and 40 ms, the wait from 45 to 100 ms, unpacked at 95 and 99."""
    return [
        at(0, K.DDP_FORWARD, 1),
        at(10, K.DDP_BACKWARD, 1),
        at(20, K.BUCKET_LAUNCH, 71, 1),
        at(40, K.BUCKET_LAUNCH, 72, 1),
        at(45, K.DDP_WAIT, 1),
        at(95, K.BUCKET_DONE, 71, 1),
        at(99, K.BUCKET_DONE, 72, 1),
        at(100, K.DDP_STATS, 1),
        *more,
    ]


def find(rows: list[Row]) -> Buckets:
    """The buckets of an iteration from 1000 to 2000 ms, beside the same in the ones around it."""
    everything = marks([(row[0] + 1000 * number, *row[1:]) for number in range(3) for row in rows])
    iterations = find_iterations(everything).iterations
    buckets = find_buckets(everything, iterations, find_collectives(everything).collectives)
    return buckets.where(buckets.iteration == 1)


def times_ms(buckets: Buckets) -> list[tuple[float, float]]:
    begin, end = (np.round(times / MS - 1000, 3).tolist() for times in (buckets.begin_ns, buckets.end_ns))
    return list(zip(begin, end, strict=True))


PLAIN = [*collective(20.1, 21, 60, 100), *collective(40.1, 41, 90, 50, work=0xF1, on=SECOND)]


def test_a_bucket_is_carried_by_what_is_posted_for_it() -> None:
    found = find(step(*PLAIN))
    assert times_ms(found) == [(21, 60), (41, 90)]
    assert found.bytes.tolist() == [400, 200]
    assert found.from_collective.tolist() == [1, 1]


def test_an_address_that_is_used_again_is_another_work() -> None:
    rows = [*collective(20.1, 21, 39, 100), *collective(40.1, 41, 90, 50), *collective(150, 151, 160, 7)]
    found = find(step(*rows))
    assert times_ms(found) == [(21, 39), (41, 90)]
    assert found.bytes.tolist() == [400, 200]


def test_a_wait_for_a_later_work_at_the_same_address_is_none_for_this_one() -> None:
    """Nor where that is not seen to end: the recording does so first."""
    rows = step(*PLAIN)
    again = [at(2950, K.COLLECTIVE_ENQUEUE, 0xF0), at(2951, K.WORK_WAIT, 0xF0)]
    everything = marks([(row[0] + 1000 * number, *row[1:]) for number in range(3) for row in rows] + again)
    iterations = find_iterations(everything).iterations
    buckets = find_buckets(everything, iterations, find_collectives(everything).collectives)
    assert len(buckets) == 4
    assert buckets.from_collective.all()


def test_the_exchange_of_which_parameters_were_used_is_of_no_bucket() -> None:
    used = [*collective(40.2, 91, 94, 12, work=0xF2), at(99.2, K.WORK_WAIT, 0xF2)]
    found = find(step(*PLAIN, *used))
    assert times_ms(found) == [(21, 60), (41, 90)]
    assert found.bytes.tolist() == [400, 200]


def test_synchronized_batch_normalization_in_the_backward_pass_is_of_no_bucket() -> None:
    statistics = [*collective(30, 61, 63, 3, work=0xF3), at(30.1, K.WORK_WAIT, 0xF3)]
    metric = [*collective(300, 301, 310, 1, work=0xF4), at(301, K.WORK_WAIT, 0xF4)]
    found = find(step(*PLAIN, *statistics, *metric))
    assert times_ms(found) == [(21, 60), (41, 90)]


@pytest.mark.parametrize("waits", [False, True])
def test_a_hook_with_a_small_all_reduce_of_its_own(waits: bool) -> None:
    """Where the hook waits for it, it is over before the bucket's begins; else it is a part of the bucket's."""
    small = collective(20.05, 20.1, 20.5, 1, work=0xF5)
    if waits:
        small.append(at(20.07, K.WORK_WAIT, 0xF5))
    bucket = [*collective(20.6, 21, 60, 100), *PLAIN[4:]]
    found = find(step(*small, *bucket))
    assert times_ms(found) == [((21 if waits else 20.1), 60), (41, 90)]
    assert found.bytes.tolist() == [400 if waits else 404, 200]


def test_a_hook_that_waits_for_its_own_all_reduce_of_the_bucket() -> None:
    rows = [*PLAIN, at(20.2, K.WORK_WAIT, 0xF0), at(40.2, K.WORK_WAIT, 0xF1)]
    assert times_ms(find(step(*rows))) == [(21, 60), (41, 90)]


def test_such_a_hook_and_the_exchange_of_which_parameters_were_used() -> None:
    rows = [*PLAIN, at(20.2, K.WORK_WAIT, 0xF0), at(40.2, K.WORK_WAIT, 0xF1)]
    used = [*collective(40.3, 91, 94, 12, work=0xF2), at(99.2, K.WORK_WAIT, 0xF2)]
    found = find(step(*rows, *used))
    assert times_ms(found) == [(21, 60), (41, 90)]
    assert found.bytes.tolist() == [400, 200]


def test_a_hook_whose_collectives_follow_one_another_on_other_threads() -> None:
    """As PowerSGD's: the next one is posted by the thread on which the one before it ended."""
    chain = [
        *collective(20.1, 21, 30, 10, work=0xF0, on=FIRST),
        *collective(30.5, 31, 50, 20, work=0xF6, by=FIRST, on=SECOND),
        *collective(50.5, 51, 80, 30, work=0xF7, by=SECOND, on=FIRST),
        *collective(40.1, 82, 90, 50, work=0xF1, on=SECOND),
    ]
    found = find(step(*chain))
    assert times_ms(found) == [(21, 80), (82, 90)]
    assert found.bytes.tolist() == [240, 200]


def test_a_hook_that_posts_nothing_ends_where_its_bucket_is_unpacked() -> None:
    found = find(step(*collective(40.1, 41, 90, 50)))
    assert times_ms(found) == [(20, 95), (41, 90)]
    assert found.bytes.tolist() == [UNKNOWN, 200]
    assert found.from_collective.tolist() == [0, 1]


def test_a_size_that_is_not_known_is_not_guessed() -> None:
    rows = [row for row in PLAIN if row[1] != K.COLLECTIVE_SIZE]
    found = find(step(*rows))
    assert times_ms(found) == [(21, 60), (41, 90)]
    assert found.bytes.tolist() == [UNKNOWN, UNKNOWN]


def test_without_marks_of_the_postings_buckets_and_all_reduces_go_by_order() -> None:
    rows = [row for row in PLAIN if row[1] != K.COLLECTIVE_ENQUEUE]
    assert times_ms(find(step(*rows))) == [(21, 60), (41, 90)]
    one_more = [row for row in collective(200, 46, 48, 3, on=10) if row[1] != K.COLLECTIVE_ENQUEUE]
    found = find(step(*rows, *one_more))
    assert times_ms(found) == [(20, 95), (40, 99)], "one more than buckets: not known which"
