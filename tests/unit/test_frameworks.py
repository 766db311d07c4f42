"""The frameworks' tables, and how they become what the BPF program reads."""

import platform
import re
from pathlib import Path

import numpy as np
import pytest

from netprof.probes import frameworks
from netprof.probes.frameworks import FRAMEWORKS
from netprof.probes.frameworks.autograd import AUTOGRAD
from netprof.probes.frameworks.cuda import CUDA_RUNTIME
from netprof.probes.frameworks.gloo import GLOO
from netprof.probes.frameworks.nccl import NCCL, after_an_id
from netprof.probes.frameworks.table import (
    Argument,
    Chain,
    Constant,
    Framework,
    Handle,
    Mark,
    MemoryField,
    Pair,
    Register,
    file_names,
)
from netprof.probes.marks.mark_records import MAX_SPECS, RECORD, check_records, columns, pack_spec
from netprof.probes.marks.plan import number_rows
from netprof.probes.marks.returns import Trampoline, danger_of, is_filtered, trampoline_of_this_kernel
from netprof.probes.marks.uprobes import ROWS_A_PLACE, ProbePlace, together
from netprof.schema import NCCL_ELEMENT_BYTES, CollectiveKind, MarkKind, tables

HEADER = Path(frameworks.__file__).parents[1] / "marks" / "marks.h"


def test_every_kind_of_the_schema_that_a_program_can_emit_is_in_a_table() -> None:
    kinds = {mark.kind for framework in FRAMEWORKS for mark in framework.marks}
    of_the_kernel = {MarkKind.PROCESS_FORK, MarkKind.PROCESS_EXEC, MarkKind.PROCESS_EXIT}
    assert kinds == set(MarkKind) - of_the_kernel


def test_nothing_is_said_twice_of_a_function() -> None:
    said = [
        (framework.library, mark.symbol_prefix, mark.at_return, mark.kind, mark.since)
        for framework in FRAMEWORKS
        for mark in framework.marks
    ]
    assert len(set(said)) == len(said)


def test_gloo_has_a_row_for_every_collective_that_it_runs() -> None:
    kinds = {mark.args[2] for mark in GLOO.marks if mark.kind == MarkKind.COLLECTIVE_SIZE}
    absent = {CollectiveKind.REDUCE_SCATTER, CollectiveKind.SEND, CollectiveKind.RECEIVE}
    assert kinds == {Constant(kind) for kind in CollectiveKind if kind not in absent}


def test_nccl_keeps_count_datatype_stream_and_communicator() -> None:
    for mark in NCCL.marks:
        if MarkKind.NCCL_ALL_REDUCE <= mark.kind <= MarkKind.NCCL_RECEIVE:
            count, pair, communicator = mark.args
            assert isinstance(count, Register)
            assert isinstance(pair, Pair)
            assert isinstance(communicator, Register)
            assert (pair.low, pair.high) == (count.number + 1, communicator.number + 1), "as in every signature"
    assert len(NCCL_ELEMENT_BYTES) == 12, "ncclNumTypes of nccl.h 2.32.3"


def test_only_what_comes_for_each_parameter_or_operation_is_sampled() -> None:
    sampled = [mark.kind for framework in FRAMEWORKS for mark in framework.marks if mark.sampled]
    assert sampled == [MarkKind.GRADIENT_READY, MarkKind.PROFILER]


def test_marks_are_rows_of_the_programs_table() -> None:
    rows = number_rows(FRAMEWORKS)
    assert [row.number for row in rows] == list(range(len(rows)))
    assert len(rows) <= MAX_SPECS
    assert rows[0].name == "marks:ddp:ddp_forward"


def test_layouts_are_those_of_the_header() -> None:
    text = HEADER.read_text()
    assert f"#define MARK_SPECS {MAX_SPECS} " in text
    assert f"#define MARKS_A_PLACE {ROWS_A_PLACE} " in text
    assert (RECORD.itemsize, RECORD["arguments"].shape) == (48, (3,))


def test_packing_a_spec() -> None:
    mark = Mark(MarkKind.COLLECTIVE_SIZE, "f", (MemoryField(register=1, offset=-8, size=4), Register(6)))
    packed = pack_spec(mark)
    assert packed[:4] == bytes([MarkKind.COLLECTIVE_SIZE, 0, 0, 0])
    assert packed[4:12] == bytes([2, 1, 4, 0]) + (-8).to_bytes(4, "little", signed=True)
    assert packed[12:20] == bytes([1, 6, 8, 0, 0, 0, 0, 0])
    assert packed[20:] == bytes(8)


