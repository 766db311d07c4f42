"""Collectives by kind: how many, how large, and, where their times are true ones, how fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.collectives import Collectives, group_sizes
from netprof.analysis.events.factors import bus_factor
from netprof.analysis.events.nccl import Operations
from netprof.analysis.form import Grid, Part
from netprof.analysis.tables.columns import UNKNOWN, Int64
from netprof.analysis.tables.intervals import merge
from netprof.schema import Backend, CollectiveKind
from netprof.units import duration, rate, size

MEASURED, ENQUEUED, POSTED = "measured", "enqueue times only", "times of posting only"
"""What is known of the times of a kind's collectives."""

_HOW_SEEN = {MEASURED: "", ENQUEUED: " enqueued", POSTED: " posted"}
_ORDINARY = {("gloo", "all-reduce"), ("gloo", "barrier"), ("gloo", "unknown")}
_KIND_NAMES = {int(kind): kind.name.lower().replace("_", "-") for kind in CollectiveKind}
_BACKEND_NAMES = {int(backend): backend.name.lower() for backend in Backend}
_OF_ONE_RANK = (CollectiveKind.GATHER, CollectiveKind.SCATTER)  # the sizes of marks are of one rank's part there


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


def summarize_kinds(
    timed: Collectives, posted: Collectives, operations: Operations, world_size: int | None
) -> tuple[KindSummary, ...]:
    """Summarise the collectives of each backend by kind, the most bytes first.

    `timed` are those whose begin and end were seen, `posted` those that were only seen to begin; `operations` are what
    NCCL enqueued.
    """
    found = [
        _measured(backend, kind, timed.where((timed.backend == backend) & (timed.kind == kind)), world_size)
        for backend, kind in _pairs(timed.backend, timed.kind)
    ]
    for backend, kind in _pairs(posted.backend, posted.kind):
        each = posted.where((posted.backend == backend) & (posted.kind == kind))
        found.append(_untimed(backend, kind, POSTED, each.pid, _whole_sizes(each, kind, world_size)))
    for kind in np.unique(operations.kind).tolist():
        chosen = operations.where(operations.kind == kind)
        found.append(_untimed(Backend.NCCL, kind, ENQUEUED, chosen.pid, chosen.bytes))
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
    return _KIND_NAMES.get(kind, "unknown")


def backend_name(backend: int) -> str:
    """Return the name of what performs a collective."""
    return _BACKEND_NAMES.get(backend, "unknown")


def _measured(backend: int, kind: int, each: Collectives, world_size: int | None) -> KindSummary:
    pids = np.unique(each.pid)
    running = [merge(own.begin_ns, own.end_ns).total_ns for own in (each.where(each.pid == pid) for pid in pids)]
    ranks, sizes = group_sizes(each, world_size), _whole_sizes(each, kind, world_size)
    sized = bool(len(sizes)) and bool((sizes != UNKNOWN).all()) and kind != CollectiveKind.BARRIER
    time_ns = sum(running)
    speed = int(sizes.sum()) * 8e9 / time_ns if sized and time_ns else None
    factor = _mean_factor(kind, sizes, ranks) if sized else None
    count, most = _of_the_most(each.pid, sizes)
    return KindSummary(
        backend=backend_name(backend),
        kind=kind_name(kind),
        timing=MEASURED,
        count=count,
        bytes=most if sized else None,
        running_ns=time_ns // len(pids),
        algorithm_bandwidth_bps=speed,
        bus_bandwidth_bps=speed * factor if speed is not None and factor is not None else None,
    )


def _pairs(backend: Int64, kind: Int64) -> list[tuple[int, int]]:
    return sorted(set(zip(backend.tolist(), kind.tolist(), strict=True)))


def _whole_sizes(each: Collectives, kind: int, world_size: int | None) -> Int64:
    """Return the bytes of whole buffers, also where the marks tell them of one rank's part."""
    if kind not in _OF_ONE_RANK:
        return each.bytes
    ranks = group_sizes(each, world_size)
    return np.where((each.bytes == UNKNOWN) | (ranks == UNKNOWN), UNKNOWN, each.bytes * ranks)


def _mean_factor(kind: int, sizes: Int64, ranks: Int64) -> float | None:
    """Return the bus factor of collectives in groups of different sizes, by their bytes; None if one is unknown."""
    total, moved = int(sizes.sum()), 0.0
    for count in np.unique(ranks).tolist():
        factor = bus_factor(kind, None if count == UNKNOWN else count)
        if factor is None:
            return None
        moved += factor * int(sizes[ranks == count].sum())
    return moved / total if total else None


def _untimed(backend: int, kind: int, timing: str, pid: Int64, sizes: Int64) -> KindSummary:
    count, most = _of_the_most(pid, sizes)
    known = bool((sizes != UNKNOWN).all())
    return KindSummary(backend_name(backend), kind_name(kind), timing, count, most if known else None, None, None, None)


def _of_the_most(pid: Int64, sizes: Int64) -> tuple[int, int]:
    """Return count and bytes of the process with the most rows."""
    pids, counts = np.unique(pid, return_counts=True)
    busiest = pids[np.argmax(counts)]
    return int(counts.max()), int(sizes[pid == busiest].sum())
