"""A trace as it would be had its job run at another pace, with its ranks in other places, or been recorded for less.

    make(Path("a.netprof"), Path("made.netprof"), within_ns=(first, last), ranks={0: 2, 1: 0, 2: 1}, pace=1.5)

What cannot be recorded a hundred times is made from what was: every time, TCP's clocks and the kernel's counts of time
are stretched by `pace`, and so is what a link's rate makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from netprof.analysis.tables.columns import column
from netprof.model import Device, LineRate, Meta
from netprof.schema import UNKNOWN_RANK, tables, time_column
from netprof.trace import TraceReader, TraceWriter

_TIMES = ("time_ns", "bin_start_ns", "first_ns", "last_ns", "since_ns", "adopted_ns", "stream_position_ns")
_CLOCKS = ("rtt_us", "busy_us", "rwnd_limited_us", "sndbuf_limited_us")
_LASTING = ("flows", "flow_devices", "flow_paths", "link_changes")
"""Tables whose rows say what holds from then on."""


def make(source: Path, target: Path, within_ns: tuple[int, int], ranks: Mapping[int, int], pace: float) -> Path:
    """Write what `source` holds of some time, with other ranks and at another pace. Returns `target`.

    `pace` is how much longer everything takes; it is rounded so that time bins stay whole.
    """
    reader = TraceReader(source)
    stretch = round(pace * 20)  # of 20: any bin of whole microseconds stays whole

    def moved(times: Any) -> Any:
        return times * stretch // 20

    meta = _meta(reader.meta, within_ns, ranks, stretch / 20)
    series = {each.id for each in meta.series if each.unit == "us"}
    writer = TraceWriter(target, meta, force=True)
    for name in tables():
        for batch in reader.batches(name):
            columns = {each: batch.column(place) for place, each in enumerate(batch.schema.names)}
            rows = _during(batch, name, *within_ns)
            changed = _changed(name, batch, columns, moved, ranks, stretch / 20, series)
            writer.append(name, {each: _taken(values, rows) for each, values in (columns | changed).items()})
    writer.close(meta)
    return target


def _meta(meta: Meta, within_ns: tuple[int, int], ranks: Mapping[int, int], pace: float) -> Meta:
    started_ns, stopped_ns = (int(time_ns * round(pace * 20) // 20) for time_ns in within_ns)
    targets = tuple(replace(each, rank=ranks.get(each.rank, each.rank)) for each in meta.targets)
    devices = tuple(_device(each, pace) for each in meta.devices)
    bin_ns = int(meta.bin_ns * round(pace * 20) // 20)
    return replace(meta, started_ns=started_ns, stopped_ns=stopped_ns, bin_ns=bin_ns, targets=targets, devices=devices)


def _device(device: Device, pace: float) -> Device:
    bps = device.line_rate.bps
    return replace(device, line_rate=LineRate(None if bps is None else bps / pace, device.line_rate.source))


def _during(batch: pa.RecordBatch, name: str, begin_ns: int, end_ns: int) -> Any:
    time = time_column(name)
    if time is None or name in _LASTING:
        return slice(None)
    times = column(batch, time)
    return np.flatnonzero((times >= begin_ns) & (times < end_ns))


def _changed(
    table: str,
    batch: pa.RecordBatch,
    columns: Mapping[str, Any],
    moved: Any,
    ranks: Mapping[int, int],
    pace: float,
    series: set[int],
) -> dict[str, Any]:
    found: dict[str, Any] = {name: moved(column(batch, name)) for name in _TIMES if name in columns}
    if table == "tcp":
        found |= {name: moved(column(batch, name).astype(np.uint64)) for name in _CLOCKS}
    if table == "flows":
        own = column(batch, "rank").tolist()
        found["rank"] = np.array([ranks.get(rank, UNKNOWN_RANK) for rank in own], np.int32)
    if table == "link_changes":
        found |= {name: column(batch, name) / pace for name in ("line_rate_bps", "receive_rate_bps")}
    if table == "counters":
        value, of_time = column(batch, "value"), np.isin(column(batch, "series"), list(series))
        found["value"] = np.where(of_time, moved(value), value)
    return found


def _taken(values: Any, rows: Any) -> Any:
    if isinstance(values, pa.Array):
        return values.to_pylist()[rows] if isinstance(rows, slice) else values.take(pa.array(rows)).to_pylist()
    return values[rows]
