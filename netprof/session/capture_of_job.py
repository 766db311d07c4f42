"""A packet capture of a recorded job: the job's trace with the capture's flows in place of the recorded ones.

Marks, ranks and counters are the job's. A flow that both saw keeps its number, and has the capture's bytes in the time
bins that the capture covers whole. TCP connections that the recording does not have are not the job's, and left out;
queue pairs at an address of the job are the job's, for no recording has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from netprof.errors import NetprofError
from netprof.files import OutputPlace
from netprof.model import Device, Meta, StartedProbe
from netprof.probes.capture.capture import Capture
from netprof.probes.capture.clock import ClockMatch, Passed, match_clock
from netprof.probes.capture.file import CaptureFile
from netprof.probes.capture.flow_book import End, FlowBook, Owner
from netprof.probes.probe import Columns
from netprof.schema import SCHEMA_VERSION, TCP, UNKNOWN_RANK, tables
from netprof.session.capture import CaptureOptions, OnProgress, line_rate, losses, notes_of
from netprof.trace import TraceReader, TraceWriter
from netprof.trace.columns import select, to_numpy
from netprof.trace.ring import is_ring
from netprof.trace.writer import require_apart
from netprof.units import count, duration
from netprof.version import __version__

_OLDEST = 3  # before it, a recording does not say where streams stand
_Tuple = tuple[str, int, str, int]


class JobFlows:
    """The flows of a recording, and whose a flow of the capture therefore is."""

    def __init__(self, reader: TraceReader, host: str | None) -> None:
        self._rows = reader.table("flows").to_pylist()
        self._by_name: dict[_Tuple, list[dict[str, Any]]] = {}
        for row in self._rows:
            name = row["local_addr"], row["local_port"], row["remote_addr"], row["remote_port"]
            self._by_name.setdefault(name, []).append(row)
        self._began_ns = _first_times(reader)
        self._places = {row["local_addr"]: row for row in self._rows}
        if host is not None and host not in self._places:
            self._places[host] = _place_of(host, reader.meta)
        self.matched: set[int] = set()
        self.strangers = 0
        self.elsewhere: set[str] = set()  # ends of queue pairs that are at no address of the job
        self.new_devices: set[tuple[int, str]] = set()

    @property
    def next_id(self) -> int:
        """A number that no flow has, and none above it."""
        return max((int(row["flow_id"]) for row in self._rows), default=0) + 1

    def owner_of(self, end: End, time_ns: int) -> Owner | None:
        """Return whose flow an end of a captured connection is."""
        if end.ends.protocol == TCP:
            return self._recorded(end, time_ns)
        return self._of_queue_pair(end)

    def _recorded(self, end: End, time_ns: int) -> Owner | None:
        rows = self._by_name.get((*end.local, *end.remote), [])
        if not rows:
            self.strangers += end.local[0] in self._places
            return None
        # Ports are used again: it is the one that began nearest to when the capture first saw it.
        row = min(rows, key=lambda row: abs(self._began_ns.get(row["flow_id"], 0) - time_ns))
        self.matched.add(row["flow_id"])
        return Owner(row["netns"], row["device"], row["pid"], row["rank"], row["flow_id"])

    def _of_queue_pair(self, end: End) -> Owner | None:
        row = self._places.get(end.local[0])
        if row is None:
            self.elsewhere.add(end.local[0])
            return None
        there = {(each["pid"], each["rank"]) for each in self._rows if each["local_addr"] == end.local[0]}
        pid, rank = there.pop() if len(there) == 1 else (row["pid"], row["rank"]) if not there else (0, UNKNOWN_RANK)
        self.new_devices.add((row["netns"], row["device"]))
        return Owner(row["netns"], row["device"], pid, rank)


def _place_of(host: str, meta: Meta) -> dict[str, Any]:
    """Return what is known of an address that only the person named: the job's one process, if there is one."""
    alone = meta.targets[0] if len(meta.targets) == 1 else None
    return {
        "netns": meta.targets[0].netns if meta.targets else 0,
        "device": host,
        "pid": alone.pid if alone else 0,
        "rank": alone.rank if alone else UNKNOWN_RANK,
    }


def _first_times(reader: TraceReader) -> dict[int, int]:
    first_ns: dict[int, int] = {}
    for batch in reader.batches("wire"):
        for row in pa.table(batch).group_by("flow_id").aggregate([("first_ns", "min")]).to_pylist():
            first_ns[row["flow_id"]] = min(first_ns.get(row["flow_id"], row["first_ns_min"]), row["first_ns_min"])
    return first_ns


def import_beside(
    path: Path, trace: Path, out: Path | OutputPlace, options: CaptureOptions, on_progress: OnProgress
) -> Meta:
    """Write the trace `out` from a recording and a capture of the same job.

    Raises NetprofError for a capture that has nothing of the recording, TraceError for what is no trace.
    """
    require_apart(trace, out)
    if is_ring(trace):
        raise NetprofError(f"{trace} is a ring", "make a trace of what it holds by 'netprof save', and name that one")
    reader = TraceReader(trace)
    if reader.meta.schema_version < _OLDEST:
        raise NetprofError(f"{trace} does not say where streams stood: it is too old", "record the job again")
    jobs = JobFlows(reader, options.host)
    matching = _match(path, reader, jobs, on_progress)
    inside = _whole_bins(matching.span_ns, reader.meta.bin_ns)
    jobs = JobFlows(reader, options.host)
    with CaptureFile(path) as file:
        series = 1 + max((each.id for each in reader.meta.series), default=-1)
        capture = Capture(
            file,
            FlowBook(jobs.owner_of, jobs.next_id),
            reader.meta.bin_ns,
            offset_ns=matching.offset_ns,
            first_series=series,
        )
        first = replace(reader.meta, schema_version=SCHEMA_VERSION)
        with TraceWriter(out, first, force=options.force) as writer:
            _write(writer, capture, file, reader, jobs, inside, on_progress)
            meta = _described(reader.meta, capture, file, jobs, matching, options)
            writer.close(meta)
    return meta


