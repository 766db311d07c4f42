"""Every table of a report: those of the trace under their own names, and what was concluded from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from netprof.analysis.result_tables import Table, result_table, result_tables
from netprof.schema import tables
from netprof.views import json_report
from netprof.views.output import opened

if TYPE_CHECKING:
    from netprof.files import Directory
    from netprof.views.reporter import Report

ROWS_AT_ONCE = 1 << 17


def every_table(report: Report) -> Iterator[tuple[str, pa.Schema, Iterator[pa.RecordBatch]]]:
    """Yield every table, one in memory at a time: the recorded ones batch by batch, then the results."""
    trace = report.trace
    assert trace is not None, "tables are of traces"
    for name, schema in tables().items():
        yield name, schema, trace.batches(name)
    for name in result_tables():
        table = _arrow(result_table(report.analysis, name))
        yield name, table.schema, iter(table.to_batches(ROWS_AT_ONCE))


def write_summary(report: Report, folder: Directory) -> None:
    """Write the report itself beside its tables, as `report.json`. Raises OSError."""
    with opened(folder, "report.json") as file:
        json_report.write(report, file)


def _arrow(columns: Table) -> pa.Table:
    """Return the columns as an Arrow table, in which NaN is unknown too."""
    return pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
