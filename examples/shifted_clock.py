"""A trace as it would be had its host another clock: what the comparison of clocks is tried with.

    shift(Path("b.netprof"), Path("shifted.netprof"), offset_ns=500_000_000, drift=50e-6)

Every time is moved; the realtime clock stays as wrong as it was, but for `realtime_error_ns`. The copy is of another
boot, or its clock would be taken for that of the machine it was recorded on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from netprof.analysis.tables.columns import column
from netprof.model import Clock, Meta
from netprof.schema import tables, time_column
from netprof.session.progress import OutsideTotals
from netprof.trace import TraceReader, TraceWriter

_TIMES = ("time_ns", "bin_start_ns", "first_ns", "last_ns", "since_ns", "adopted_ns", "stream_position_ns")
_MAY_BE_NONE = ("adopted_ns", "stream_position_ns")


def shift(
    source: Path,
    target: Path,
    offset_ns: int = 0,
    drift: float = 0.0,
    *,
    host: str = "",
    realtime_error_ns: int = 0,
    pids: Collection[int] | None = None,
    within_ns: tuple[int, int] | None = None,
) -> Path:
    """Write `source` with a clock that reads `offset_ns` more at its beginning, and gains `drift` s a second from then.

    Of `pids`, only the rows of these processes; `within_ns`, only those of that time of the old clock. Returns
    `target`. Raises TraceError.
    """
    reader = TraceReader(source)
    meta = reader.meta
    if within_ns is not None:
        meta = replace(meta, started_ns=within_ns[0], stopped_ns=within_ns[1])

    def moved(times: Any) -> Any:
        gained = np.rint((times - meta.started_ns) * drift).astype(np.int64)
        return times + offset_ns + gained

    wanted = {each.pid for each in meta.targets} if pids is None else set(pids)
    targets = tuple(each for each in meta.targets if each.pid in wanted)
    namespaces = {each.netns for each in targets}
    devices = tuple(each for each in meta.devices if pids is None or each.netns in namespaces)
    shifted = replace(_meta(meta, moved, host, realtime_error_ns), targets=targets, devices=devices)
    writer = TraceWriter(target, shifted, force=True)
    flows = column(reader.table("flows"), "flow_id")
    if pids is not None:
        flows = flows[np.isin(column(reader.table("flows"), "pid"), list(pids))]
    outside = OutsideTotals()
    for name in tables():
        for batch in reader.batches(name):
            if within_ns is not None:
                during = _during(batch, name, *within_ns)
                if name in ("wire", "outside"):
                    outside.add(_columns(batch, moved), ~during)
                batch = batch.filter(pa.array(during))
            writer.append(name, _columns(batch if pids is None else _of(batch, flows, pids, namespaces), moved))
    if outside:
        rows = pa.RecordBatch.from_pydict(dict(outside.columns(meta.stopped_ns or 0)), schema=tables()["outside"])
        writer.append("outside", _columns(rows if pids is None else _of(rows, flows, pids, namespaces), moved))
    writer.close(shifted)
    return target


def _meta(meta: Meta, moved: Any, host: str, realtime_error_ns: int) -> Meta:
    started, stopped, monotonic = (
        int(moved(np.array([time], np.int64))[0])
        for time in (meta.started_ns, meta.stopped_ns or meta.started_ns, meta.clock.monotonic_ns)
    )
    return replace(
        meta,
        host=host or meta.host,
        boot_id=f"{meta.boot_id}, {host}" if host else meta.boot_id,
        clock=Clock(monotonic, meta.clock.realtime_ns + realtime_error_ns),
        started_ns=started,
        stopped_ns=None if meta.stopped_ns is None else stopped,
    )


def _of(batch: pa.RecordBatch, flows: Any, pids: Collection[int], namespaces: Collection[int]) -> pa.RecordBatch:
    """Return the rows of some processes, and of the devices in their namespaces; other counters are everybody's."""
    for name, wanted in (("flow_id", flows), ("pid", pids), ("netns", namespaces)):
        if name in batch.schema.names:
            return batch.filter(pa.array(np.isin(column(batch, name).astype(np.int64), list(wanted))))
    return batch


def _during(batch: pa.RecordBatch, name: str, begin_ns: int, end_ns: int) -> npt.NDArray[np.bool_]:
    """Return which rows are of a time; all, where they have none."""
    time = time_column(name)
    if time is None:
        return np.ones(batch.num_rows, bool)
    times = column(batch, time)
    return np.asarray((times >= begin_ns) & (times < end_ns))


def _columns(batch: pa.RecordBatch, moved: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in batch.schema:
        if pa.types.is_string(field.type):
            found[field.name] = batch.column(field.name).to_pylist()
            continue
        values = column(batch, field.name)
        if field.name in _TIMES:
            values = np.where(values > 0, moved(values), values) if field.name in _MAY_BE_NONE else moved(values)
        found[field.name] = values
    return found
