"""What a batch unpacks to, told before it is unpacked: of real batches exactly, of made-up ones never a crash."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netprof.trace.unpacked import ALLOWANCE_BYTES, MOST_TIMES, UnpackBudget, budget_bytes, unpacked_bytes

_FIELDS: dict[str, pa.DataType] = {"a": pa.int64(), "b": pa.uint8(), "c": pa.string()}
SCHEMA = pa.schema(_FIELDS)


def batch(rows: int) -> pa.RecordBatch:
    columns: list[Any] = [np.arange(rows), np.zeros(rows), ["text" * 20] * rows]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def written(path: Path, *batches: pa.RecordBatch, packed: bool = True) -> list[int]:
    """Write a table; returns where its batches begin, and where it ends."""
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1) if packed else None)
    with pa.ipc.new_stream(str(path), SCHEMA, options=options) as stream:
        for each in batches:
            stream.write_batch(each)
    return messages(path)[1:]


def messages(path: Path) -> list[int]:
    """Return where the messages of a table begin: its schema, its batches; and its end."""
    places = []
    with pa.OSFile(str(path), mode="r") as file:
        while True:
            places.append(file.tell())
            try:
                pa.ipc.read_message(file)
            except (pa.ArrowInvalid, EOFError):
                return places


def test_a_file_may_unpack_to_an_allowance_and_so_many_times_its_size() -> None:
    assert budget_bytes(0) == ALLOWANCE_BYTES == 64 << 20
    assert budget_bytes(7) == ALLOWANCE_BYTES + 7 * MOST_TIMES == (64 << 20) + 700


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rows", [1, 1000])
def test_of_a_real_batch_it_is_what_arrow_unpacks(packed: bool, rows: int, tmp_path: Path) -> None:
    written(tmp_path / "t", batch(rows), packed=packed)
    with pa.OSFile(str(tmp_path / "t"), mode="r") as file:
        pa.ipc.read_message(file)
        message = pa.ipc.read_message(file)
        assert message.body is not None
        body = message.body.to_pybytes()
        found = unpacked_bytes(message.metadata.to_pybytes(), lambda at: body[at : at + 8])
    true_bytes = rows * 9 + 4 * (rows + 1) + 80 * rows
    assert true_bytes <= found < true_bytes + 64 * 4, "padding"


def test_a_schema_unpacks_to_nothing(tmp_path: Path) -> None:
    written(tmp_path / "t", batch(1))
    with pa.OSFile(str(tmp_path / "t"), mode="r") as file:
        message = pa.ipc.read_message(file)
    assert unpacked_bytes(message.metadata.to_pybytes(), lambda at: b"") == 0


def spend(path: Path, budget: UnpackBudget, places: list[int]) -> None:
    with path.open("rb") as file:
        for place in places:
            budget.spend(file.fileno(), place)


def test_every_batch_counts_once_however_often_it_is_read(tmp_path: Path) -> None:
    places = written(tmp_path / "t", batch(1000), batch(1000), batch(1000))
    budget = UnpackBudget()
    spend(tmp_path / "t", budget, places[:2])
    twice = budget._unpacked_bytes
    spend(tmp_path / "t", budget, places[:2])
    assert budget._unpacked_bytes == twice
    spend(tmp_path / "t", budget, places)
    assert budget._unpacked_bytes == twice * 3 // 2


def huge(path: Path, stated_bytes: int) -> list[int]:
    """Write a table whose one packed buffer says that it unpacks to so much."""
    places = written(path, batch(1000))
    data = bytearray(path.read_bytes())
    place = data.index(struct.pack("<q", 8000))  # of column a
    data[place : place + 8] = struct.pack("<q", stated_bytes)
    path.write_bytes(data)
    return places


def test_what_says_that_it_unpacks_to_more_than_it_may_is_refused(tmp_path: Path) -> None:
    most = budget_bytes(len((tmp_path / "t").read_bytes()) if huge(tmp_path / "t", 8000) else 0)
    places = huge(tmp_path / "t", most - 100_000)
    spend(tmp_path / "t", UnpackBudget(), places)
    places = huge(tmp_path / "t", most)
    with pytest.raises(ValueError, match=r"its \d+ bytes unpack to more than \d+"):
        spend(tmp_path / "t", UnpackBudget(), places)


def described(path: Path, length: int) -> int:
    """Write a table whose one batch is described in so many bytes; returns where the batch begins."""
    (place, _), data = huge(path, 8000), path.read_bytes()
    (before,) = struct.unpack_from("<I", data, place + 4)
    body = place + 8 + before
    longer = data[place + 8 : body].ljust(length, b"\0")
    path.write_bytes(data[: place + 4] + struct.pack("<I", length) + longer + data[body:])
    return place


@pytest.mark.slow
def test_what_is_described_at_any_length_counts_or_is_refused(tmp_path: Path) -> None:
    """Else who makes a description longer than any would have its batch unpack to as much as it likes."""
    budget, place = UnpackBudget(), described(tmp_path / "t", 16 << 20)
    spend(tmp_path / "t", budget, [place])
    assert budget._unpacked_bytes > 8000
    place = described(tmp_path / "t", (16 << 20) + 1)
    with pytest.raises(ValueError, match="a batch is described in more than 16 MiB"):
        spend(tmp_path / "t", UnpackBudget(), [place])


@pytest.mark.parametrize("stated", [-2, -(1 << 62)])
def test_a_size_below_none_is_endless(stated: int, tmp_path: Path) -> None:
    places = huge(tmp_path / "t", stated)
    with pytest.raises(ValueError, match="unpack to more"):
        spend(tmp_path / "t", UnpackBudget(), places)


def test_what_is_not_packed_counts_as_it_is(tmp_path: Path) -> None:
    """A size of -1 says that a buffer was left as it is."""
    places, packed, stated = huge(tmp_path / "t", 8000), UnpackBudget(), UnpackBudget()
    spend(tmp_path / "t", packed, places)
    places = huge(tmp_path / "t", -1)
    spend(tmp_path / "t", stated, places)
    assert packed._unpacked_bytes - 8000 < stated._unpacked_bytes < packed._unpacked_bytes


def test_a_body_that_ends_before_a_size_is_one_that_ends(tmp_path: Path) -> None:
    written(tmp_path / "t", batch(1000))
    with pa.OSFile(str(tmp_path / "t"), mode="r") as file:
        pa.ipc.read_message(file)
        description = pa.ipc.read_message(file).metadata.to_pybytes()
    with pytest.raises(EOFError):
        unpacked_bytes(description, lambda at: bytes(7))


@pytest.mark.slow
def test_a_file_that_ends_inside_a_batch_is_left_to_arrow(tmp_path: Path) -> None:
    places = written(tmp_path / "t", batch(1000))
    size = (tmp_path / "t").stat().st_size
    for length in range(places[0], size):
        os.truncate(tmp_path / "t", size)
        os.truncate(tmp_path / "t", length)
        spend(tmp_path / "t", UnpackBudget(), places[:1])
        with (tmp_path / "t").open("ab") as file:
            file.write(bytes(size - length))


def test_the_end_and_what_lies_behind_it_count_for_nothing(tmp_path: Path) -> None:
    places = written(tmp_path / "t", batch(10))
    budget = UnpackBudget()
    spend(tmp_path / "t", budget, [places[-1], places[-1] + 8, 1 << 40])
    assert budget._unpacked_bytes == 0


def test_files_of_before_there_was_a_marker(tmp_path: Path) -> None:
    options = pa.ipc.IpcWriteOptions(use_legacy_format=True)
    with pa.ipc.new_stream(str(tmp_path / "t"), SCHEMA, options=options) as stream:
        stream.write_batch(batch(1000))
    place = messages(tmp_path / "t")[1]
    budget = UnpackBudget()
    spend(tmp_path / "t", budget, [place])
    assert budget._unpacked_bytes >= 1000 * (9 + 4 + 80)


@given(st.binary(max_size=200))
def test_what_makes_no_sense_is_a_value_error(description: bytes) -> None:
    try:
        found = unpacked_bytes(description, lambda at: bytes(8))
    except ValueError as error:
        assert "makes no sense" in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert found >= 0
