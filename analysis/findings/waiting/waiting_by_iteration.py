"""How long the ranks wait in each iteration and for what: the account of waiting over the run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.causes import LATE_RANK, WAIT_CAUSES
from netprof.analysis.account.held_up import by_window
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.stragglers.stragglers_parts import reference_windows, runs_of
from netprof.analysis.tables.columns import Bool, Float64, Int64

NOBODY_LATE = -1


@dataclass(frozen=True, eq=False)
class WaitingByIteration:
    """How long each process waits for what, in each iteration of the process that has the most; ns.

    `pids` has the shape (P,), `begin_ns` and `end_ns` (I,). `waited_ns` is of shape (P, I, causes), causes in the order
    of WAIT_CAUSES; `late_for_ns`, (P, I), is for how long at most others wait because a process is late, and `trains`,
    (P, I), says whether the process is of that run of the job.
    """

    pids: Int64
    begin_ns: Int64
    end_ns: Int64
    waited_ns: Int64
    late_for_ns: Int64
    trains: Bool

    def __len__(self) -> int:
        return len(self.begin_ns)

    @property
    def mean_s(self) -> Float64:
        """How long a rank waits, in the mean of the ranks; shape (causes, I)."""
        return np.asarray(self.waited_ns.sum(axis=0).T * (1e-9 / max(len(self.pids), 1)))

    @property
    def latest_pid(self) -> Int64:
        """For whom the others wait the longest in each iteration, NOBODY_LATE where nobody is late; shape (I,)."""
        if not len(self):
            return np.zeros(0, np.int64)
        return np.where(self.late_for_ns.max(axis=0) > 0, self.pids[self.late_for_ns.argmax(axis=0)], NOBODY_LATE)


def waiting_by_iteration(evidence: Evidence, iterations: Iterations | None = None) -> WaitingByIteration:
    """Cut the account by iterations: those of the evidence, or some."""
    iterations, waiting = evidence.iterations if iterations is None else iterations, evidence.account.around
    pids, windows = np.unique(iterations.pid), reference_windows(iterations, evidence)
    shape = len(pids), len(windows)
    parts, window = by_window(waiting.where(np.isin(waiting.pid, pids)), windows)
    cell = np.searchsorted(pids, parts.pid) * len(windows) + window
    waited = np.bincount(
        cell * len(WAIT_CAUSES) + parts.cause, parts.length_ns, shape[0] * shape[1] * len(WAIT_CAUSES)
    ).astype(np.int64)
    late = np.flatnonzero(
        (parts.cause == WAIT_CAUSES.index(LATE_RANK)) & np.isin(parts.culprit, pids) & (parts.culprit != parts.pid)
    )
    # of one that is late, another one and a window: how long that one waits for it
    culprit = np.searchsorted(pids, parts.culprit[late])
    thing, row = np.unique(culprit * (shape[0] * shape[1]) + cell[late], return_inverse=True)
    late_for = np.zeros(shape, np.int64)
    longest = np.bincount(row.reshape(-1), parts.length_ns[late], len(thing)).astype(np.int64)
    np.maximum.at(late_for, (thing // (shape[0] * shape[1]), thing % shape[1]), longest)
    trains, first = np.zeros(shape, bool), 0
    for run, run_pids in runs_of(iterations, evidence):
        trains[np.isin(pids, run_pids), first : first + len(run)] = True
        first += len(run)
    waited = waited.reshape(*shape, len(WAIT_CAUSES))
    return WaitingByIteration(pids, windows.begin_ns, windows.end_ns, waited, late_for, trains)
