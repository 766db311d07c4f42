"""Rows on their way in: a batch answers for its own rows, and for no others of the memory that it is a part of."""

from __future__ import annotations

import pyarrow as pa
import pytest
from synthetic import Job

from netprof.domains import LONGEST_TEXT_BYTES
from netprof.schema import tables
from netprof.trace.checked import Outside, check_batch

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
    with pytest.raises(Outside, match="column device holds a text of 65537 bytes"):
        check_batch("flows", batch, Job().meta())


def test_the_longest_text_is_one() -> None:
    check_batch("flows", flows("x" * LONGEST_TEXT_BYTES), Job().meta())
