"""Collectives that a job's own threads call: groups, parts of buffers, calls without an end, and what is waited for."""

from __future__ import annotations

import numpy as np
import pytest

from netprof.analysis.events.collectives import find_collectives
from netprof.analysis.events.every_collective import all_collectives
from netprof.analysis.events.messages import all_posted
from netprof.analysis.events.nccl import nccl_operations
from netprof.analysis.events.optimizer_steps import find_steps
from netprof.analysis.events.waits import waits
from netprof.analysis.findings.collectives.bandwidth import rank_bandwidths
from netprof.analysis.findings.collectives.collective_kinds import KindSummary, Timing, summarize_kinds
from netprof.analysis.tables.columns import UNKNOWN
from netprof.analysis.tables.marks import Marks, read_marks
from netprof.schema import ALL_RANKS, NOT_SAID, Backend
from netprof.schema import CollectiveKind as C
from netprof.schema import MarkKind as K

PID, MAIN, OTHER, MS = 7, 7, 8, 1_000_000
COMMUNICATOR = 0x55AA_0000
BACKEND = Backend.HOROVOD  # any but gloo's 0

Row = tuple[float, int, int, int, int, int]


def marks(*rows: Row) -> Marks:
    """Build marks from (time in ms, kind, arg0, arg1, arg2, tid)."""
    names = ("arg0", "arg1", "arg2")
    columns = {name: np.array([row[2 + i] for row in rows], np.uint64) for i, name in enumerate(names)}
    columns |= {"kind": np.array([int(row[1]) for row in rows]), "tid": np.array([row[5] for row in rows])}
    columns["time_ns"] = np.array([round(row[0] * MS) for row in rows])
    return read_marks(columns | {"pid": np.full(len(rows), PID)})


def by_kind(found: Marks, ranks: int) -> tuple[KindSummary, ...]:
    every = all_collectives(found, ranks)
    return summarize_kinds(every.collectives, all_posted(found, every), nccl_operations(found, ranks), ranks)


def call(
    at: float,
    took: float,
    kind: int,
    elements: int,
    size: int,
    ranks: int | None = None,
    part: bool = False,
    tid: int = MAIN,
) -> list[Row]:
    """The marks of one call; `ranks` are those of its group, which is recorded where they are given."""
    rows: list[Row] = [
        (at, K.COLLECTIVE_BEGIN, 0, BACKEND, 0, tid),
        (at, K.COLLECTIVE_PART if part else K.COLLECTIVE_SIZE, elements, size, kind, tid),
    ]
    if ranks is not None:
        rows.append((at, K.COLLECTIVE_GROUP, COMMUNICATOR, ranks, 0, tid))
    return [*rows, (at + took, K.COLLECTIVE_END, 0, 0, 0, tid)]


def posting(at: float, kind: int, elements: int, size: int, ranks: int | None = None, part: bool = False) -> list[Row]:
    """The marks of one collective that is only posted."""
    (_, begin, work, backend, _, tid), *others = without_ends(call(at, 1, kind, elements, size, ranks, part))
    return [(at, begin, work, backend, 1, tid), *others]


def without_ends(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row[1] != K.COLLECTIVE_END]


def test_a_collective_knows_its_backend_and_its_group() -> None:
    older: list[Row] = [(50, K.COLLECTIVE_BEGIN, 0, 0, 0, OTHER), (51, K.COLLECTIVE_END, 0, 0, 0, OTHER)]
    found = find_collectives(marks(*call(0, 5, C.ALL_REDUCE, 100, 4, ranks=3), *call(9, 1, C.BARRIER, 0, 0), *older))
    collectives = found.collectives
    assert collectives.backend.tolist() == [BACKEND, BACKEND, Backend.GLOO], "older traces: gloo"
    assert collectives.group.tolist() == [COMMUNICATOR, UNKNOWN, UNKNOWN]
    assert collectives.ranks.tolist() == [3, UNKNOWN, UNKNOWN]
    assert collectives.bytes.tolist() == [400, 0, UNKNOWN]
    assert len(found.unpaired_ns) == len(found.posted) == 0


