"""Collectives by kind: how many, how large, and, where their times are true ones, how fast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from netprof.analysis.declared import Column, added, put_together, table
from netprof.analysis.events.collectives import Collectives, group_sizes
from netprof.analysis.events.factors import bus_factor
from netprof.analysis.events.nccl import Operations
from netprof.analysis.form import Part
from netprof.analysis.tables.columns import UNKNOWN, Int64
from netprof.analysis.tables.intervals import merge
from netprof.schema import Backend, CollectiveKind
from netprof.units import duration, rate, size


class Timing(Enum):
    """What is known of the times of a kind's collectives."""

    MEASURED = "measured"
    ENQUEUED = "enqueue times only"
    POSTED = "times of posting only"


_HOW_SEEN = {Timing.MEASURED: "", Timing.ENQUEUED: " enqueued", Timing.POSTED: " posted"}
_ORDINARY = {("gloo", "all-reduce"), ("gloo", "barrier"), ("gloo", "unknown")}
KIND_NAMES = {int(kind): kind.name.lower().replace("_", "-") for kind in CollectiveKind}
_OF_ONE_RANK = (CollectiveKind.GATHER, CollectiveKind.SCATTER)  # the sizes of marks are of one rank's part there


@dataclass(frozen=True)
class KindSummary:
    """The collectives of one kind and backend over the whole recording (`definitions.KINDS`).

    `count` and `bytes` are those of the process that took part in the most; `bytes` are of the whole buffers, None
    where no size is known. Bandwidths are bits per second, over all processes: bytes over the time in which any of the
    kind runs. They and `running_ns` (mean of the processes) are None where `timing` is not `MEASURED`.
    `bus_factor` is bus over algorithm bandwidth, None where it is unknown.
    """

    backend: str
    kind: str
    timing: Timing
    count: int
    bytes: int | None
    running_ns: int | None
    algorithm_bandwidth_bps: float | None
    bus_factor: float | None = None

    @property
    def bus_bandwidth_bps(self) -> float | None:
        """What each link of the best algorithm carries."""
        if self.algorithm_bandwidth_bps is None or self.bus_factor is None:
            return None
        return self.algorithm_bandwidth_bps * self.bus_factor


def merge_kinds(parts: Sequence[Sequence[KindSummary]]) -> tuple[KindSummary, ...]:
    """Return the summaries over consecutive pieces of a recording as one."""
    return _in_order(put_together(parts, lambda each: (each.backend, each.kind, each.timing), _both))


def _both(a: KindSummary, b: KindSummary) -> KindSummary:
    weights = [a.running_ns or 0, b.running_ns or 0]
    speeds = [a.algorithm_bandwidth_bps, b.algorithm_bandwidth_bps]
    return replace(
        a,
        **added((a, b), "count bytes"),
        running_ns=sum(weights) if a.running_ns is not None else None,
        algorithm_bandwidth_bps=_mean(speeds, weights),
        bus_factor=_mean([a.bus_factor, b.bus_factor], [a.bytes or 0, b.bytes or 0]),
    )


def _mean(values: Sequence[float | None], weights: Sequence[int]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.average(known, weights=weights)) if len(known) == len(values) and any(weights) else None


def _in_order(kinds: Iterable[KindSummary]) -> tuple[KindSummary, ...]:
    return tuple(sorted(kinds, key=lambda each: (-(each.bytes or 0), each.backend, each.kind)))


def summarize_kinds(
    timed: Collectives, posted: Collectives, operations: Operations, world_size: int | None
) -> tuple[KindSummary, ...]:
    """Summarise the collectives of each backend by kind, the most bytes first.

    `timed` are those whose begin and end were seen, `posted` those that were only seen to begin; `operations` are what
    NCCL enqueued.
    """
    kinds = [
        _measured(backend, kind, timed.where((timed.backend == backend) & (timed.kind == kind)), world_size)
        for backend, kind in _pairs(timed.backend, timed.kind)
    ]
    for backend, kind in _pairs(posted.backend, posted.kind):
        of_kind = posted.where((posted.backend == backend) & (posted.kind == kind))
        kinds.append(_untimed(backend, kind, Timing.POSTED, of_kind.pid, _whole_sizes(of_kind, kind, world_size)))
    for kind in np.unique(operations.kind).tolist():
        chosen = operations.where(operations.kind == kind)
        kinds.append(_untimed(Backend.NCCL, kind, Timing.ENQUEUED, chosen.pid, chosen.bytes))
    return _in_order(kinds)


