"""The iteration that goes on in every process, as if it ended here: what it waits for is known before it is over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from netprof.analysis.events.iterations import Iterations
from netprof.analysis.tables.columns import Int64, concatenate
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind


def with_unfinished(whole: Iterations, marks: Marks, through_ns: int) -> Iterations:
    """Add to each process's whole iterations what follows the last one until `through_ns`; by process and time.

    It is for drawing: a bucket that is still to be launched in it, or to arrive, cannot be known.
    """
    parts = []
    for pid in np.unique(whole.pid).tolist():
        own = whole.of_pid(pid)
        parts.append(own)
        if own.end_ns[-1] < through_ns:
            parts.append(_unfinished(own.where(np.array([len(own) - 1])), marks.of_pid(pid), through_ns))
    return concatenate(Iterations, parts) if parts else whole


def _unfinished(last: Iterations, marks: Marks, through_ns: int) -> Iterations:
    begin_ns = int(last.end_ns[0])
    since = marks.where((marks.time_ns >= begin_ns) & (marks.time_ns <= through_ns))
    wait_ns = _first(since.times(MarkKind.DDP_WAIT), through_ns)
    unpacked = since.times(MarkKind.BUCKET_DONE)
    stats = since.times(MarkKind.DDP_STATS)
    done_ns = _first(stats[stats > max([wait_ns, *unpacked[-1:].tolist()])], through_ns)
    backward_ns = min(_first(since.times(MarkKind.DDP_BACKWARD), through_ns), wait_ns)
    edges = {"backward_ns": backward_ns, "wait_ns": wait_ns, "done_ns": done_ns, "end_ns": through_ns}
    return replace(last, begin_ns=last.end_ns, **{name: np.array([at_ns]) for name, at_ns in edges.items()})


def _first(times: Int64, otherwise: int) -> int:
    return int(times[0]) if len(times) else otherwise