@pytest.mark.parametrize(
    ("argument", "packed"),
    [
        (Register(2, size=4), [1, 2, 4, 0, 0, 0, 0, 0]),
        (Chain(1, offset=24, then=16), [3, 1, 8, 16, 24, 0, 0, 0]),
        (Pair(low=4, high=7), [4, 4, 8, 7, 0, 0, 0, 0]),
        (Constant(3), [0] * 8),
        (Register(2, size=4, unless=(1, -1)), [1, 2, 4, 1, 255, 255, 255, 255]),
        (Handle(5, 0xFF, ((3, 1),)), [1, 5, 4, 0, 0, 0, 0, 0]),
    ],
)
def test_packing_an_argument(argument: Argument, packed: list[int]) -> None:
    assert pack_spec(Mark(MarkKind.DDP_WAIT, "f", (argument,)))[4:12] == bytes(packed)


@pytest.mark.parametrize(
    ("argument", "on_the_stack"),
    [
        (Register(6), 0),
        (Register(7), 1),
        (Register(2, unless=(6, 1)), 0),
        (Register(2, unless=(8, 1)), 1),
        (Pair(low=4, high=6), 0),
        (Pair(low=4, high=7), 1),
        (Handle(7, 1, ()), 1),
        (MemoryField(6, 0, 8), 0),
        (MemoryField(7, 0, 8), 1),
        (Chain(8, 0, 0), 1),
    ],
)
def test_the_stack_is_read_only_for_arguments_beyond_the_sixth(argument: Argument, on_the_stack: int) -> None:
    assert pack_spec(Mark(MarkKind.DDP_WAIT, "f", (argument,)))[1] == on_the_stack


@pytest.mark.parametrize("number", [0, 9])
def test_arguments_that_are_in_no_register(number: int) -> None:
    with pytest.raises(ValueError, match="register"):
        Register(number)
    with pytest.raises(ValueError, match="cannot be read"):
        MemoryField(number, 0, 8)


def test_sizes_that_no_integer_has_and_marks_that_cannot_be() -> None:
    for impossible in (
        lambda: MemoryField(1, 0, 3),
        lambda: Register(1, 3),
        lambda: Chain(1, 0, 256),
        lambda: Pair(0, 1),
        lambda: Handle(1, 0xF0, ((0x100, 1),)),
    ):
        with pytest.raises(ValueError, match="cannot be read"):
            impossible()
    with pytest.raises(ValueError, match="texts"):
        Mark(MarkKind.DDP_WAIT, "f", (Chain(1, 0, 0),), only=("nine char",))
    with pytest.raises(ValueError, match="arguments"):
        Mark(MarkKind.DDP_WAIT, "f", (Register(1),) * 4)
    with pytest.raises(ValueError, match="symbol"):
        Mark(MarkKind.DDP_WAIT, "")


@pytest.mark.parametrize("name", ["_ZN4c10d7Reducer4waitEv", "_Z", "_", "_RNvC5crate4func"])
def test_the_return_of_what_may_be_cpp_cannot_be_a_mark(name: str) -> None:
    with pytest.raises(ValueError, match="not plain C"):
        Mark(MarkKind.COLLECTIVE_END, name, at_return=True)


def test_at_a_return_no_argument_is_left() -> None:
    Mark(MarkKind.COLLECTIVE_END, "f", (Constant(1),), at_return=True)
    with pytest.raises(ValueError, match="no argument is left"):
        Mark(MarkKind.COLLECTIVE_END, "f", (Register(1),), at_return=True)


def test_every_mark_at_a_return_has_an_entry_to_go_with_it() -> None:
    for framework in FRAMEWORKS:
        entered = {mark.symbol_prefix for mark in framework.marks if not mark.at_return}
        assert {mark.symbol_prefix for mark in framework.marks if mark.at_return} <= entered


def test_marks_that_meet_are_one_place_in_the_tables_order() -> None:
    places = [ProbePlace(64, (5,)), ProbePlace(32, (1,)), ProbePlace(64, (2,)), ProbePlace(64, (3,), at_return=True)]
    assert together(places) == (ProbePlace(64, (5, 2)), ProbePlace(32, (1,)), ProbePlace(64, (3,), at_return=True))
    assert ProbePlace(64, (5, 2, 300)).cookie == 6 | 3 << 16 | 301 << 32
    with pytest.raises(ValueError, match="more than 4"):
        together([ProbePlace(64, (row,)) for row in range(5)])


