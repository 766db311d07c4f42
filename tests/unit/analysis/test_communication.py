"""Collectives by kind and backend, Horovod's stages and NCCL's launches, from marks whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from rhythm import full_bins

from netprof.analysis.events.every_collective import all_collectives, outstanding_without_ddp
from netprof.analysis.events.factors import bus_factor
from netprof.analysis.events.horovod import horovod_summaries, horovod_transfers
from netprof.analysis.events.messages import all_posted
from netprof.analysis.events.nccl import nccl_operations, summarize_nccl
from netprof.analysis.findings.collectives.collective_kinds import KindSummary, Timing, summarize_kinds
from netprof.analysis.tables.columns import UNKNOWN
from netprof.analysis.tables.marks import Marks, read_marks
from netprof.schema import CollectiveKind as C
from netprof.schema import MarkKind as K

PID, MS = 7, 1_000_000
FLOAT32, BFLOAT16, STREAM = 7, 9, 0x5000
COMM, OTHER = 0x7000, 0x8000


def marks(*rows: tuple[float, int, int, int, int, int]) -> Marks:
    """Build marks from (time in ms, kind, arg0, arg1, arg2, tid)."""
    table = np.array([(round(row[0] * MS), *map(int, row[1:])) for row in rows], np.int64).reshape(-1, 6)
    names = ("time_ns", "kind", "arg0", "arg1", "arg2", "tid")
    return read_marks({name: table[:, i] for i, name in enumerate(names)} | {"pid": np.full(len(table), PID)})


def by_kind(found: Marks, ranks: int) -> tuple[KindSummary, ...]:
    every = all_collectives(found, ranks)
    return summarize_kinds(every.collectives, all_posted(found, every), nccl_operations(found, ranks), ranks)


def gloo(
    at: float, took: float, kind: int, elements: int, size: int, tid: int = 9
) -> list[tuple[float, int, int, int, int, int]]:
    return [
        (at, K.COLLECTIVE_BEGIN, 1, 0, 0, tid),
        (at + 0.1, K.COLLECTIVE_SIZE, elements, size, kind, tid),
        (at + took, K.COLLECTIVE_END, 1, 0, 0, tid),
    ]


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        (C.ALL_REDUCE, 1.5),
        (C.ALL_GATHER, 0.75),
        (C.REDUCE_SCATTER, 0.75),
        (C.ALL_TO_ALL, 0.75),
        (C.GATHER, 0.75),
        (C.SCATTER, 0.75),
        (C.BROADCAST, 1.0),
        (C.REDUCE, 1.0),
        (C.SEND, 1.0),
        (C.RECEIVE, 1.0),
        (C.BARRIER, None),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(kind: int, factor: float | None) -> None:
    assert bus_factor(kind, 4) == factor
    if kind not in (C.BROADCAST, C.REDUCE, C.SEND, C.RECEIVE):
        assert bus_factor(kind, None) is None


def test_collectives_of_gloo_by_kind() -> None:
    rows = [
        *gloo(0, 10, C.ALL_GATHER, 8_000_000, 1),
        *gloo(20, 10, C.ALL_GATHER, 8_000_000, 1),
        *gloo(40, 8, C.BROADCAST, 1_000_000, 4),
        *gloo(60, 1, C.BARRIER, 0, 0),
        *gloo(70, 4, C.GATHER, 1_000_000, 1),
        (80, K.SEND_POSTED, 500, 0, 0, 3),
        (81, K.REDUCE_SCATTER_ASKED, 0, 0, 0, 3),
    ]
    kinds = {each.kind: each for each in by_kind(marks(*rows), 4)}
    gather = kinds["all-gather"]
    assert (gather.backend, gather.timing, gather.count, gather.bytes) == ("gloo", Timing.MEASURED, 2, 16_000_000)
    assert gather.running_ns == 20 * MS
    assert gather.algorithm_bandwidth_bps == pytest.approx(16e6 * 8 / 0.020)
    assert gather.bus_bandwidth_bps == pytest.approx(16e6 * 8 / 0.020 * 0.75)
    assert kinds["broadcast"].bus_bandwidth_bps == pytest.approx(4e6 * 8 / 0.008)
    assert kinds["gather"].bytes == 4_000_000, "one rank's part times the ranks"
    assert (kinds["barrier"].bytes, kinds["barrier"].bus_bandwidth_bps) == (None, None)
    assert (kinds["send"].timing, kinds["send"].bytes) == (Timing.POSTED, 500)


HOROVOD = [
    (0, K.HOROVOD_ENQUEUE, 4, 0, 0, 3),
    (1, K.HOROVOD_ENQUEUE, 5, 0, 0, 3),
    (10, K.HOROVOD_RESPONSE, C.ALL_REDUCE, 0x1000, 0x1000 + 64, 9),
    (12, K.HOROVOD_TRANSFER, 1000, 4, C.ALL_REDUCE, 9),
    (30, K.HOROVOD_UNPACK, 0, 0, 0, 9),
    (33, K.HOROVOD_DONE, 5, 0, 0, 9),
    (34, K.HOROVOD_DONE, 6, 0, 0, 9),
    (50, K.HOROVOD_DONE, 3, 0, 0, 9),  # enqueued before the recording
]


def test_horovods_time_is_the_sum_of_its_stages() -> None:
    (summary,) = horovod_summaries(marks(*HOROVOD))
    assert (summary.enqueued, summary.responses, summary.tensors_per_response) == (2, 1, 2.0)
    assert summary.outstanding_ns == 34 * MS
    assert summary.packing_ns == 2 * MS
    assert summary.transferring_ns == 18 * MS
    assert summary.unpacking_ns == 3 * MS
    assert summary.negotiating_ns == 11 * MS
    transfer = horovod_transfers(marks(*HOROVOD))
    assert (transfer.begin_ns[0], transfer.end_ns[0], transfer.bytes[0]) == (12 * MS, 30 * MS, 4000)
    assert len(all_collectives(marks(*HOROVOD, *gloo(60, 5, C.BROADCAST, 1, 4))).collectives) == 2
    outstanding = outstanding_without_ddp(marks(*HOROVOD), transfer, [PID])
    assert outstanding[PID].total_ns == 34 * MS


def test_a_transfer_whose_end_was_not_seen_is_left_out() -> None:
    assert len(horovod_transfers(marks(*HOROVOD[:4]))) == 0
    other_thread = (13, K.HOROVOD_UNPACK, 0, 0, 0, 10)
    assert len(horovod_transfers(marks(*HOROVOD[:4], other_thread))) == 0


def reduce(
    at: float, count: int = 1000, kind: int = K.NCCL_ALL_REDUCE, comm: int = COMM, datatype: int = FLOAT32
) -> tuple[float, int, int, int, int, int]:
    return (at, kind, count, STREAM << 8 | datatype, comm, 3)


def test_sizes_are_counts_times_types_times_parts() -> None:
    rows = [
        (0, K.NCCL_COMM_INIT, 4, 0, 0, 3),
        reduce(1),
        reduce(2, datatype=BFLOAT16),
        reduce(3, kind=K.NCCL_ALL_GATHER),
        reduce(4, kind=K.NCCL_BROADCAST),
        reduce(5, datatype=12),  # a type of tomorrow
    ]
    found = nccl_operations(marks(*rows), world_size=2)
    assert found.bytes.tolist() == [4000, 2000, 16_000, 4000, UNKNOWN]
    assert found.ranks.tolist() == [4] * 5, "the communicator's, not the environment's"
    assert set(found.stream.tolist()) == {STREAM}


def test_parts_of_an_unknown_number_have_no_size() -> None:
    rows = [reduce(1), reduce(2, comm=OTHER, kind=K.NCCL_ALL_GATHER), reduce(3, kind=K.NCCL_SEND)]
    assert nccl_operations(marks(*rows), world_size=2).bytes.tolist() == [4000, UNKNOWN, 4000]


def init(at: float, ranks: int) -> tuple[float, int, int, int, int, int]:
    return (at, K.NCCL_COMM_INIT, ranks, 0, 0, 3)


def change(at: float, kind: int, comm: int = COMM, argument: int = 0) -> tuple[float, int, int, int, int, int]:
    return (at, kind, comm, argument, 0, 3)


@pytest.mark.parametrize(
    ("rows", "ranks"),
    [
        ([reduce(1)], [8]),  # attached later: the environment
        ([reduce(1), reduce(2, comm=OTHER)], [UNKNOWN, UNKNOWN]),  # which of the two has all ranks?
        ([init(0, 4), reduce(1), init(2, 2), reduce(3, comm=OTHER)], [4, 2]),
        ([init(0, 4), init(0, 2), reduce(1)], [UNKNOWN]),
        ([init(0, 4), reduce(1), change(2, K.NCCL_COMM_SPLIT), reduce(3, comm=OTHER)], [4, UNKNOWN]),
        ([init(0, 4), reduce(1), change(2, K.NCCL_COMM_SHRINK, argument=1), reduce(3, comm=OTHER)], [4, 3]),
        ([init(0, 4), reduce(1), change(2, K.NCCL_COMM_END), init(3, 6), reduce(4)], [4, 6]),
    ],
)
def test_ranks_of_communicators(rows: list[tuple[float, int, int, int, int, int]], ranks: list[int]) -> None:
    assert nccl_operations(marks(*rows), world_size=8).ranks.tolist() == ranks


def test_wire_time_is_from_the_first_to_the_last_packet_before_the_next_launch() -> None:
    wire = np.zeros(100, np.uint64)
    wire[11:21] = 100_000  # of the launch at 10 ms
    wire[51:61] = 100_000  # of the launch at 50 ms
    bins = full_bins(wire, 0)
    rows = [(0, K.NCCL_COMM_INIT, 2, 0, 0, 3), reduce(10.2, 125_000), reduce(10.3, 125_000), reduce(50, 250_000)]
    operations = nccl_operations(marks(*rows), 2)
    (summary,) = summarize_nccl(operations, marks(*rows), {PID: bins}, 100 * MS)
    assert (summary.operations, summary.launches, summary.bytes) == (3, 2, 2_000_000)
    assert (summary.ranks, summary.ranks_source) == ((2,), "communicator's creation")
    assert summary.median_wire_time_s == pytest.approx(0.010)
    assert summary.wire_bandwidth_bps == pytest.approx(0.8e9)
    assert summary.wire_to_algorithm_ratio == pytest.approx(1.0)
    (kind,) = by_kind(marks(*rows), 2)
    assert (kind.backend, kind.timing, kind.running_ns, kind.bus_bandwidth_bps) == (
        "nccl",
        Timing.ENQUEUED,
        None,
        None,
    )
