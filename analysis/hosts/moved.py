"""One host's rows as rows of the job: its times on the reference's clock, its numbers those of the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from netprof.analysis.hosts.numbers import Numbers
from netprof.analysis.tables.columns import Int64, column
from netprof.model import HostClock
from netprof.schema import KINDS, MarkKind, time_column
from netprof.trace.columns import select, to_arrow
from netprof.trace.store import outlasts

_TIMES = ("time_ns", "bin_start_ns", "first_ns", "last_ns", "since_ns")
_TIMES_OR_NONE = ("adopted_ns", "stream_position_ns")
"""Where 0 says that there is no such time."""
_NUMBERS = ("flow_id", "netns", "pid", "tid", "gpu", "series")
_PLACED_BY = ("first_ns", "last_ns")


def to_reference(clock: HostClock, times_ns: Int64) -> Int64:
    """Return the reference's time of instants on a host's clock, ns."""
    if clock.drift == 0.0:
        return times_ns - round(clock.offset_ns)
    gained = (times_ns - clock.at_ns).astype(np.float64) * (clock.drift / (1 + clock.drift))
    return times_ns - np.rint(clock.offset_ns + gained).astype(np.int64)


def instant(clock: HostClock, time_ns: int) -> int:
    """Return the reference's time of one instant on a host's clock, ns."""
    return int(to_reference(clock, np.array([time_ns], np.int64))[0])


@dataclass(frozen=True, eq=False)
class Mover:
    """Turns the rows of one host into rows of the job, of which only those in [begin_ns, end_ns) are wanted.

    Its time bins, `own_bin_ns` wide, become the job's.
    """

    clock: HostClock
    numbers: Numbers
    own_bin_ns: int
    bin_ns: int
    begin_ns: int
    end_ns: int

    def needs(self, name: str, columns: list[str]) -> list[str]:
        """Return what must be read for some columns of a table to be right."""
        more = [each for each in _PLACED_BY if each not in columns] if name == "wire" else []
        more += ["kind"] if name == "marks" and "kind" not in columns else []
        return columns + more

    def move(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of table `name`, or of some of its columns."""
        columns = {each: self._column(name, each, batch) for each in batch.schema.names}
        rows = np.arange(batch.num_rows)
        is_moved = self.clock.offset_ns or self.clock.drift or self.own_bin_ns != self.bin_ns
        if name == "wire" and is_moved:
            columns, rows = on_grid(columns, self.bin_ns)
        kept = self._wanted(name, columns)
        if kept is not None and not kept.all():
            columns = {each: None if values is None else values[kept] for each, values in columns.items()}
            rows = rows[kept]
        return _with(batch, columns, rows)

    def _column(self, table: str, name: str, batch: pa.RecordBatch) -> Any:
        """Return a column as numbers of the job; texts, and what an old trace does not hold, stay as they are."""
        array = batch.column(batch.schema.get_field_index(name))
        if pa.types.is_string(array.type) or array.null_count:
            return None
        values = column(batch, name)
        if name in _TIMES:
            return to_reference(self.clock, values)
        if name in _TIMES_OR_NONE:
            return np.where(values > 0, to_reference(self.clock, values), values)
        if name == "hop_netns":
            return self.numbers.of("netns", values.astype(np.int64))
        if name in _NUMBERS:
            return self.numbers.of(name, values.astype(np.int64))
        if name == "arg0" and table == "marks":
            fork = column(batch, "kind") == MarkKind.PROCESS_FORK
            return np.where(fork, self.numbers.of("pid", values.view(np.int64)).view(np.uint64), values)
        return values

    def _wanted(self, name: str, columns: Mapping[str, Any]) -> Any:
        time = time_column(name)
        if time is None or KINDS[name].spans:
            return None
        since, until = columns[time] >= self.begin_ns, columns[time] < self.end_ns
        lasts = outlasts(name, {each: columns[each] for each in (time, "kind") if each in columns})
        if name != "marks":
            return (since | lasts) & until
        return (until & (since | (columns["kind"] == MarkKind.PROCESS_EXIT))) | lasts


def _with(batch: pa.RecordBatch, values: Mapping[str, Any], rows: Int64) -> pa.RecordBatch:
    """Return a batch with other values; `rows` are those of the batch that they are of."""
    same = len(rows) == batch.num_rows and bool((rows == np.arange(len(rows))).all())
    taken = batch if same else select(batch, rows)
    columns = [
        taken.column(index) if values[field.name] is None else to_arrow(values[field.name], field.type)
        for index, field in enumerate(batch.schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


_AMOUNTS = ("payload_bytes", "wire_bytes", "retransmitted_bytes", "packets")

Rows = dict[str, Any]
"""Columns of table `wire`, or some of them; None for one that is not known."""


def on_grid(rows: Rows, bin_ns: int) -> tuple[Rows, Int64]:
    """Return rows that each lie in one bin of the grid, and the row of `rows` that each is a part of.

    Bytes are spread evenly from the first packet to the last, as they are wherever a bin is cut
    (`definitions.UTILIZATION`); the last new byte of the stream is of the later part. A row that holds several bins
    (it was merged while the recorder was held up) stays one: when its bytes passed is unknown.
    """
    first, last, start = rows["first_ns"], rows["last_ns"], rows["bin_start_ns"]
    merged = last - start > bin_ns
    edge = (first // bin_ns + 1) * bin_ns
    cut = np.flatnonzero((last > edge) & ~merged)
    share = (edge[cut] - first[cut]) / np.maximum(last[cut] - first[cut], 1)
    parts = {name: np.rint(rows[name][cut] * share).astype(np.int64) for name in _AMOUNTS if name in rows}
    row = np.concatenate((np.arange(len(first)), cut))
    parted: Rows = {name: None if values is None else values[row] for name, values in rows.items()}
    for name, early in parts.items():
        parted[name] = parted[name].astype(np.int64)
        parted[name][len(first) :] -= early
        parted[name][cut] = early
    parted["bin_start_ns"] = np.where(merged[row], start[row], first[row] // bin_ns * bin_ns)
    parted["bin_start_ns"][len(first) :] = edge[cut]
    parted["first_ns"][len(first) :] = edge[cut]
    parted["last_ns"][cut] = edge[cut]
    for name in ("stream_position", "stream_position_ns"):
        if parted.get(name) is not None:
            parted[name][cut] = 0
    order = np.argsort(row, kind="stable")
    return {name: None if values is None else values[order] for name, values in parted.items()}, row[order]