def test_what_a_handle_stands_for() -> None:
    size = Handle(1, 0xFF00FF00, ((0x4C000400, 4), (0x4C000800, 8)))
    records = np.zeros(4, dtype=RECORD)
    records["arguments"][:, 0] = [0x4C00040A, 0x4C00080B, 0x8C000003, 0x4C00050A]
    good, rejected = check_records(records, [Mark(MarkKind.COLLECTIVE_SIZE, "f", (size,))])
    assert good["arguments"][:, 0].tolist() == [4, 8, 0, 0]
    assert not rejected


FILTERED, SHADOWED = {"Seccomp": "2"}, {"x86_Thread_features": "shstk wrss"}


JUMPS, CALLS, STOPPED = Trampoline(False, False), Trampoline(True, False), Trampoline(True, True)


@pytest.mark.parametrize(
    ("status", "trampoline", "reason"),
    [
        ({"Seccomp": "0", "x86_Thread_features": ""}, STOPPED, None),
        (FILTERED, JUMPS, None),
        (FILTERED, STOPPED, "filtered"),
        (FILTERED, CALLS, None),
        (SHADOWED, JUMPS, "shadow stack"),
        (SHADOWED, CALLS, None),
    ],
)
def test_kernels_on_which_a_probed_return_would_end_the_process(
    status: dict[str, str], trampoline: Trampoline, reason: str | None
) -> None:
    said = danger_of(status, trampoline)
    assert (said is None) == (reason is None)
    assert reason is None or reason in (said or "")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86-64")
def test_whether_a_filter_stops_a_system_call_is_tried() -> None:
    getppid, none_such = 110, 1023
    assert is_filtered(getppid)
    assert is_filtered(none_such), "a filter comes before the look whether there is such a call"
    here = trampoline_of_this_kernel()
    assert here.calls or not here.is_filtered


def test_records_are_believed_only_where_the_table_allows_their_values() -> None:
    size = Mark(MarkKind.COLLECTIVE_SIZE, "f", (MemoryField(1, 80, 8), MemoryField(1, 88, 8, valid=(4, 8))))
    wait = Mark(MarkKind.DDP_WAIT, "g")
    records = np.zeros(5, dtype=RECORD)
    records["kind"] = [size.kind, size.kind, wait.kind, size.kind, wait.kind]
    records["row"] = [0, 0, 1, 0, 1]
    records["arguments"][:, 1] = [4, 5, 5, 8, 0]
    records["unreadable"] = [0, 0, 0, 1, 0]
    records["time_ns"] = range(5)
    good, rejected = check_records(records, [size, wait])
    assert good["time_ns"].tolist() == [0, 2, 4]
    assert rejected == {0: 2}


def test_a_buffer_that_cannot_be_so_large_is_not_believed() -> None:
    records = np.zeros(2, dtype=RECORD)
    records["arguments"][:, 0] = [100, 101]
    good, rejected = check_records(records, [Mark(MarkKind.SEND_POSTED, "f", (Chain(1, 0, 16, below=101),))])
    assert good["arguments"][:, 0].tolist() == [100]
    assert rejected == {0: 1}


def test_rows_of_one_kind_each_fill_in_their_own_constant() -> None:
    marks = [
        Mark(MarkKind.COLLECTIVE_SIZE, name, (Constant(9), Register(1), Constant(n))) for n, name in enumerate("fg")
    ]
    records = np.zeros(3, dtype=RECORD)
    records["row"], records["arguments"] = [1, 0, 1], 7
    good, rejected = check_records(records, marks)
    assert good["arguments"].tolist() == [[9, 7, 1], [9, 7, 0], [9, 7, 1]]
    assert not rejected


def test_of_a_function_called_for_many_things_only_the_named_one_counts() -> None:
    step = Mark(MarkKind.OPTIMIZER_STEP, "f", (Chain(2, 0, 0), Chain(2, 0, 8)), only=("Optimize", "r.step#"))
    texts = [b"Optimizer.step#SGD", b"Optimizer.zero_grad", b"MyOptimizer.step#x", b"Optimizer.step#A"]
    records = np.zeros(5, dtype=RECORD)
    for record, text in zip(records, texts, strict=False):
        record["arguments"][:2] = np.frombuffer(text.ljust(16, b"\0")[:16], "<u8")
    records["time_ns"] = range(5)
    records["unreadable"][4] = 0b10  # a short text at the end of a page: another's
    good, rejected = check_records(records, [step])
    assert good["time_ns"].tolist() == [0, 3]
    assert not good["arguments"].any(), "nothing of the job's texts is kept"
    assert not rejected


