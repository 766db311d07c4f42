"""The frameworks' tables, and how they become what the BPF program reads."""

import re
from pathlib import Path

import numpy as np
import pytest

from netprof.probes import frameworks
from netprof.probes.frameworks import FRAMEWORKS, Framework, Mark, Memory, Register
from netprof.probes.mark_plan import number_rows
from netprof.probes.mark_records import MAX_SPECS, RECORD, check_records, columns, pack_spec
from netprof.schema import MarkKind, tables

HEADER = Path(frameworks.__file__).parents[1] / "bpf" / "marks.h"


def test_every_kind_of_the_schema_that_a_program_can_emit_is_in_one_table() -> None:
    kinds = [mark.kind for framework in FRAMEWORKS for mark in framework.marks]
    assert sorted(kinds) == sorted(kind for kind in MarkKind if kind < MarkKind.PROCESS_FORK)


def test_only_the_mark_of_each_parameter_is_sampled() -> None:
    sampled = [mark.kind for framework in FRAMEWORKS for mark in framework.marks if mark.sampled]
    assert sampled == [MarkKind.GRADIENT_READY]


def test_cookies_are_rows_of_the_programs_table() -> None:
    rows = number_rows(FRAMEWORKS)
    assert [row.cookie for row in rows] == list(range(len(rows)))
    assert len(rows) <= MAX_SPECS
    assert rows[0].name == "marks:ddp:ddp_forward"


def test_layouts_are_those_of_the_header() -> None:
    text = HEADER.read_text()
    assert f"#define MARK_SPECS {MAX_SPECS} " in text
    record = re.search(r"struct mark_record \{(.*?)\};", text, re.DOTALL)
    assert record is not None
    sizes = {"__u64": 8, "__u32": 4, "__u8": 1}
    at, offsets = 0, {}
    for kind, name, count in re.findall(r"(__u\d+) (\w+)(?:\[(\w+)\])?;", record[1]):
        offsets[name] = at
        at += sizes[kind] * int({"": 1, "MARK_ARGUMENTS": 3}.get(count, count))
    assert at == RECORD.itemsize
    assert RECORD.fields is not None
    mine = {name: field[1] for name, field in RECORD.fields.items()}
    mine["arguments"] = mine.pop("args")
    assert mine == {name: offset for name, offset in offsets.items() if name != "unused"}


def test_packing_a_spec() -> None:
    mark = Mark(MarkKind.COLLECTIVE_SIZE, "f", (Memory(register=1, offset=-8, size=4), Register(6)))
    packed = pack_spec(mark)
    assert packed[:4] == bytes([MarkKind.COLLECTIVE_SIZE, 0, 0, 0])
    assert packed[4:12] == bytes([2, 1, 4, 0]) + (-8).to_bytes(4, "little", signed=True)
    assert packed[12:20] == bytes([1, 6, 0, 0, 0, 0, 0, 0])
    assert packed[20:] == bytes(8)


@pytest.mark.parametrize("number", [0, 7])
def test_arguments_that_are_in_no_register(number: int) -> None:
    with pytest.raises(ValueError, match="register"):
        Register(number)
    with pytest.raises(ValueError, match="cannot be read"):
        Memory(number, 0, 8)


def test_sizes_that_no_integer_has_and_marks_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        Memory(1, 0, 3)
    with pytest.raises(ValueError, match="arguments"):
        Mark(MarkKind.DDP_WAIT, "f", (Register(1),) * 4)
    with pytest.raises(ValueError, match="symbol"):
        Mark(MarkKind.DDP_WAIT, "")


def test_records_are_believed_only_where_the_table_allows_their_values() -> None:
    size = Mark(MarkKind.COLLECTIVE_SIZE, "f", (Memory(1, 80, 8), Memory(1, 88, 8, valid=(4, 8))))
    wait = Mark(MarkKind.DDP_WAIT, "g")
    records = np.zeros(5, dtype=RECORD)
    records["kind"] = [size.kind, size.kind, wait.kind, size.kind, wait.kind]
    records["args"][:, 1] = [4, 5, 5, 8, 0]
    records["unreadable"] = [0, 0, 0, 1, 0]
    records["time_ns"] = range(5)
    good, rejected = check_records(records, [size, wait])
    assert good["time_ns"].tolist() == [0, 2, 4]
    assert rejected == {MarkKind.COLLECTIVE_SIZE: 2}


def test_columns_are_those_of_the_trace() -> None:
    schema = tables()["marks"]
    table = columns(np.zeros(3, dtype=RECORD))
    assert sorted(table) == sorted(schema.names)
    assert all(table[field.name].dtype == field.type.to_pandas_dtype() for field in schema)


def test_a_new_framework_is_a_table() -> None:
    nccl = Framework("nccl", "libnccl.so*", (Mark(MarkKind.COLLECTIVE_BEGIN, "ncclAllReduce", (Register(3),)),))
    assert number_rows((*FRAMEWORKS, nccl))[-1].name == "marks:nccl:collective_begin"
