"""NCCL: what was enqueued, on how many ranks, and what the wire did between one launch and the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.declared import added
from netprof.analysis.events.factors import sends_the_same, sent_per_byte
from netprof.analysis.events.sizes import bytes_of
from netprof.analysis.tables.columns import UNKNOWN, Columns, Int64, concatenate
from netprof.analysis.tables.marks import Marks
from netprof.analysis.wire.bins import Bins
from netprof.schema import NCCL_ELEMENT_BYTES, CollectiveKind, MarkKind

_KINDS = {
    MarkKind.NCCL_ALL_REDUCE: CollectiveKind.ALL_REDUCE,
    MarkKind.NCCL_ALL_GATHER: CollectiveKind.ALL_GATHER,
    MarkKind.NCCL_REDUCE_SCATTER: CollectiveKind.REDUCE_SCATTER,
    MarkKind.NCCL_BROADCAST: CollectiveKind.BROADCAST,
    MarkKind.NCCL_REDUCE: CollectiveKind.REDUCE,
    MarkKind.NCCL_ALL_TO_ALL: CollectiveKind.ALL_TO_ALL,
    MarkKind.NCCL_GATHER: CollectiveKind.GATHER,
    MarkKind.NCCL_SCATTER: CollectiveKind.SCATTER,
    MarkKind.NCCL_SEND: CollectiveKind.SEND,
    MarkKind.NCCL_RECEIVE: CollectiveKind.RECEIVE,
}
_COUNTS_ONE_PART = (
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.GATHER,
    CollectiveKind.SCATTER,
)  # NCCL counts the elements of one rank's part there; the buffer has as many parts as ranks

_ELEMENT_BYTES = np.array(NCCL_ELEMENT_BYTES)

LAUNCH_GAP_NS = 1_000_000
"""Operations that are enqueued closer together than this are one launch."""


@dataclass(frozen=True, eq=False)
class Operations(Columns):
    """What was enqueued, by time: `time_ns` is when, and says nothing about when it ran.

    `ranks` are those of the communicator; `bytes` is the size of the whole buffer, as nccl-tests counts it. Both are
    UNKNOWN where the size of the communicator is, `bytes` also for a data type that is newer than this program.
    """

    pid: Int64
    tid: Int64
    time_ns: Int64
    kind: Int64
    bytes: Int64
    ranks: Int64
    communicator: Int64
    stream: Int64


@dataclass(frozen=True)
class NcclSummary:
    """What one process enqueued, and what its flows carried meanwhile (`definitions.NCCL`).

    A launch is a burst of operations; its time on the wire is from the first to the last packet that the process sent
    before the next launch. `launches` counts those with a packet. `wire_bytes` went by in `wire_time_s`, `needed_bytes`
    are what the algorithm has to send, None where a size is not known. Seconds.
    """

    pid: int
    operations: int
    launches: int
    communicators: int
    ranks: tuple[int, ...]
    ranks_source: str
    bytes: int | None
    median_wire_time_s: float | None
    wire_bytes: int
    wire_time_s: float
    needed_bytes: float | None

    def __add__(self, other: NcclSummary) -> NcclSummary:
        """Return both together; the median is the mean of both, by launches."""
        medians = [(s.median_wire_time_s, s.launches) for s in (self, other) if s.median_wire_time_s is not None]
        sums = added((self, other), "operations launches bytes wire_bytes wire_time_s needed_bytes")
        return replace(
            self,
            **sums,
            communicators=max(self.communicators, other.communicators),
            ranks=tuple(sorted({*self.ranks, *other.ranks})),
            median_wire_time_s=sum(s * count for s, count in medians) / sums["launches"] if medians else None,
        )

    @property
    def wire_bandwidth_bps(self) -> float | None:
        """Bits per second on the wire, None without a launch that has any."""
        return self.wire_bytes * 8 / self.wire_time_s if self.wire_time_s > 0 else None

    @property
    def wire_to_algorithm_ratio(self) -> float | None:
        """The bytes on the wire over those that the algorithm has to send."""
        return self.wire_bytes / self.needed_bytes if self.needed_bytes and self.wire_bytes else None


def nccl_operations(marks: Marks, world_size: int | None) -> Operations:
    """Return everything that was enqueued; `world_size` stands in where a process created no communicator in sight."""
    pids = np.unique(marks.of(*_KINDS).pid).tolist()
    return concatenate(Operations, [_of_process(marks.of_pid(pid), world_size) for pid in pids]).sorted_by("time_ns")


def summarize_nccl(
    operations: Operations, marks: Marks, sent: Mapping[int, Bins | None], end_ns: int
) -> tuple[NcclSummary, ...]:
    """Summarise every process that enqueued something; `sent` are the bins that each transmitted."""
    return tuple(
        _summarize(pid, operations.of_pid(pid), marks.of_pid(pid), sent.get(pid), end_ns)
        for pid in np.unique(operations.pid).tolist()
    )


def _of_process(marks: Marks, world_size: int | None) -> Operations:
    marks = marks.where((marks.kind >= MarkKind.NCCL_ALL_REDUCE) & (marks.kind <= MarkKind.NCCL_COMM_RANK))
    rows = marks.of(*_KINDS)
    kind = np.array([_KINDS[MarkKind(mark)] for mark in rows.kind.tolist()], np.int64)
    datatype = rows.arg1 & 0xFF
    known = datatype < len(_ELEMENT_BYTES)
    element = _ELEMENT_BYTES[np.minimum(datatype, len(_ELEMENT_BYTES) - 1)]
    ranks = _ranks_of(marks, world_size)[marks.are(*_KINDS)]
    parts = np.where(np.isin(kind, [int(each) for each in _COUNTS_ONE_PART]), ranks, 1)
    size = np.where(known & (parts > 0), bytes_of(bytes_of(rows.arg0, element), parts), UNKNOWN)
    return Operations(rows.pid, rows.tid, rows.time_ns, kind, size, ranks, rows.arg2, rows.arg1 >> 8)


def _ranks_of(marks: Marks, world_size: int | None) -> Int64:
    """Return for each mark of a process how many ranks its communicator has, UNKNOWN where nothing says it.

    A communicator's address is not known yet when it is created. It is the one first used after its creation, if no
    other one of another size was created in between. Without any creation in sight, a process that uses a single
    communicator is taken to use it with all ranks of the job.
    """
    sizes: dict[int, int] = {}
    waiting: list[int] = []
    created = bool(marks.are(MarkKind.NCCL_COMM_INIT, MarkKind.NCCL_COMM_SPLIT).any())
    operation = marks.are(*_KINDS)
    only = len(np.unique(marks.arg2[operation])) == 1 and not created
    fallback = world_size if only and world_size else UNKNOWN
    result = np.full(len(marks), UNKNOWN)
    for row in range(len(marks)):
        kind, first, second = int(marks.kind[row]), int(marks.arg0[row]), int(marks.arg1[row])
        if operation[row]:
            communicator = int(marks.arg2[row])
            if communicator not in sizes:
                sizes[communicator] = waiting[-1] if len(set(waiting)) == 1 else fallback
                waiting = waiting[:-1] if len(set(waiting)) == 1 else []
            result[row] = sizes[communicator]
        elif kind == MarkKind.NCCL_COMM_INIT:
            waiting.append(first)
        elif kind == MarkKind.NCCL_COMM_SPLIT:
            waiting.append(UNKNOWN)
        elif kind == MarkKind.NCCL_COMM_SHRINK:
            parent = sizes.get(first, UNKNOWN)
            waiting.append(parent - second if parent > second else UNKNOWN)
        elif kind == MarkKind.NCCL_COMM_END:
            sizes.pop(first, None)
    return result


def _summarize(pid: int, operations: Operations, marks: Marks, sent: Bins | None, end_ns: int) -> NcclSummary:
    known = operations.bytes != UNKNOWN
    first, last, moved = _on_the_wire(operations.time_ns, sent, end_ns)
    busy_s = (last - first)[moved > 0] / 1e9
    sizes = tuple(sorted({int(ranks) for ranks in np.unique(operations.ranks) if ranks != UNKNOWN}))
    created = bool((marks.kind == MarkKind.NCCL_COMM_INIT).any())
    source = ("communicator's creation" if created else "environment") if sizes else "unknown"
    return NcclSummary(
        pid=pid,
        operations=len(operations),
        launches=int((moved > 0).sum()),
        communicators=len(np.unique(operations.communicator)),
        ranks=sizes,
        ranks_source=source,
        bytes=int(operations.bytes.sum()) if known.all() else None,
        median_wire_time_s=float(np.median(busy_s)) if len(busy_s) else None,
        wire_bytes=int(moved.sum()),
        wire_time_s=float(busy_s.sum()),
        needed_bytes=_needed(operations),
    )


def _needed(operations: Operations) -> float | None:
    """Return the bytes that a bandwidth-optimal algorithm has to send per rank, None where a size is not known.

    Only of the kinds in which every rank sends the same: of a broadcast or a reduce a rank's part depends on its place.
    """
    if not len(operations) or not bool(
        (sends_the_same(operations.kind) & (operations.bytes != UNKNOWN) & (operations.ranks > 0)).all()
    ):
        return None
    return float((operations.bytes * sent_per_byte(operations.kind, operations.ranks)).sum())


def _on_the_wire(enqueue_ns: Int64, sent: Bins | None, end_ns: int) -> tuple[Int64, Int64, Int64]:
    """Return of each launch the first and the last packet sent until the next one, and the bytes.

    Edges are those of time bins: bytes of the bin in which a launch falls are counted as its own.
    """
    starts = np.concatenate(([True], np.diff(enqueue_ns) > LAUNCH_GAP_NS))
    launch = enqueue_ns[starts]
    until = np.append(launch[1:], max(end_ns, int(launch[-1]) + 1))
    sent = sent.where(sent.wire_bytes > 0) if sent is not None else None
    if sent is None or len(sent) == 0:
        nothing = np.zeros(len(launch), np.int64)
        return nothing, nothing, nothing
    low, high = (np.searchsorted(sent.number, edge // sent.bin_ns) for edge in (launch, until))
    through = np.concatenate(([0], np.cumsum(sent.wire_bytes, dtype=np.int64)))
    first = (sent.begin_ns + sent.bin_ns - sent.lead_ns)[np.minimum(low, len(sent) - 1)]
    last = (sent.begin_ns + sent.last_ns)[np.maximum(high - 1, 0)]
    moved = through[high] - through[low]
    return np.where(moved > 0, first, 0), np.where(moved > 0, last, 0), moved
