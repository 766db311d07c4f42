"""When the job asked for a collective: it then waits in a queue until a thread begins with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind


@dataclass(frozen=True, eq=False)
class Postings:
    """When each collective was asked for, and on which thread."""

    time_ns: Int64
    tid: Int64


def find_postings(enqueued: Marks, begins: Marks) -> Postings:
    """Return for each COLLECTIVE_BEGIN the COLLECTIVE_ENQUEUE of its work; the begin itself where there is none.

    An address is that of another work later on, so the last mark of it before the begin has to be its enqueuing.
    """
    time_ns, tid = begins.time_ns.copy(), begins.tid.copy()
    kind = np.repeat([MarkKind.COLLECTIVE_ENQUEUE, MarkKind.COLLECTIVE_BEGIN], [len(enqueued), len(begins)])
    work = np.concatenate((enqueued.arg0, begins.arg0))
    times = np.concatenate((enqueued.time_ns, begins.time_ns))
    pid = np.concatenate((enqueued.pid, begins.pid))
    order = np.lexsort((times, work, pid))
    before, after = order[:-1], order[1:]
    pairs = (kind[before] == MarkKind.COLLECTIVE_ENQUEUE) & (kind[after] == MarkKind.COLLECTIVE_BEGIN)
    pairs &= (work[before] == work[after]) & (pid[before] == pid[after]) & (work[after] != 0)
    mine = after[pairs] - len(enqueued)
    time_ns[mine], tid[mine] = enqueued.time_ns[before[pairs]], enqueued.tid[before[pairs]]
    return Postings(time_ns, tid)
