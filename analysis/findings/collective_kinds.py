"""Collectives by kind: how many, how large, and, where their times are true ones, how fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.collectives import Collectives, find_collectives
from netprof.analysis.events.factors import bus_factor
from netprof.analysis.events.horovod import horovod_transfers
from netprof.analysis.events.nccl import Operations
from netprof.analysis.form import Grid, Part
from netprof.analysis.tables.columns import UNKNOWN, Int64
from netprof.analysis.tables.intervals import merge
from netprof.analysis.tables.marks import Marks
from netprof.schema import CollectiveKind, MarkKind
from netprof.units import duration, rate, size

MEASURED, ENQUEUED, POSTED = "measured", "enqueue times only", "times of posting only"
"""What is known of the times of a kind's collectives."""

_HOW_SEEN = {MEASURED: "", ENQUEUED: " enqueued", POSTED: " posted"}
_ORDINARY = {("gloo", "all-reduce"), ("gloo", "barrier"), ("gloo", "unknown")}
_POSTED = {MarkKind.SEND_POSTED: CollectiveKind.SEND, MarkKind.RECEIVE_POSTED: CollectiveKind.RECEIVE}
_OF_ONE_RANK = (CollectiveKind.GATHER, CollectiveKind.SCATTER)  # gloo's sizes are of one rank's part there


@dataclass(frozen=True)
class KindSummary:
    """The collectives of one kind and backend over the whole recording (`definitions.KINDS`).

    `count` and `bytes` are those of the process that took part in the most; `bytes` are of the whole buffers, None
    where no size is known. Bandwidths are bits per second, over all processes: bytes over the time in which any of the
    kind runs. They and `running_ns` (mean of the processes) are None where `timing` is not "measured".
    """

    backend: str
    kind: str
    timing: str
    count: int
    bytes: int | None
    running_ns: int | None
    algorithm_bandwidth_bps: float | None
    bus_bandwidth_bps: float | None


def summarize_kinds(marks: Marks, operations: Operations, world_size: int | None) -> tuple[KindSummary, ...]:
    """Summarise the collectives of each backend by kind, the most bytes first; `operations` are what NCCL enqueued."""
    timed = (("gloo", find_collectives(marks).collectives), ("horovod", horovod_transfers(marks)))
    found = [
        _measured(backend, kind, each.where(each.kind == kind), world_size)
        for backend, each in timed
        for kind in np.unique(each.kind).tolist()
    ]
    for mark, kind in _POSTED.items():
        rows = marks.where(marks.kind == mark)
        if len(rows):
            found.append(_untimed("gloo", kind, POSTED, rows.pid, rows.arg0))
    for kind in np.unique(operations.kind).tolist():
        chosen = operations.where(operations.kind == kind)
        found.append(_untimed("nccl", kind, ENQUEUED, chosen.pid, chosen.bytes))
    return tuple(sorted(found, key=lambda each: (-(each.bytes or 0), each.backend, each.kind)))


def worth_a_part(kinds: Sequence[KindSummary]) -> bool:
    """Say whether there is more than DDP's all-reduces over gloo, which have a part of their own."""
    return any((each.backend, each.kind) not in _ORDINARY for each in kinds)


def kinds_part(kinds: Sequence[KindSummary]) -> Part:
    """Return the table of collectives by kind."""
    headings = ("kind", "backend", "seen", "buffers", "running", "algorithm bw.", "bus bandwidth")
    optional = ("algorithm bw.", "backend", "running")
    grid = Grid(headings, [_row(each) for each in kinds], left=frozenset({"backend"}), optional=optional)
    return Part("Collectives by kind", "of one rank, over the recording", [grid])


def _row(each: KindSummary) -> tuple[str, ...]:
    timed = each.running_ns is not None
    return (
        each.kind,
        each.backend,
        f"{each.count}{_HOW_SEEN[each.timing]}",
        size(each.bytes),
        duration(each.running_ns / 1e9) if each.running_ns is not None else each.timing,
        rate(each.algorithm_bandwidth_bps) if timed else "-",
        rate(each.bus_bandwidth_bps) if timed else "-",
    )


def kind_name(kind: int) -> str:
    """Return how the field writes a kind of collective."""
    if kind == UNKNOWN:
        return "unknown"
    return CollectiveKind(kind).name.lower().replace("_", "-")


def _measured(backend: str, kind: int, each: Collectives, world_size: int | None) -> KindSummary:
    pids = np.unique(each.pid)
    running = [merge(own.begin_ns, own.end_ns).total_ns for own in (each.where(each.pid == pid) for pid in pids)]
    sizes = each.bytes
    if kind in _OF_ONE_RANK:
        sizes = sizes * world_size if world_size else np.full(len(sizes), UNKNOWN)
    sized = bool(len(sizes)) and bool((sizes != UNKNOWN).all()) and kind != CollectiveKind.BARRIER
    total, time_ns = int(sizes.sum()), sum(running)
    speed = total * 8e9 / time_ns if sized and time_ns else None
    factor = bus_factor(kind, world_size)
    count, most = _of_the_most(each.pid, sizes)
    return KindSummary(
        backend=backend,
        kind=kind_name(kind),
        timing=MEASURED,
        count=count,
        bytes=most if sized else None,
        running_ns=time_ns // len(pids),
        algorithm_bandwidth_bps=speed,
        bus_bandwidth_bps=speed * factor if speed is not None and factor is not None else None,
    )


def _untimed(backend: str, kind: int, timing: str, pid: Int64, sizes: Int64) -> KindSummary:
    count, most = _of_the_most(pid, sizes)
    known = bool((sizes != UNKNOWN).all())
    return KindSummary(backend, kind_name(kind), timing, count, most if known else None, None, None, None)


def _of_the_most(pid: Int64, sizes: Int64) -> tuple[int, int]:
    """Return count and bytes of the process with the most rows."""
    pids, counts = np.unique(pid, return_counts=True)
    busiest = pids[np.argmax(counts)]
    return int(counts.max()), int(sizes[pid == busiest].sum())