def _match(path: Path, reader: TraceReader, jobs: JobFlows, on_progress: OnProgress) -> ClockMatch:
    """Read the capture once for when its packets passed, on the recording's clock. Raises NetprofError."""
    clock, meta = reader.meta.clock, reader.meta
    with CaptureFile(path) as file:
        book = FlowBook(jobs.owner_of, jobs.next_id)
        capture = Capture(file, book, meta.bin_ns, offset_ns=clock.monotonic_ns - clock.realtime_ns)
        matching = match_clock(capture, Passed(reader.batches("wire")), lambda: on_progress(*file.progress))
    last_ns = meta.stopped_ns if meta.stopped_ns is not None else np.iinfo(np.int64).max
    first_ns, end_ns = matching.span_ns
    if not jobs.matched and not jobs.new_devices:
        raise NetprofError(f"none of the recording's flows is in {path}", "name a capture of the same job")
    if end_ns < meta.started_ns or first_ns > last_ns:
        raise NetprofError(f"{path} was captured at another time than the recording", "name one of the same seconds")
    return matching


def _whole_bins(span_ns: tuple[int, int], bin_ns: int) -> tuple[int, int]:
    """Return from when to when the time bins lie that a span covers whole."""
    return -(-span_ns[0] // bin_ns) * bin_ns, (span_ns[1] + 1) // bin_ns * bin_ns


def _write(
    writer: TraceWriter,
    capture: Capture,
    file: CaptureFile,
    reader: TraceReader,
    jobs: JobFlows,
    inside: tuple[int, int],
    on_progress: OnProgress,
) -> None:
    # The bins in which the recording begins and ends are not whole in it: they stay what was recorded.
    last_ns = reader.meta.stopped_ns if reader.meta.stopped_ns is not None else np.iinfo(np.int64).max
    recorded = _whole_bins((reader.meta.started_ns, last_ns - 1), reader.meta.bin_ns)
    window = max(inside[0], recorded[0]), min(inside[1], recorded[1])
    for table, columns in capture.tables():
        kept = _between(columns, window) if table == "wire" else columns
        writer.append(table, kept)
        on_progress(*file.progress)
    for table in tables():
        for batch in reader.batches(table):
            kept_rows = _without(batch, jobs.matched, window) if table == "wire" else batch
            writer.append_batch(table, _without_nulls(kept_rows))


def _between(columns: Columns, window: tuple[int, int]) -> Columns:
    begin = np.asarray(columns["bin_start_ns"])
    rows = (begin >= window[0]) & (begin < window[1])
    return columns if rows.all() else {name: np.asarray(values)[rows] for name, values in columns.items()}


def _without(batch: pa.RecordBatch, flows: set[int], window: tuple[int, int]) -> pa.RecordBatch:
    """Return rows of `wire` but for those of some flows in a window, which the capture has."""
    begin = to_numpy(batch.column("bin_start_ns"))
    replaced = np.isin(to_numpy(batch.column("flow_id")), list(flows))
    return select(batch, ~(replaced & (begin >= window[0]) & (begin < window[1])))


def _without_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in which what recordings of their schema did not know is 0 or ""."""
    columns = [column.fill_null("" if pa.types.is_string(column.type) else 0) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _described(
    job: Meta, capture: Capture, file: CaptureFile, jobs: JobFlows, matching: ClockMatch, options: CaptureOptions
) -> Meta:
    known = {(each.netns, each.device) for each in job.devices}
    new = sorted(jobs.new_devices - known)
    detail = f"the bytes of {count(len(jobs.matched), 'flow')} are the capture's"
    return replace(
        job,
        schema_version=SCHEMA_VERSION,
        netprof_version=__version__,
        devices=job.devices + tuple(Device(device, netns, line_rate(options)) for netns, device in new),
        series=job.series + capture.series,
        probes_started=(*job.probes_started, StartedProbe("capture", detail)),
        warnings=(*job.warnings, *_beside(jobs, matching), *notes_of(capture, file)),
        losses=job.losses + losses(capture),
    )


def _beside(jobs: JobFlows, matching: ClockMatch) -> Iterator[str]:
    if matching.places:
        yield (
            f"the capture's clock is put on the recording's by {count(matching.places, 'place')} of streams that both "
            f"saw: within {duration(matching.residual_ns / 1e9)} (the clocks by themselves were "
            f"{duration(abs(matching.correction_ns) / 1e9)} apart)"
        )
    else:
        yield (
            "the capture's clock is put on the recording's by what both clocks read when the recording began: no "
            "stream that both saw says how well"
        )
    if jobs.strangers:
        yield f"left out: {count(jobs.strangers, 'connection')} of the capture, not of the job"
    if jobs.elsewhere and not jobs.new_devices:
        some = ", ".join(sorted(jobs.elsewhere)[:4])
        yield f"the capture's RoCE packets are at no address of the job's flows: name its own with --host ({some})"
