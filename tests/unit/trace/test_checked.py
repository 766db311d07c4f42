"""Rows on their way in: a batch answers for its own rows, and for no others of the memory that it is a part of."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.synthetic import Job, trace_of

from netprof.domains import AROUND_NS, LONGEST_TEXT_BYTES, MARK_ARGUMENTS
from netprof.errors import TraceError
from netprof.schema import tables
from netprof.trace import TraceReader
from netprof.trace.checked import Impossible, check_batch

SCHEMA = tables()["flows"]


def flows(*devices: str) -> pa.RecordBatch:
    rows = [
        {name: "" if pa.types.is_string(SCHEMA.field(name).type) else 4 for name in SCHEMA.names} | {"device": device}
        for device in devices
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


@pytest.mark.parametrize(
    ("begin", "count", "passes"), [(0, 2, True), (1, 1, True), (1, 2, False), (2, 1, False), (3, 1, True)]
)
def test_texts_beside_a_batch_are_not_its_own(begin: int, count: int, passes: bool) -> None:
    batch = flows("a", "b", "x" * (LONGEST_TEXT_BYTES + 1), "c").slice(begin, count)
    if passes:
        check_batch("flows", batch, Job().meta())
        return
    with pytest.raises(Impossible, match="column device holds a text of 65537 bytes"):
        check_batch("flows", batch, Job().meta())


def test_the_longest_text_is_one() -> None:
    check_batch("flows", flows("x" * LONGEST_TEXT_BYTES), Job().meta())


STARTED_NS, STOPPED_NS = 100 * 3_600_000_000_000, 101 * 3_600_000_000_000


def passes(table: str, column: str, value: float, *, stopped_ns: int | None = STOPPED_NS) -> bool:
    """Tell whether a batch passes that has one number in one column."""
    schema = pa.schema([tables()[table].field(column)])
    batch = pa.RecordBatch.from_arrays([pa.array([value], schema.field(0).type)], schema=schema)
    try:
        check_batch(table, batch, replace(Job().meta(), started_ns=STARTED_NS, stopped_ns=stopped_ns))
    except Impossible:
        return False
    return True


@pytest.mark.parametrize(
    ("table", "column", "least", "most", "step"),
    [
        ("gpu", "value", 0.0, 1e18, 1e3),
        ("counters", "value", -(1 << 62), 1 << 62, 1),
        ("wire", "payload_bytes", 0, 1 << 40, 1),
        ("wire", "direction", 0, 1, 1),
        ("wire", "flow_id", 0, (1 << 31) - 1, 1),  # and a capture beside it has room for its own
        ("gpu", "time_ns", STARTED_NS - AROUND_NS, STOPPED_NS + AROUND_NS, 1),
    ],
)
def test_the_least_and_the_most_that_there_can_be(
    table: str, column: str, least: float, most: float, step: float
) -> None:
    assert passes(table, column, least)
    assert passes(table, column, most)
    assert not passes(table, column, most + step)
    if least > 0 or column == "value":
        assert not passes(table, column, least - step)


@pytest.mark.parametrize("name", ["arg0", "arg1", "arg2"])
def test_an_argument_of_a_mark_is_at_most_what_its_kind_has(name: str) -> None:
    most = {kind: value for kind, value in MARK_ARGUMENTS.get(name, {}).items() if value < (1 << 63) - 1}
    for kind, value in most.items():
        for beyond in (0, 1):
            schema = pa.schema([tables()["marks"].field("kind"), tables()["marks"].field(name)])
            columns = [
                pa.array([column], field.type) for column, field in zip((kind, value + beyond), schema, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=schema)
            said = f"column {name} holds {value + 1}, which marks of kind {int(kind)} never do"
            with pytest.raises(Impossible, match=said) if beyond else nullcontext():
                check_batch("marks", batch, Job().meta())


def test_a_recording_that_goes_on_speaks_of_any_time_after_its_beginning() -> None:
    assert passes("gpu", "time_ns", 1 << 60, stopped_ns=None)
    assert not passes("gpu", "time_ns", (1 << 60) + 1, stopped_ns=None)


def test_a_batch_without_rows_and_a_column_without_values_pass() -> None:
    check_batch("gpu", pa.RecordBatch.from_pylist([], tables()["gpu"]), Job().meta())
    schema = pa.schema([tables()["gpu"].field("value")])
    check_batch("gpu", pa.RecordBatch.from_arrays([pa.array([None], pa.float64())], schema=schema), Job().meta())


@pytest.mark.parametrize(("limit", "passes"), [(2, True), (1, False)])
def test_a_recording_has_so_many_devices(
    limit: int, passes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report says much of each: a damaged description of millions would take for ever."""
    monkeypatch.setattr("netprof.trace.meta._MOST_DEVICES", limit)
    trace = trace_of()
    with nullcontext() if passes else pytest.raises(TraceError, match=f"devices has 2 values, where at most {limit}"):
        assert len(TraceReader(trace).meta.devices) == 2


@pytest.mark.parametrize(("limit", "passes"), [(9, True), (8, False)])
def test_a_recording_says_so_much_of_itself(
    limit: int, passes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netprof.trace.meta._MOST_ENTRIES", limit)
    trace = trace_of()
    described = json.loads((trace / "meta.json").read_text())
    described |= {"warnings": ["w"] * 9, "probes_started": [], "probes_skipped": [], "series": []}
    (trace / "meta.json").write_text(json.dumps(described))
    with nullcontext() if passes else pytest.raises(TraceError, match="warnings has 9 values, where at most 8"):
        assert len(TraceReader(trace).meta.warnings) == 9