def named(mark: Mark, *texts: bytes) -> list[int]:
    """Return the places of the texts that the mark is recorded for, from what its row of the table reads of them."""
    records = np.zeros(len(texts), dtype=RECORD)
    for record, text in zip(records, texts, strict=True):
        for index, argument in enumerate(mark.args):
            assert isinstance(argument, Chain)
            record["arguments"][index] = int.from_bytes(text.ljust(64, b"\0")[argument.then :][:8], "little")
    records["time_ns"] = range(len(texts))
    good, rejected = check_records(records, [mark])
    assert not rejected
    assert not good["arguments"].any(), "nothing of the job's texts is kept"
    return [int(place) for place in good["time_ns"]]


def test_a_forward_pass_of_ddp_is_told_by_its_whole_name() -> None:
    (forward,) = (mark for mark in AUTOGRAD.marks if mark.kind == MarkKind.FORWARD)
    (step,) = (mark for mark in AUTOGRAD.marks if mark.kind == MarkKind.OPTIMIZER_STEP)
    assert forward.symbol_prefix == step.symbol_prefix
    texts = (
        b"DistributedDataParallel.forward",
        b"DistributedDataParallel._pre_forward",
        b"DistributedDataParallel.backward",
        b"DistributedDataParallelCPU.forward",
        b"FullyShardedDataParallel.forward",
        b"Optimizer.step#SGD.step",
        b"",
    )
    assert named(forward, *texts) == [0]
    assert named(step, *texts) == [5]


@pytest.mark.parametrize(
    ("ranks", "own", "good"),
    [
        *((2, 0, True), (2, 1, True), (1, 0, True), (1 << 21, 1000, True)),
        *((2, 2, False), (0, 0, False), (3, 0xFFFFFFFF, False), (0x7F12_3456, 0, False)),
    ],
)
def test_a_rank_that_is_none_of_its_group_costs_the_group_and_not_the_size(ranks: int, own: int, good: bool) -> None:
    size, group, *_ = (mark for mark in GLOO.marks if mark.symbol_prefix == "_ZN4gloo9allreduceERKN")
    assert (size.kind, group.kind) == (MarkKind.COLLECTIVE_SIZE, MarkKind.COLLECTIVE_GROUP)
    records = np.zeros(2, dtype=RECORD)
    records["row"] = [0, 1]
    records["arguments"] = [[1000, 4, 0], [0x7F00_0000_1000, ranks, own]]
    kept, rejected = check_records(records, [size, group])
    assert kept["row"].tolist() == ([0, 1] if good else [0])
    assert rejected == ({} if good else {1: 1})


def test_every_collective_of_gloo_with_a_size_names_its_group() -> None:
    sizes = [mark.symbol_prefix for mark in GLOO.marks if mark.kind == MarkKind.COLLECTIVE_SIZE]
    groups = [mark for mark in GLOO.marks if mark.kind == MarkKind.COLLECTIVE_GROUP]
    assert sizes == [mark.symbol_prefix for mark in groups if mark.until]
    assert sizes == [mark.symbol_prefix for mark in groups if mark.since]
    assert {mark.until or mark.since for mark in groups} == {"_ZN4gloo7ContextD0Ev"}, "either, and never both"


def test_an_id_by_value_is_where_the_machine_passes_it() -> None:
    assert after_an_id("x86_64") == (Register(3, size=4), Register(7))
    assert after_an_id("aarch64") == (Register(4, size=4), MemoryField(3, 0, 8))


@pytest.mark.parametrize(
    ("name", "is_known"),
    [("libcudart.so.12", True), ("libcudart-d0da41ae.so.11.0", True), ("libcudart_static.so", False)],
)
def test_the_runtime_of_cuda_has_the_names_that_wheels_give_it(name: str, is_known: bool) -> None:
    assert (re.fullmatch(file_names(CUDA_RUNTIME.library), name.encode()) is not None) is is_known


def test_columns_are_those_of_the_trace() -> None:
    schema = tables()["marks"]
    table = columns(np.zeros(3, dtype=RECORD))
    assert sorted(table) == sorted(schema.names)
    assert all(table[field.name].dtype == field.type.to_pandas_dtype() for field in schema)


def test_a_new_framework_is_a_table() -> None:
    mine = Framework("mine", "libmine.so*", (Mark(MarkKind.COLLECTIVE_BEGIN, "all_reduce", (Register(3),)),))
    assert number_rows((*FRAMEWORKS, mine))[-1].name == "marks:mine:collective_begin"
