"""Rows between probes and trace: written once each, in order, and kept where the disk is full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from netprof.schema import tables
from netprof.session.buffers import TableBuffers
from netprof.session.progress import OutsideTotals
from netprof.trace import TraceWriter


class Written:
    """What stands for a trace: has room for so many batches, and keeps them."""

    def __init__(self, room: int = 100) -> None:
        self.room = room
        self.batches: list[tuple[str, dict[str, Any]]] = []
        self.last: Mapping[str, Any] = {}

    def append(self, name: str, columns: Mapping[str, Any]) -> None:
        if len(self.batches) == self.room:
            raise OSError(28, "No space left on device")
        self.last = columns
        self.batches.append((name, {key: list(values) for key, values in columns.items()}))


def rows(table: str, *values: int) -> dict[str, Any]:
    return {name: np.array(values) for name in tables()[table].names}


def flush(buffers: TableBuffers, written: Written) -> None:
    buffers.flush(cast(TraceWriter, written))


def test_what_was_added_is_one_batch_in_its_order_and_written_once() -> None:
    buffers, written = TableBuffers(), Written()
    buffers.add("marks", rows("marks", 1, 2))
    buffers.add("marks", rows("marks", 3))
    flush(buffers, written)
    flush(buffers, written)
    assert written.batches == [("marks", {name: [1, 2, 3] for name in tables()["marks"].names})]


def test_lists_and_arrays_go_together() -> None:
    buffers, written = TableBuffers(), Written()
    schema = tables()["flows"]
    texts = {field.name for field in schema if pa.types.is_string(field.type)}
    buffers.add("flows", {name: ["a"] if name in texts else [1] for name in schema.names})
    buffers.add("flows", {name: ["b"] if name in texts else np.array([2, 3][:1]) for name in schema.names})
    flush(buffers, written)
    assert written.batches == [("flows", {name: ["a", "b"] if name in texts else [1, 2] for name in schema.names})]


def test_a_column_is_put_together_as_what_the_trace_holds() -> None:
    """Kernel records are of other widths and strided; each number arrives as it was."""
    buffers, written = TableBuffers(), Written()
    strided = np.arange(12, dtype=np.uint64).reshape(6, 2)[:, 1]
    names = tables()["tcp"].names
    for part in (strided[:3], strided[3:]):
        buffers.add("tcp", dict.fromkeys(names, part))
    flush(buffers, written)
    for field in tables()["tcp"]:
        assert written.last[field.name].tolist() == [1, 3, 5, 7, 9, 11]
        assert written.last[field.name].dtype == field.type.to_pandas_dtype()


def test_tables_are_written_in_the_order_of_the_schema() -> None:
    buffers, written = TableBuffers(), Written()
    for name in ("outside", "marks", "wire", "tcp"):
        buffers.add(name, rows(name, 1))
    flush(buffers, written)
    assert [name for name, _ in written.batches] == ["wire", "marks", "tcp", "outside"]


def test_what_finds_no_room_stays_and_what_was_written_is_not_written_again() -> None:
    buffers, written = TableBuffers(), Written(room=1)
    buffers.add("wire", rows("wire", 1))
    buffers.add("marks", rows("marks", 2))
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            flush(buffers, written)
    buffers.add("marks", rows("marks", 3))
    written.room = 9
    flush(buffers, written)
    assert [(name, columns["time_ns" if name == "marks" else "first_ns"]) for name, columns in written.batches] == [
        ("wire", [1]),
        ("marks", [2, 3]),
    ]


def test_who_looks_on_is_given_every_batch_as_it_comes() -> None:
    buffers, seen = TableBuffers(), list[tuple[str, Any]]()
    buffers.add("marks", rows("marks", 1))
    buffers.observers.append(lambda name, columns: seen.append((name, columns)))
    batch = rows("wire", 1)
    buffers.add("wire", batch)
    assert seen == [("wire", batch)]


def test_what_moved_outside_adds_up_by_flow_and_direction() -> None:
    outside = OutsideTotals()
    assert not outside
    columns = {
        "flow_id": np.array([7, 7, 7, 3], np.uint32),
        "direction": np.array([0, 0, 1, 1], np.uint8),
        "payload_bytes": np.array([10, 20, 40, 80], np.uint64),
        "wire_bytes": np.array([11, 22, 44, 88], np.uint64),
        "retransmitted_bytes": np.array([1, 2, 4, 8], np.uint64),
        "packets": np.array([1, 1, 1, 1], np.uint32),
    }
    outside.add(columns, np.array([False, False, False, False]))
    assert not outside
    outside.add(columns, np.array([True, True, True, False]))
    outside.add(columns, np.array([True, False, False, True]))
    assert outside
    found = {name: np.asarray(values).tolist() for name, values in outside.columns(99).items()}
    assert found == {
        "time_ns": [99, 99, 99],
        "flow_id": [3, 7, 7],
        "direction": [1, 0, 1],
        "payload_bytes": [80, 40, 40],
        "wire_bytes": [88, 44, 44],
        "retransmitted_bytes": [8, 4, 4],
        "packets": [1, 3, 1],
    }
    assert set(found) == set(tables()["outside"].names)