def worth_a_part(kinds: Sequence[KindSummary]) -> bool:
    """Say whether there is more than DDP's all-reduces over gloo, which have a part of their own."""
    return any((each.backend, each.kind) not in _ORDINARY for each in kinds)


def kinds_part(kinds: Sequence[KindSummary]) -> Part:
    """Return the table of collectives by kind."""
    return Part("Collectives by kind", "of one rank, over the recording", [table(_COLUMNS, kinds)])


def _timed(each: KindSummary, bps: float | None) -> str:
    return rate(bps) if each.running_ns is not None else "-"


_COLUMNS = (
    Column("kind", "kind"),
    Column("backend", "backend", left=True, goes=2),
    Column("seen", lambda each: f"{each.count}{_HOW_SEEN[each.timing]}"),
    Column("buffers", "bytes", size),
    Column("running", lambda e: e.timing.value if e.running_ns is None else duration(e.running_ns / 1e9), goes=3),
    Column("algorithm bw.", lambda each: _timed(each, each.algorithm_bandwidth_bps), goes=1),
    Column("bus bandwidth", lambda each: _timed(each, each.bus_bandwidth_bps)),
)


def kind_name(kind: int) -> str:
    """Return how the field writes a kind of collective."""
    return KIND_NAMES.get(kind, "unknown")


def _measured(backend: int, kind: int, collectives: Collectives, world_size: int | None) -> KindSummary:
    pids = np.unique(collectives.pid)
    running = [merge(rows.begin_ns, rows.end_ns).total_ns for rows in (collectives.of_pid(pid) for pid in pids)]
    ranks, sizes = group_sizes(collectives, world_size), _whole_sizes(collectives, kind, world_size)
    sized = bool(len(sizes)) and bool((sizes != UNKNOWN).all()) and kind != CollectiveKind.BARRIER
    time_ns = sum(running)
    speed = int(sizes.sum()) * 8e9 / time_ns if sized and time_ns else None
    factor = _mean_factor(kind, sizes, ranks) if sized else None
    count, most = _of_the_most(collectives.pid, sizes)
    return KindSummary(
        backend=Backend.name_of(backend),
        kind=kind_name(kind),
        timing=Timing.MEASURED,
        count=count,
        bytes=most if sized else None,
        running_ns=time_ns // len(pids),
        algorithm_bandwidth_bps=speed,
        bus_factor=factor,
    )


def _pairs(backend: Int64, kind: Int64) -> list[tuple[int, int]]:
    return sorted(set(zip(backend.tolist(), kind.tolist(), strict=True)))


def _whole_sizes(collectives: Collectives, kind: int, world_size: int | None) -> Int64:
    """Return the bytes of whole buffers, also where the marks tell them of one rank's part."""
    if kind not in _OF_ONE_RANK:
        return collectives.bytes
    ranks = group_sizes(collectives, world_size)
    return np.where((collectives.bytes == UNKNOWN) | (ranks == UNKNOWN), UNKNOWN, collectives.bytes * ranks)


def _mean_factor(kind: int, sizes: Int64, ranks: Int64) -> float | None:
    """Return the bus factor of collectives in groups of different sizes, by their bytes; None if one is unknown."""
    total, moved = int(sizes.sum()), 0.0
    for count in np.unique(ranks).tolist():
        factor = bus_factor(kind, None if count == UNKNOWN else count)
        if factor is None:
            return None
        moved += factor * int(sizes[ranks == count].sum())
    return moved / total if total else None


def _untimed(backend: int, kind: int, timing: Timing, pid: Int64, sizes: Int64) -> KindSummary:
    count, most = _of_the_most(pid, sizes)
    known = bool((sizes != UNKNOWN).all())
    return KindSummary(Backend.name_of(backend), kind_name(kind), timing, count, most if known else None, None, None)


def _of_the_most(pid: Int64, sizes: Int64) -> tuple[int, int]:
    """Return count and bytes of the process with the most rows."""
    pids, counts = np.unique(pid, return_counts=True)
    busiest = pids[np.argmax(counts)]
    return int(counts.max()), int(sizes[pid == busiest].sum())
