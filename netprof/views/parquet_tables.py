"""Every table as Parquet, compressed with zstd, one file each, in a folder; `report.json` holds the summary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

from netprof.views.every_table import ROWS_AT_ONCE, every_table, write_summary
from netprof.views.output import opened

if TYPE_CHECKING:
    from netprof.files import Directory
    from netprof.views.reporter import Report


def fill(report: Report, folder: Directory) -> None:
    """Write every table. Raises OSError."""
    for name, schema, batches in every_table(report):
        with (
            opened(folder, f"{name}.parquet") as file,
            pa.parquet.ParquetWriter(file, schema, compression="zstd") as writer,
        ):
            for table in _gathered(schema, batches):
                writer.write_table(table)
    write_summary(report, folder)


def _gathered(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield batches joined to row groups of a useful size."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_AT_ONCE:
            yield pa.Table.from_batches(waiting, schema=schema)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema=schema)
