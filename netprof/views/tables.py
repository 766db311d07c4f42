"""Every table and result as CSV or Parquet, one file each, in a folder; `report.json` holds the summary.

The tables of the trace itself come under their own names. What was concluded from it:

| file | a row is |
|---|---|
| `iterations` | an iteration of a process, with its phases' edges |
| `iteration_summary` | the same iterations: phases in seconds and bus bandwidth |
| `buckets` | a gradient bucket, from launch to unpacking |
| `collectives` | a collective that a process saw |
| `outstanding` | a stretch of time in which a bucket of a process is outstanding |
| `idle` | a stretch of time in which a link was idle both ways, and why |
| `utilization` | a time bin of a link in one direction in which a byte moved |
| `links`, `ranks`, `flow_summary` | a link, a rank, a flow, as in the report; nested names are joined by `.` |

Empty cells are unknown; -1 is unknown in columns of whole numbers. In CSV, text from outside that a spreadsheet would
take for a formula gets a leading apostrophe.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from netprof.analysis.account.idle_spans import idle_spans
from netprof.analysis.findings.per_iteration import iteration_rows
from netprof.analysis.tables.intervals import interval
from netprof.analysis.wire.bins import combine
from netprof.schema import RECEIVE, TRANSMIT, tables
from netprof.views.json_report import to_json
from netprof.views.output import replaced
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from netprof.analysis.result import Analysis
    from netprof.analysis.tables.columns import Columns
    from netprof.views.reporter import Report

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_ROWS_AT_ONCE = 1 << 17


def write_csv(report: Report, folder: Path) -> None:
    """Write every table as CSV with a header. Raises OSError."""
    for name, schema, batches in _all(report):
        with replaced(folder / f"{name}.csv") as file, pa.csv.CSVWriter(file, schema) as writer:
            for batch in batches:
                writer.write_batch(_harmless(batch))
    _summary(report, folder)


def write_parquet(report: Report, folder: Path) -> None:
    """Write every table as Parquet, compressed with zstd. Raises OSError."""
    for name, schema, batches in _all(report):
        with (
            replaced(folder / f"{name}.parquet") as file,
            pa.parquet.ParquetWriter(file, schema, compression="zstd") as writer,
        ):
            for table in _gathered(schema, batches):
                writer.write_table(table)
    _summary(report, folder)


def results(analysis: Analysis) -> Iterator[tuple[str, pa.Table]]:
    """Yield what was concluded, as named Arrow tables."""
    found = analysis.tables
    yield "iterations", _from_columns(found.iterations)
    yield "iteration_summary", _iteration_summary(analysis)
    yield "buckets", _from_columns(found.buckets)
    yield "collectives", _from_columns(found.collectives)
    yield "outstanding", _outstanding(analysis)
    yield "idle", _idle(analysis)
    yield "utilization", _utilization(analysis)
    document = to_json(analysis)
    for name, key in (("links", "links"), ("ranks", "ranks"), ("flow_summary", "flows")):
        yield name, _from_documents(document[key])


def _all(report: Report) -> Iterator[tuple[str, pa.Schema, Iterator[pa.RecordBatch]]]:
    """Yield every table, one in memory at a time: the recorded ones batch by batch, then the results."""
    for name, schema in tables().items():
        yield name, schema, report.trace.batches(name)
    for name, table in results(report.analysis):
        yield name, table.schema, iter(table.to_batches(_ROWS_AT_ONCE))


def _summary(report: Report, folder: Path) -> None:
    with replaced(folder / "report.json") as file:
        file.write(json.dumps(to_json(report.analysis), indent=1, allow_nan=False).encode() + b"\n")


def _gathered(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield batches joined to row groups of a useful size."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS_AT_ONCE:
            yield pa.Table.from_batches(waiting, schema=schema)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema=schema)


def _harmless(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [_harmless_text(array) if pa.types.is_string(array.type) else array for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _harmless_text(array: Any) -> Any:
    texts = [None if text is None else safe_text(text) for text in array.to_pylist()]
    return pa.array([f"'{text}" if text and text.startswith(_FORMULA) else text for text in texts], pa.string())


def _from_columns(columns: Columns) -> pa.Table:
    return _table({field.name: pa.array(getattr(columns, field.name)) for field in dataclasses.fields(columns)})


def _iteration_summary(analysis: Analysis) -> pa.Table:
    parts = []
    for rank in analysis.ranks:
        if rank.durations is None:
            continue
        found = analysis.tables
        rows = iteration_rows(found.iterations, found.collectives, rank.pid, analysis.collectives.world_size)
        table = _from_columns(rows)
        parts.append(table.add_column(0, "pid", pa.array(np.full(len(rows), rank.pid))))
    return pa.concat_tables(parts) if parts else _table({"pid": _no_rows()})


def _outstanding(analysis: Analysis) -> pa.Table:
    sets = analysis.tables.outstanding
    return _table(
        {
            "pid": np.concatenate([np.full(len(s), pid) for pid, s in sets.items()] or [_no_rows()]),
            "begin_ns": np.concatenate([s.begin_ns for s in sets.values()] or [_no_rows()]),
            "end_ns": np.concatenate([s.end_ns for s in sets.values()] or [_no_rows()]),
        }
    )


def _idle(analysis: Analysis) -> pa.Table:
    begin_ns = analysis.meta.started_ns
    recording = interval(begin_ns, begin_ns + analysis.recording_ns)
    rows = [
        (link, cause, spans)
        for link in analysis.links
        for cause, spans in idle_spans(analysis.tables, link, analysis.meta.bin_ns, recording).items()
    ]
    lengths = [len(spans) for _, _, spans in rows]
    return _table(
        {
            "netns": np.repeat([link.netns for link, _, _ in rows], lengths).astype(np.int64),
            "device": _repeated([(link.device, len(spans)) for link, _, spans in rows]),
            "cause": _repeated([(cause, len(spans)) for _, cause, spans in rows]),
            "begin_ns": np.concatenate([spans.begin_ns for _, _, spans in rows] or [_no_rows()]),
            "end_ns": np.concatenate([spans.end_ns for _, _, spans in rows] or [_no_rows()]),
        }
    )


def _utilization(analysis: Analysis) -> pa.Table:
    parts = []
    for link in analysis.links:
        for direction in (TRANSMIT, RECEIVE):
            lanes = analysis.tables.lanes.items()
            bins = combine(
                [b for (lane, way), b in lanes if lane.link == (link.netns, link.device) and way == direction]
            )
            if bins is None:
                continue
            rows = np.flatnonzero(bins.wire_bytes)
            bits = bins.wire_bytes[rows] * (8e9 / bins.bin_ns)
            share = bits / link.line_rate_bps if link.line_rate_bps else np.full(len(rows), np.nan)
            parts.append(
                _table(
                    {
                        "netns": np.full(len(rows), link.netns, np.int64),
                        "device": _repeated([(link.device, len(rows))]),
                        "direction": np.full(len(rows), direction, np.uint8),
                        "bin_start_ns": (bins.first_bin + rows) * bins.bin_ns,
                        "wire_bytes": bins.wire_bytes[rows].astype(np.uint64),
                        "payload_bytes": bins.payload_bytes[rows].astype(np.uint64),
                        "utilization": pa.array(share, from_pandas=True),
                    }
                )
            )
    return pa.concat_tables(parts) if parts else _table({"netns": _no_rows()})


def _from_documents(documents: list[dict[str, Any]]) -> pa.Table:
    """Return a table of flattened rows: nested keys joined by '.', lists as text."""
    rows = [_flat(document) for document in documents]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return _table({name: pa.array([row.get(name) for row in rows]) for name in names})


def _repeated(texts: list[tuple[str, int]]) -> Any:
    """Return a column of text in which each text comes as often as is said."""
    return pa.chunked_array([pa.repeat(pa.scalar(text, pa.string()), count) for text, count in texts], pa.string())


def _table(columns: dict[str, Any]) -> pa.Table:
    return pa.table(columns)


def _flat(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            row |= _flat(value, f"{prefix}{name}.")
        else:
            row[prefix + name] = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return row


def _no_rows() -> Any:
    return np.zeros(0, np.int64)
