"""Every table as CSV or Parquet, one file each, in a folder; `report.json` holds the summary.

The tables of the trace itself come under their own names, what was concluded from it as `analysis.result_tables` names
it. In CSV, text from outside that a spreadsheet would take for a formula gets a leading apostrophe.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from netprof.analysis.result_tables import Table, result_table, result_tables
from netprof.schema import tables
from netprof.views.json_report import to_json
from netprof.views.output import replaced
from netprof.views.safe import safe_text

if TYPE_CHECKING:
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


def _all(report: Report) -> Iterator[tuple[str, pa.Schema, Iterator[pa.RecordBatch]]]:
    """Yield every table, one in memory at a time: the recorded ones batch by batch, then the results."""
    for name, schema in tables().items():
        yield name, schema, report.trace.batches(name)
    for name in result_tables():
        table = _arrow(result_table(report.analysis, name))
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


def _arrow(columns: Table) -> pa.Table:
    """Return the columns as an Arrow table, in which NaN is unknown too."""
    return pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