@pytest.mark.parametrize(
    ("stated", "world_size", "whole"),
    [
        (3, None, 1200),
        (3, 8, 1200),
        (ALL_RANKS, 8, 3200),
        (ALL_RANKS, None, UNKNOWN),
        (0, 8, UNKNOWN),
        (None, 8, UNKNOWN),
    ],
)
def test_one_ranks_part_is_multiplied_by_the_ranks_of_its_group(
    stated: int | None, world_size: int | None, whole: int
) -> None:
    rows = marks(*call(0, 5, C.ALL_GATHER, 100, 4, ranks=stated, part=True))
    (size,) = find_collectives(rows, world_size).collectives.bytes.tolist()
    assert size == whole


@pytest.mark.parametrize(("elements", "size"), [(NOT_SAID, 4), (NOT_SAID, 0), (100, 0)])
@pytest.mark.parametrize("part", [False, True])
def test_a_size_that_nothing_says_is_unknown_and_its_kind_is_not(elements: int, size: int, part: bool) -> None:
    rows = call(0, 5, C.GATHER, elements, size, ranks=2, part=part)
    found = find_collectives(marks(*rows)).collectives
    assert (found.bytes.tolist(), found.kind.tolist()) == ([UNKNOWN], [C.GATHER])


def test_the_bandwidth_of_a_kind_counts_each_group_by_its_own_size() -> None:
    rows = [*call(0, 10, C.ALL_REDUCE, 1_000_000, 4, ranks=2), *call(20, 30, C.ALL_REDUCE, 3_000_000, 4, ranks=4)]
    (found,) = by_kind(marks(*rows), 8)
    assert (found.backend, found.kind, found.timing) == ("horovod", "all-reduce", Timing.MEASURED)
    assert found.algorithm_bandwidth_bps == pytest.approx(16e6 * 8 / 0.040)
    assert found.bus_bandwidth_bps == pytest.approx((4e6 * 1.0 + 12e6 * 1.5) * 8 / 0.040)


def test_a_gather_has_as_many_parts_as_its_group_has_ranks() -> None:
    rows = [*call(0, 10, C.GATHER, 1000, 4, ranks=3), *call(20, 10, C.SCATTER, 1000, 4)]
    found = {each.kind: each for each in by_kind(marks(*rows), 8)}
    assert (found["gather"].bytes, found["scatter"].bytes) == (12_000, 32_000)


def test_calls_that_are_never_seen_to_return_are_only_posted() -> None:
    rows = [row for number in range(3) for row in call(10 * number, 5, C.ALL_REDUCE, 1000, 4, ranks=2)]
    found = find_collectives(marks(*without_ends(rows)))
    assert (len(found.collectives), len(found.unpaired_ns), len(found.posted)) == (0, 0, 3)
    (kind,) = by_kind(marks(*without_ends(rows)), 2)
    assert (kind.timing, kind.count, kind.bytes) == (Timing.POSTED, 3, 12_000)
    assert (kind.running_ns, kind.algorithm_bandwidth_bps, kind.bus_bandwidth_bps) == (None, None, None)
    one_end = marks(*without_ends(rows), (99, K.COLLECTIVE_END, 0, 0, 0, MAIN))
    assert len(find_collectives(one_end).unpaired_ns) == 2, "ends are seen here: two begins miss theirs"


def test_what_is_posted_by_backend_and_kind() -> None:
    rows: list[Row] = [
        (1, K.SEND_POSTED, 500, 0, 0, MAIN),
        *posting(2, C.ALL_GATHER, 100, 8, ranks=3, part=True),
        *posting(3, C.BARRIER, 0, 0),
        *call(4, 1, C.BARRIER, 0, 0),
    ]
    found = by_kind(marks(*rows), 2)
    assert [(each.backend, each.kind, each.bytes) for each in found] == [
        ("horovod", "all-gather", 2400),
        ("gloo", "send", 500),
        ("horovod", "barrier", None),
        ("horovod", "barrier", 0),
    ]
    assert [each.timing for each in found] == [Timing.POSTED] * 2 + [Timing.MEASURED, Timing.POSTED]


