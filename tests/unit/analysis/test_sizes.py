"""Bytes of elements, as far as they can be believed."""

from __future__ import annotations

import numpy as np
import pytest
from support.synthetic import Job, K, mark_columns

from netprof.analysis.events.collectives import find_collectives
from netprof.analysis.events.horovod import horovod_transfers
from netprof.analysis.events.messages import all_posted
from netprof.analysis.events.nccl import nccl_operations
from netprof.analysis.events.sizes import MOST_BYTES, bytes_of
from netprof.analysis.tables.columns import UNKNOWN
from netprof.analysis.tables.marks import Marks, read_marks

MOST = (1 << 63) - 1


@pytest.mark.parametrize(
    ("elements", "element_bytes", "size"),
    [
        (1000, 4, 4000),
        (0, 4, 0),
        (1000, 0, 0),
        (MOST_BYTES, 1, MOST_BYTES),
        (MOST_BYTES + 1, 1, UNKNOWN),
        (MOST_BYTES // 4 + 1, 4, UNKNOWN),
        (-1, 1, UNKNOWN),
        (1, -1, UNKNOWN),
        (-4, -1, UNKNOWN),
        (1 << 62, 4, UNKNOWN),  # whose product is 0 in whole numbers of 64 bits
        (MOST, MOST, UNKNOWN),
    ],
)
def test_bytes_of_elements(elements: int, element_bytes: int, size: int) -> None:
    assert bytes_of(np.array([elements]), np.array([element_bytes])).tolist() == [size]


def test_a_collective_is_as_large_as_its_parts_if_all_are_known() -> None:
    assert _collective((1000, 4), (10, 2)) == 4020
    assert _collective((1000, 4), (MOST, 1)) == UNKNOWN
    assert _collective((1000, 4), ((1 << 64) - 1, 1)) == UNKNOWN  # as the recorder says that it does not know
    assert _collective((MOST_BYTES // 2, 1), (MOST_BYTES // 2 + 1, 1)) == UNKNOWN


def _collective(*sizes: tuple[int, int]) -> int:
    job = Job()
    job.mark(20, 1, K.COLLECTIVE_BEGIN)
    for elements, element_bytes in sizes:
        job.mark(21, 1, K.COLLECTIVE_SIZE, elements, element_bytes)
    job.mark(30, 1, K.COLLECTIVE_END)
    (size,) = find_collectives(_marks(job)).collectives.bytes.tolist()
    return int(size)


def test_a_part_times_its_ranks_is_believed_no_more() -> None:
    job = Job()
    job.mark(20, 1, K.COLLECTIVE_BEGIN)
    job.mark(21, 1, K.COLLECTIVE_GROUP, 7, 1 << 40)
    job.mark(22, 1, K.COLLECTIVE_PART, 1 << 24, 4)
    job.mark(30, 1, K.COLLECTIVE_END)
    assert find_collectives(_marks(job)).collectives.bytes.tolist() == [UNKNOWN]


def test_what_nccl_horovod_and_messages_say_is_believed_no_more() -> None:
    job = Job()
    job.mark(10, 1, K.HOROVOD_TRANSFER, MOST, 1)
    job.mark(11, 1, K.HOROVOD_DONE)
    job.mark(12, 1, K.SEND_POSTED, MOST)
    job.mark(13, 1, K.NCCL_ALL_REDUCE, MOST, 7)
    marks = _marks(job)
    assert horovod_transfers(marks).bytes.tolist() == [UNKNOWN]
    assert all_posted(marks, find_collectives(marks)).bytes.tolist() == [UNKNOWN]
    assert nccl_operations(marks, 2).bytes.tolist() == [UNKNOWN]


def _marks(job: Job) -> Marks:
    return read_marks(mark_columns(job.marks))
