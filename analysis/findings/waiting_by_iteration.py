"""How long the ranks wait in each iteration and for what: the account of waiting over the run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.causes import LATE_RANK, WAIT_CAUSES
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.columns import UNKNOWN, Float64, Int64


@dataclass(frozen=True, eq=False)
class WaitingByIteration:
    """Iterations of the process that has the most, ascending.

    `waits_s` is how long a rank waits in each of them, in the mean of the ranks; shape (causes, iterations), causes in
    the order of WAIT_CAUSES. `late_rank` is who the others wait for the longest, UNKNOWN where nobody is late or
    nothing says its rank.
    """

    begin_ns: Int64
    duration_ns: Int64
    waits_s: Float64
    late_rank: Int64

    def __len__(self) -> int:
        return len(self.begin_ns)


def waiting_by_iteration(evidence: Evidence) -> WaitingByIteration | None:
    """Return the account by iteration; None where no iteration is known."""
    iterations = evidence.iterations
    if len(iterations) == 0:
        return None
    pids, counts = np.unique(iterations.pid, return_counts=True)
    reference = iterations.where(iterations.pid == pids[np.argmax(counts)])
    waiting = evidence.account.waiting
    index = np.searchsorted(reference.begin_ns, waiting.begin_ns, "right") - 1
    inside = (index >= 0) & (waiting.begin_ns < reference.end_ns[np.maximum(index, 0)])
    waiting, index = waiting.where(inside), index[inside]
    shape = (len(WAIT_CAUSES), len(reference))
    cells = waiting.cause * shape[1] + index
    waited = np.bincount(cells, weights=waiting.length_ns, minlength=shape[0] * shape[1])
    late = waiting.cause == WAIT_CAUSES.index(LATE_RANK)
    return WaitingByIteration(
        begin_ns=reference.begin_ns,
        duration_ns=reference.duration_ns,
        waits_s=waited.reshape(shape) / (1e9 * len(pids)),
        late_rank=_latest(evidence, index[late], waiting.culprit[late], waiting.length_ns[late], len(reference)),
    )


def _latest(evidence: Evidence, index: Int64, culprit: Int64, length_ns: Int64, count: int) -> Int64:
    """Return for each iteration the rank for which the others wait the longest."""
    found = np.full(count, UNKNOWN)
    pids, which = np.unique(culprit, return_inverse=True)
    if len(pids) == 0:
        return found
    cells = which * count + index
    waited = np.bincount(cells, weights=length_ns, minlength=len(pids) * count).reshape(len(pids), count)
    ranks = np.array([evidence.ranks.get(pid, UNKNOWN) for pid in pids.tolist()])
    return np.where(waited.max(axis=0) > 0, ranks[waited.argmax(axis=0)], UNKNOWN)
