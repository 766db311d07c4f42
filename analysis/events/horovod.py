"""Horovod: from the handing over of a tensor to its arrival, and what that time is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.declared import added
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.sizes import bytes_of
from netprof.analysis.events.waits import until_done
from netprof.analysis.piece import ALL, Piece
from netprof.analysis.tables.columns import UNKNOWN, Int64, followed
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.analysis.tables.marks import Marks
from netprof.schema import Backend, CollectiveKind, MarkKind

_NAME_BYTES = 32  # libstdc++'s std::string
_STAGES = (
    MarkKind.HOROVOD_RESPONSE,
    MarkKind.HOROVOD_TRANSFER,
    MarkKind.HOROVOD_UNPACK,
    MarkKind.HOROVOD_DONE,
)


@dataclass(frozen=True)
class HorovodSummary:
    """What one process handed to Horovod and where the time went (`definitions.HOROVOD`); ns.

    `outstanding_ns` is the time in which an operation that was seen to be enqueued is not done. It is the sum of the
    four parts: negotiating (waiting for the other ranks and for the cycle), packing, transferring, unpacking.
    """

    pid: int
    enqueued: int
    responses: int
    tensors_per_response: float | None
    outstanding_ns: int
    negotiating_ns: int
    packing_ns: int
    transferring_ns: int
    unpacking_ns: int

    def __add__(self, other: HorovodSummary) -> HorovodSummary:
        """Return both together."""
        names = [name for name in self.__dataclass_fields__ if name not in ("pid", "tensors_per_response")]
        sums = added((self, other), " ".join(names))
        known = [part for part in (self, other) if part.tensors_per_response is not None]
        tensors = [part.tensors_per_response or 0.0 for part in known]
        mean = float(np.average(tensors, weights=[part.responses for part in known])) if known else None
        return HorovodSummary(self.pid, tensors_per_response=mean, **sums)


def horovod_summaries(marks: Marks, piece: Piece = ALL) -> tuple[HorovodSummary, ...]:
    """Summarise every process that enqueued something, by pid; of what is in sight, what is of a piece of the time."""
    pids = np.unique(marks.pid[marks.kind == MarkKind.HOROVOD_ENQUEUE]).tolist()
    return tuple(_summarize(pid, marks.of_pid(pid), piece) for pid in pids)


def horovod_outstanding(marks: Marks) -> dict[int, Intervals]:
    """Return for each process when an operation is enqueued and not done."""
    pids = np.unique(marks.pid[marks.kind == MarkKind.HOROVOD_ENQUEUE]).tolist()
    return {pid: _outstanding(marks.of_pid(pid)) for pid in pids}


def horovod_transfers(marks: Marks) -> Collectives:
    """Return what Horovod's gloo transferred, by begin: true times, on the background thread.

    A transfer ends where its buffer is unpacked or its first operation is done. Sizes are known of all-reduces and
    broadcasts.
    """
    rows = marks.of(*_STAGES)
    rows = rows.sorted_by("pid", "tid", "time_ns")
    here = np.flatnonzero(rows.kind == MarkKind.HOROVOD_TRANSFER)
    after = np.minimum(here + 1, max(len(rows) - 1, 0))
    ends = np.isin(rows.kind[after], [MarkKind.HOROVOD_UNPACK, MarkKind.HOROVOD_DONE])
    ends &= (after > here) & (rows.tid[after] == rows.tid[here]) & (rows.pid[after] == rows.pid[here])
    begin, end = rows.where(here[ends]), rows.time_ns[after[ends]]
    size = bytes_of(begin.arg0, begin.arg1)
    posted_ns = _last_enqueued(rows, here[ends], marks.of(MarkKind.HOROVOD_ENQUEUE))
    return Collectives.of_no_group(
        begin,
        end_ns=end,
        bytes=np.where(size > 0, size, UNKNOWN),
        kind=begin.arg2,
        backend=np.full(len(begin), int(Backend.HOROVOD)),
        posted_ns=np.where(posted_ns == UNKNOWN, begin.time_ns, posted_ns),
    ).sorted_by("begin_ns")


def _last_enqueued(rows: Marks, transfers: Int64, enqueued: Marks) -> Int64:
    """Return when the last operation of each transfer was enqueued, UNKNOWN where that was not seen.

    `rows` are the marks of the stages by thread and time, and `transfers` where in them the transfers begin: the
    operations that are done before the next one, on the same thread, were in it.
    """
    done = np.flatnonzero(rows.kind == MarkKind.HOROVOD_DONE)
    last_ns = np.full(len(transfers), UNKNOWN)
    if len(transfers) == 0 or len(enqueued) == 0:
        return last_ns
    owner = np.searchsorted(transfers, done, "right") - 1
    mine = (owner >= 0) & (rows.tid[done] == rows.tid[transfers[np.maximum(owner, 0)]])
    handle = _key(rows.pid[done[mine]], rows.arg0[done[mine]])
    known = _key(enqueued.pid, enqueued.arg0 + 1)
    order = np.argsort(known, kind="stable")
    rows_of = order[np.minimum(np.searchsorted(known[order], handle), len(order) - 1)]
    seen = known[rows_of] == handle
    np.maximum.at(last_ns, owner[mine][seen], enqueued.time_ns[rows_of[seen]])
    return last_ns


def _key(pid: Int64, handle: Int64) -> Int64:
    return (pid << 32) + handle


def _summarize(pid: int, marks: Marks, piece: Piece) -> HorovodSummary:
    outstanding = _outstanding(marks) & piece.time
    packing, transferring, unpacking = (_stage(marks, kind) & outstanding for kind in _STAGES[:3])
    performing = packing | transferring | unpacking
    marks = marks.where(piece.owns(marks.time_ns))
    responses = marks.of(MarkKind.HOROVOD_RESPONSE)
    responses = responses.where(responses.arg0 != CollectiveKind.BARRIER)
    tensors = (responses.arg2 - responses.arg1) // _NAME_BYTES
    return HorovodSummary(
        pid=pid,
        enqueued=int((marks.kind == MarkKind.HOROVOD_ENQUEUE).sum()),
        responses=len(responses),
        tensors_per_response=float(tensors.mean()) if len(responses) else None,
        outstanding_ns=outstanding.total_ns,
        negotiating_ns=(outstanding - performing).total_ns,
        packing_ns=packing.total_ns,
        transferring_ns=transferring.total_ns,
        unpacking_ns=unpacking.total_ns,
    )


def _outstanding(marks: Marks) -> Intervals:
    """Pair the enqueuing of each handle with its done mark; what was enqueued before the recording is left out."""
    enqueue = marks.of(MarkKind.HOROVOD_ENQUEUE)
    return until_done(enqueue.time_ns, enqueue.arg0 + 1, marks.of(MarkKind.HOROVOD_DONE))


def _stage(marks: Marks, kind: MarkKind) -> Intervals:
    """Return the time from each mark of a stage to the next mark of any stage on its thread."""
    rows = marks.of(*_STAGES)
    before, after = followed(rows.time_ns, rows.tid)
    of_stage = rows.kind[before] == kind
    return merge(rows.time_ns[before[of_stage]], rows.time_ns[after[of_stage]])
