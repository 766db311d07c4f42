"""Digests: thin traces, `DIR/job=JOB/host=HOST/`, one of each host, that are read like the traces they are made of.

A digest has the tables of its trace but for what no report rests on, packed in large batches. With a `bin_ns` wider
than the trace's its bytes are summed up by that: some times smaller, and its times no finer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from netprof.errors import TraceError
from netprof.files import OutputPlace, matching, status_of
from netprof.model import Meta
from netprof.schema import MarkKind, tables
from netprof.trace.columns import select, to_arrow, to_numpy
from netprof.trace.source import TraceSource
from netprof.trace.writer import TraceWriter

NOT_HELD = ("gradients as they are ready", "predictions")
"""What a report of traces may say that one of digests does not."""
OLD_FILE = "_digest.json"
"""What a digest of netprof before this one has."""
_JOB, _HOST = "job=", "host="
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_AT_ONCE = 1 << 16
_LEVEL = 12
"""Of zstd: a digest is written once, and kept."""
_SUMS = ("payload_bytes", "wire_bytes", "retransmitted_bytes", "packets")


def made_name(text: str) -> str:
    """Return a text as the value of a partition: a name of a folder that no program reads as anything else."""
    return _UNSAFE.sub("-", text)[:100].strip(".-") or "unnamed"


def job_of(folder: Path) -> tuple[Path, str] | None:
    """Return where the digests of jobs lie, and which job's a folder is; None where its name does not say."""
    path = folder.absolute()
    return (path.parent, path.name.removeprefix(_JOB)) if path.name.startswith(_JOB) else None


def is_of_a_job(name: str) -> bool:
    """Say whether a folder is called as those that hold the digests of a job."""
    return name.startswith(_JOB)


def job_folder(root: Path, job: str) -> Path:
    """Return where the digests of a job lie."""
    return root / f"{_JOB}{made_name(job)}"


def host_folder(root: Path, job: str, host: str) -> Path:
    """Return where the digest of one host of a job lies."""
    return job_folder(root, job) / f"{_HOST}{made_name(host)}"


def check_not_old(path: Path) -> None:
    """Raise TraceError for a digest of before digests were traces."""
    if status_of(path / OLD_FILE) is not None or any(matching(path, f"{at}{OLD_FILE}") for at in ("*/", f"{_JOB}*/*/")):
        raise TraceError(f"{path} is a digest of an older netprof", "make it again from its traces: netprof digest")


def write_digest(reader: TraceSource, place: OutputPlace, host: str, bin_ns: int | None, *, force: bool) -> None:
    """Write the digest of the trace of one host, which is called `host`. Raises TraceError, OSError."""
    meta = replace(reader.meta, host=host, digest=True, bin_ns=max(bin_ns or 0, reader.meta.bin_ns))
    with TraceWriter(place, replace(meta, stopped_ns=None), force=force, level=_LEVEL) as writer:
        for name in tables():
            for batch in _packed(thin(reader, name, meta)):
                writer.append_batch(name, batch)
        writer.close(replace(meta, damage=tuple(reader.damage)))


def thin(reader: TraceSource, name: str, meta: Meta) -> Iterator[pa.RecordBatch]:
    """Yield what a digest holds of a table."""
    for batch in _packed(reader.batches(name)) if name == "wire" else reader.batches(name):
        if name == "marks":
            yield select(batch, to_numpy(batch.column("kind")) != MarkKind.GRADIENT_READY)
        elif name == "wire" and meta.bin_ns > reader.meta.bin_ns:
            yield in_wider_bins(batch, reader.meta.bin_ns, meta.bin_ns)
        else:
            yield batch


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches as few large ones."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= _AT_ONCE:
            yield from _in_one(held)
            held = []
    if held:
        yield from _in_one(held)


def _in_one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()


def in_wider_bins(batch: pa.RecordBatch, own_bin_ns: int, bin_ns: int) -> pa.RecordBatch:
    """Return rows of `wire` with those of one flow, direction and wider bin as one; what is of no bin stays apart."""
    known = [name for name in batch.schema.names if not batch.column(name).null_count]  # others are of a later schema
    rows = {name: to_numpy(batch.column(name)).astype(np.int64) for name in known}
    bins = rows["bin_start_ns"] // bin_ns
    apart = np.where(rows["last_ns"] - rows["bin_start_ns"] > own_bin_ns, np.arange(batch.num_rows), -1)
    order = np.lexsort((rows["last_ns"], apart, bins, rows["direction"], rows["flow_id"]))
    keys = np.stack([each[order] for each in (rows["flow_id"], rows["direction"], bins, apart)])
    first = np.flatnonzero(np.append(True, (np.diff(keys) != 0).any(axis=0))[: batch.num_rows])
    last = np.append(first[1:], batch.num_rows) - 1
    wide = {name: values[order][last] for name, values in rows.items()}
    wide |= {name: np.add.reduceat(rows[name][order], first) for name in _SUMS}
    wide["first_ns"] = np.minimum.reduceat(rows["first_ns"][order], first)
    wide["bin_start_ns"] = np.where(keys[3][first] < 0, keys[2][first] * bin_ns, wide["bin_start_ns"])
    if "stream_position_ns" in rows:
        places = np.where(rows["stream_position_ns"][order] > 0, np.arange(batch.num_rows), -1)
        seen = np.maximum.accumulate(places)[last]
        for name in ("stream_position", "stream_position_ns"):
            wide[name] = np.where(seen >= first, rows[name][order][seen], 0)
    by_time = np.argsort(wide["bin_start_ns"], kind="stable")
    columns = [
        to_arrow(wide[field.name][by_time], field.type) if field.name in wide else pa.nulls(len(first), field.type)
        for field in batch.schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
