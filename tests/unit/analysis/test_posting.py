"""When the job asked for a collective, from marks whose answer is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from netprof.analysis.events.collectives import find_collectives
from netprof.analysis.events.horovod import horovod_transfers
from netprof.analysis.tables.marks import Marks, read_marks
from netprof.schema import CollectiveKind
from netprof.schema import MarkKind as K

WORK, OTHER_WORK = 0x1000, 0x2000
MAIN, WORKER = 10, 20


def marks(rows: Sequence[tuple[int, ...]]) -> Marks:
    """Build marks from (time, pid, tid, kind and maybe arg0, arg1, arg2)."""
    names = ("time_ns", "pid", "tid", "kind", "arg0", "arg1", "arg2")
    table = np.array([(*row, *[0] * (len(names) - len(row))) for row in rows], np.int64)
    return read_marks({name: table[:, i] for i, name in enumerate(names)})


def one(pid: int, begin: int, end: int, work: int, tid: int = WORKER) -> list[tuple[int, ...]]:
    return [(begin, pid, tid, K.COLLECTIVE_BEGIN, work), (end, pid, tid, K.COLLECTIVE_END, work)]


def test_a_collective_was_posted_when_its_work_was_put_into_the_queue():
    rows: list[tuple[int, ...]] = [(5, 1, MAIN, K.COLLECTIVE_ENQUEUE, WORK), *one(1, 8, 9, WORK)]
    found = find_collectives(marks(rows)).collectives
    assert (found.posted_ns.tolist(), found.posted_tid.tolist(), found.work.tolist()) == ([5], [MAIN], [WORK])


def test_an_address_that_is_used_again_is_another_work():
    rows: list[tuple[int, ...]] = [(5, 1, MAIN, K.COLLECTIVE_ENQUEUE, WORK), *one(1, 8, 9, WORK)]
    rows += [(15, 1, MAIN, K.COLLECTIVE_ENQUEUE, WORK), *one(1, 18, 19, WORK)]
    rows += one(1, 28, 29, WORK)  # its enqueuing is lost: the one before is not its own
    found = find_collectives(marks(rows)).collectives
    assert found.posted_ns.tolist() == [5, 15, 28]


def test_works_of_other_processes_with_the_same_address_are_others():
    rows: list[tuple[int, ...]] = [(5, 1, MAIN, K.COLLECTIVE_ENQUEUE, WORK), (6, 2, MAIN, K.COLLECTIVE_ENQUEUE, WORK)]
    rows += [*one(1, 8, 9, WORK), *one(2, 11, 12, WORK), *one(2, 13, 14, OTHER_WORK)]
    found = find_collectives(marks(rows)).collectives
    assert found.posted_ns.tolist() == [5, 6, 13]


def test_what_performs_at_once_is_posted_when_it_begins():
    found = find_collectives(marks([*one(1, 8, 9, 0, MAIN), (3, 1, MAIN, K.COLLECTIVE_ENQUEUE, 0)])).collectives
    assert (found.posted_ns.tolist(), found.posted_tid.tolist()) == ([8], [MAIN])


def test_a_group_says_which_of_its_ranks_this_one_is():
    rows = [*one(1, 8, 9, WORK), (8, 1, WORKER, K.COLLECTIVE_GROUP, 0x77, 4, 3), *one(1, 18, 19, WORK)]
    found = find_collectives(marks(rows)).collectives
    assert (found.group.tolist(), found.ranks.tolist(), found.number.tolist()) == ([0x77, -1], [4, -1], [3, -1])


@pytest.mark.parametrize(("enqueued", "posted"), [((1, 4), 4), ((4, 1), 4), ((1, None), 1), ((None, None), 10)])
def test_a_fused_transfer_was_posted_with_its_last_operation(enqueued, posted):
    rows: list[tuple[int, ...]] = [
        (at, 1, MAIN, K.HOROVOD_ENQUEUE, handle - 1) for handle, at in zip((1, 2), enqueued, strict=True) if at
    ]
    for handle, at in ((3, 12), (9, 3)):  # of the next transfer; of another process
        rows.append((at, 1 if handle == 3 else 2, MAIN, K.HOROVOD_ENQUEUE, handle - 1))
    rows += [
        (10, 1, WORKER, K.HOROVOD_TRANSFER, 100, 4, CollectiveKind.ALL_REDUCE),
        (20, 1, WORKER, K.HOROVOD_DONE, 1),
        (21, 1, WORKER, K.HOROVOD_DONE, 2),
        (30, 1, WORKER, K.HOROVOD_TRANSFER, 100, 4, CollectiveKind.ALL_REDUCE),
        (40, 1, WORKER, K.HOROVOD_DONE, 3),
    ]
    assert horovod_transfers(marks(rows)).posted_ns.tolist() == [posted, 12]