def test_what_has_to_be_sent_counts_what_was_posted_and_every_group_by_its_ranks() -> None:
    rows = [row for number in range(1, 7) for row in step(100.0 * number, MAIN)]
    iterations = find_steps(marks(*rows), frozenset()).iterations
    inside: list[Row] = [
        *call(310, 1, C.ALL_REDUCE, 1000, 4, ranks=2),
        *call(312, 1, C.SEND, 1000, 4, ranks=2),
        *call(314, 1, C.RECEIVE, NOT_SAID, 4),
    ]
    posted = posting(316, C.ALL_GATHER, 1000, 4, ranks=4, part=True)
    found = find_collectives(marks(*inside, *posted), 8)
    everything = rank_bandwidths(found.collectives, iterations, 8, None, found.posted)
    assert everything.algorithm_bytes == 4000 * 2 / 2 + 4000 + 16_000 * 3 / 4
    assert everything.bus_bandwidth_bps == everything.algorithm_bandwidth_bps == 4000 * 8 / 1e-3
    unknown = find_collectives(marks(*inside, *posting(316, C.ALL_GATHER, NOT_SAID, 0)), 8)
    assert rank_bandwidths(unknown.collectives, iterations, 8, None, unknown.posted).algorithm_bytes is None


def step(at: float, tid: int) -> list[Row]:
    """One iteration of 100 ms: backward at 0, a collective on thread `tid` from 30 to 50, the optimizer at 60."""
    communicating = call(at + 30, 20, C.ALL_REDUCE, 1000, 4, tid=tid)
    return [(at, K.BACKWARD, 0, 0, 0, MAIN), *communicating, (at + 60, K.OPTIMIZER_STEP, 0, 0, 0, MAIN)]


def test_a_call_of_the_thread_that_steps_is_a_wait_and_one_of_another_thread_is_not() -> None:
    for tid, exposed in ((MAIN, 20 * MS), (OTHER, 0)):
        rows = [row for number in range(1, 7) for row in step(100.0 * number, tid)]
        iterations = find_steps(marks(*rows), frozenset()).iterations
        assert len(iterations) == 4
        assert (iterations.exposed_phase_ns == exposed).all()
        assert (iterations.backward_phase_ns == 60 * MS - exposed).all()


def test_waiting_for_what_was_posted() -> None:
    rows: list[Row] = [
        (1, K.OPTIMIZER_STEP, 0, 0, 0, MAIN),
        (9, K.POSTED_WAIT_OVER, 0, 0, 0, MAIN),  # the recording began inside it
        (10, K.POSTED_WAIT, 0, 0, 0, MAIN),
        (11, K.POSTED_WAIT, 0, 0, 0, OTHER),
        (13, K.POSTED_WAIT_OVER, 0, 0, 0, MAIN),
        (17, K.POSTED_WAIT_OVER, 0, 0, 0, OTHER),
        (20, K.POSTED_WAIT, 0, 0, 0, MAIN),  # its end is lost
        (30, K.POSTED_WAIT, 0, 0, 0, MAIN),
        (31, K.POSTED_WAIT_OVER, 0, 0, 0, MAIN),
    ]
    found = waits(marks(*rows))
    assert found.begin_ns.tolist() == [10 * MS, 30 * MS]
    assert found.end_ns.tolist() == [13 * MS, 31 * MS]


def test_the_phases_of_a_process_whose_calls_are_not_seen_to_return_are_unknown() -> None:
    rows = [row for number in range(1, 7) for row in step(100.0 * number, MAIN)]
    assert find_steps(marks(*without_ends(rows)), frozenset()).stepped == ()
    posted = [row for row in rows if row[1] in (K.BACKWARD, K.OPTIMIZER_STEP)] + posting(5, C.ALL_REDUCE, 100, 4)
    assert find_steps(marks(*posted), frozenset()).stepped == ()
    seen: Row = (6, K.POSTED_WAIT_OVER, 0, 0, 0, MAIN)
    assert find_steps(marks(*posted, seen), frozenset()).stepped == (PID,)
