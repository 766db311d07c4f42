"""Recorded traces as they would be if less were seen: without the ends of anything, or of a GPU that is far behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from netprof.schema import MarkKind as K
from netprof.trace.columns import to_numpy

ENDS = (
    K.COLLECTIVE_END,
    K.WORK_WAIT,
    K.BUCKET_DONE,
    K.DDP_STATS,
    K.POSTED_WAIT_OVER,
    K.HOROVOD_TRANSFER,
    K.HOROVOD_UNPACK,
    K.HOROVOD_DONE,
)
"""What tells that something is done."""

Int64 = npt.NDArray[np.int64]
Columns = dict[str, Any]


def without(trace: Path, out: Path, kinds: Collection[K]) -> Path:
    """Write a trace as another one without some kinds of marks."""
    return _rewritten(trace, out, lambda marks: _where(marks, ~np.isin(marks["kind"], [int(k) for k in kinds])))


def only(trace: Path, out: Path, kinds: Collection[K]) -> Path:
    """Write a trace as another one with some kinds of marks, and none else."""
    return _rewritten(trace, out, lambda marks: _where(marks, np.isin(marks["kind"], [int(k) for k in kinds])))


def on_gpu(trace: Path, out: Path, ahead: float) -> Path:
    """Write the trace of a gloo job with DDP as if NCCL performed it on GPUs, with a host that is `ahead`.

    The host launches the backward pass so many times as fast as the GPU computes it, and waits for nothing before its
    next forward pass. So all marks of a pass come earlier, the more so the later they are; bytes are where they were.
    """
    return _rewritten(trace, out, lambda marks: _enqueued(marks, ahead))


def _enqueued(marks: Columns, ahead: float) -> Columns:
    shifted = []
    for pid in np.unique(marks["pid"]).tolist():
        own = _where(marks, marks["pid"] == pid)
        own = _where(own, np.argsort(own["time_ns"], kind="stable"))
        sizes = own["arg0"][own["kind"] == K.COLLECTIVE_SIZE] * own["arg1"][own["kind"] == K.COLLECTIVE_SIZE]
        kept = _where(own, np.isin(own["kind"], _LAUNCHING))
        forward = np.sort(kept["time_ns"][kept["kind"] == K.DDP_FORWARD])
        if len(forward) == 0:
            continue
        row = np.maximum(np.searchsorted(forward, kept["time_ns"], "right") - 1, 0)
        kept["time_ns"] = forward[row] + ((kept["time_ns"] - forward[row]) / ahead).astype(np.int64)
        shifted += [kept, _operations(kept, sizes)]
    return {name: np.concatenate([each[name] for each in shifted]) for name in marks}


_LAUNCHING = [int(kind) for kind in (K.DDP_FORWARD, K.DDP_BACKWARD, K.BUCKET_LAUNCH, K.DDP_WAIT, K.OPTIMIZER_STEP)]


def _operations(own: Columns, sizes: Any) -> Columns:
    """Return the all-reduce of every bucket, of float32; sizes are those of the all-reduces, in their order."""
    launches = _where(own, own["kind"] == K.BUCKET_LAUNCH)
    count = min(len(sizes), len(launches["kind"]))
    launches = _where(launches, np.arange(count))
    launches["time_ns"] = launches["time_ns"] + 1000
    launches["kind"] = np.full(count, int(K.NCCL_ALL_REDUCE), launches["kind"].dtype)
    launches["arg0"] = sizes[:count] // 4
    launches["arg1"] = np.full(count, 0x1000 << 8 | 7, np.uint64)
    launches["arg2"] = np.full(count, 0x7000, np.uint64)
    return launches


def _where(marks: Columns, rows: Any) -> Columns:
    return {name: values[rows] for name, values in marks.items()}


def _rewritten(trace: Path, out: Path, change: Callable[[Columns], Columns]) -> Path:
    shutil.copytree(trace, out)
    path = out / "marks.arrows"
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        table = stream.read_all()
    columns = {name: to_numpy(table.column(name).combine_chunks()) for name in table.column_names}
    changed = change({name: np.array(values) for name, values in columns.items()})
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(pa.table({name: changed[name] for name in table.column_names}, schema=table.schema))
    return out
