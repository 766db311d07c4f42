"""The newest rows of a table that is being written, and no more of them than are asked for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from support.synthetic import Job

from netprof.schema import tables
from netprof.trace.recent_rows import RecentRows


def batch(first: int, rows: int) -> pa.RecordBatch:
    schema = tables()["counters"]
    columns = {"series": [1] * rows, "time_ns": range(first, first + rows), "value": [0] * rows}
    return pa.RecordBatch.from_pydict({name: list(columns[name]) for name in schema.names}, schema=schema)


def test_as_many_whole_batches_are_kept_as_hold_the_newest_rows(tmp_path: Path) -> None:
    kept = RecentRows(tmp_path / "t", Job().meta(), {"counters": 25})
    for first, rows, known in ((0, 10, 10), (10, 10, 20), (20, 14, 34), (34, 1, 25), (35, 1, 26), (36, 40, 40)):
        kept.add("counters", batch(first, rows))
        times = [time for each in kept.batches("counters") for time in each.column("time_ns").to_pylist()]
        assert times == list(range(first + rows - known, first + rows))
    assert [(host.name, host.trace) for host in kept.hosts] == [(Job().meta().host, "t")]
    assert (kept.still_recording, kept.truncated) == (True, False)
    kept.add("wire", batch(0, 1))
    assert list(kept.batches("wire")) == []
