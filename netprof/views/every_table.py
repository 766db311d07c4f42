"""Every table of a report: those of the trace under their own names, and what was concluded from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from netprof.analysis.result_tables import __doc__ as result_tables_doc
from netprof.analysis.result_tables import result_table, result_tables
from netprof.schema import (
    RECEIVE,
    TRANSMIT,
    Backend,
    CollectiveKind,
    LinkState,
    MarkKind,
    NcclNetwork,
    NcclRankState,
    tables,
)
from netprof.views import json_report
from netprof.views.json_text import json_text
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
        words = _words_of(schema)
        yield name, _in_words(schema, words), (_worded(batch, words) for batch in trace.batches(name))
    for name in result_tables():
        columns = result_table(report.analysis, name)
        table = pa.table(
            {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
        )  # NaN is unknown
        words = _words_of(table.schema)
        batches = table.to_batches(ROWS_AT_ONCE)
        yield name, _in_words(table.schema, words), (_worded(batch, words) for batch in batches)


Words = Mapping[str, Mapping[int, str]]
"""By column, what each of its numbers is called."""


def _names(kinds: type[IntEnum]) -> Mapping[int, str]:
    return {int(kind): kind.name.lower() for kind in kinds}


_WAYS = {TRANSMIT: "tx", RECEIVE: "rx"}
_BESIDE = (
    ("kind", frozenset({"tid", "arg0"}), _names(MarkKind)),
    ("kind", frozenset({"bytes", "backend"}), _names(CollectiveKind)),
    ("state", frozenset({"line_rate_bps"}), _names(LinkState)),
    ("state", frozenset({"communicator"}), _names(NcclRankState)),
)
"""What a column holds in a table that has some other columns too."""
_ENUMS: Words = {
    "direction": _WAYS,
    "backend": _names(Backend),
    "network": _names(NcclNetwork),
}


def _words_of(schema: pa.Schema) -> Words:
    """Return the columns of a table that hold numbers of an enumeration, and what these are called."""
    enums = {name: words for name, words in _ENUMS.items() if name in schema.names and _is_number(schema, name)}
    for name, others, words in _BESIDE:
        if {name, *others} <= set(schema.names) and _is_number(schema, name):
            enums[name] = words
    return enums


def _is_number(schema: pa.Schema, name: str) -> bool:
    return bool(pa.types.is_integer(schema.field(name).type))


def _in_words(schema: pa.Schema, words: Words) -> pa.Schema:
    return pa.schema([pa.field(f.name, pa.string()) if f.name in words else f for f in schema])


def _worded(batch: pa.RecordBatch, words: Words) -> pa.RecordBatch:
    """Return a batch with words in place of numbers; a number that has none stays one, as text."""
    columns = list(batch.columns)
    for name, called in words.items():
        distinct = batch.column(name).dictionary_encode()
        texts = [None if n is None else called.get(n, str(n)) for n in distinct.dictionary.to_pylist()]
        columns[batch.schema.get_field_index(name)] = pa.array(texts, pa.string()).take(distinct.indices)
    return pa.RecordBatch.from_arrays(columns, schema=_in_words(batch.schema, words))


_UNITS = "_s seconds, _ns nanoseconds, _us microseconds, _bps bits per second; empty or -1: unknown"


def write_summary(report: Report, folder: Directory) -> None:
    """Write the report itself beside its tables, as `report.json`, and what they hold as `schema.json`. Raises OSError.

    The schema has what a row of each table is, and its columns.
    """
    about = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", result_tables_doc.replace("\\\n", ""), re.MULTILINE))
    described = {
        name: {"row": about.get(name, ""), "columns": {f.name: str(f.type) for f in schema}}
        for name, schema, _ in every_table(report)
    }
    with opened(folder, "schema.json") as file:
        file.write(json_text({"units": _UNITS, "tables": described}).encode() + b"\n")
    with opened(folder, "report.json") as file:
        json_report.write(report, file)
