"""How long the ranks wait in each iteration and for what: the account of waiting over the run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.causes import LATE_RANK, WAIT_CAUSES
from netprof.analysis.account.waiting import Waiting
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.tables.columns import Float64, Int64, by_pid, empty
from netprof.analysis.tables.intervals import covered_until, merge

NOBODY_LATE = -1


@dataclass(frozen=True, eq=False)
class WaitingByIteration:
    """How long each process waits for what, in each iteration of the process that has the most; ns.

    `pids` has the shape (P,), `begin_ns` and `end_ns` (I,). `waited_ns` is of shape (P, I, causes), causes in the order
    of WAIT_CAUSES; `late_for_ns`, (P, I), is for how long at most others wait because a process is late.
    """

    pids: Int64
    begin_ns: Int64
    end_ns: Int64
    waited_ns: Int64
    late_for_ns: Int64

    def __len__(self) -> int:
        return len(self.begin_ns)

    @property
    def mean_s(self) -> Float64:
        """How long a rank waits, in the mean of the ranks; shape (causes, I)."""
        return np.asarray(self.waited_ns.mean(axis=0).T * 1e-9)

    @property
    def latest_pid(self) -> Int64:
        """For whom the others wait the longest in each iteration, NOBODY_LATE where nobody is late; shape (I,)."""
        return np.where(self.late_for_ns.max(axis=0) > 0, self.pids[self.late_for_ns.argmax(axis=0)], NOBODY_LATE)


def waiting_by_iteration(iterations: Iterations, waiting: Waiting) -> WaitingByIteration:
    """Cut the account by iterations, of which there must be one."""
    pids, counts = np.unique(iterations.pid, return_counts=True)
    reference = iterations.where(iterations.pid == pids[np.argmax(counts)])
    begin, end = reference.begin_ns, reference.end_ns
    waited = np.zeros((len(pids), len(reference), len(WAIT_CAUSES)), np.int64)
    late_for = np.zeros((len(pids), len(reference)), np.int64)
    waits = dict(by_pid(waiting))
    for row, pid in enumerate(pids.tolist()):
        own = waits.get(pid, empty(Waiting))
        for number, cause in enumerate(WAIT_CAUSES):
            waited[row, :, number] = _within(own.of(cause), begin, end)
        late = own.of(LATE_RANK)
        for culprit in np.intersect1d(late.culprit, pids[pids != pid]).tolist():
            other, mine = int(np.searchsorted(pids, culprit)), late.where(late.culprit == culprit)
            late_for[other] = np.maximum(late_for[other], _within(mine, begin, end))
    return WaitingByIteration(pids, begin, end, waited, late_for)


def _within(part: Waiting, begin_ns: Int64, end_ns: Int64) -> Int64:
    times = merge(part.begin_ns, part.end_ns)
    return covered_until(times, end_ns) - covered_until(times, begin_ns)
