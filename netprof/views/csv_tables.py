"""Every table as CSV, one file each, in a folder; `report.json` holds the summary.

Text from outside that a spreadsheet would take for a formula gets a leading apostrophe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv

from netprof.views.every_table import every_table, write_summary
from netprof.views.output import opened
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from netprof.files import Directory
    from netprof.views.reporter import Report

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def fill(report: Report, folder: Directory) -> None:
    """Write every table with a header. Raises OSError."""
    for name, schema, batches in every_table(report):
        with opened(folder, f"{name}.csv") as file, pa.csv.CSVWriter(file, schema) as writer:
            for batch in batches:
                writer.write_batch(_harmless(batch))
    write_summary(report, folder)


def _harmless(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [_harmless_text(array) if pa.types.is_string(array.type) else array for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _harmless_text(array: Any) -> Any:
    distinct = array.dictionary_encode()  # a column of names says a few of them a million times
    texts = [None if text is None else safe_text(text, len(text)) for text in distinct.dictionary.to_pylist()]
    harmless = [f"'{text}" if text and text.startswith(_FORMULA) else text for text in texts]
    return pa.array(harmless, pa.string()).take(distinct.indices)
