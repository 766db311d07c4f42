"""The evidence as it would be if each rank waited for as long as it may, and for as long as it must."""

from __future__ import annotations

from copy import copy

import numpy as np

from netprof.analysis.account.account import Account
from netprof.analysis.account.waiting import within
from netprof.analysis.bounds.bounded import Bounds
from netprof.analysis.events.buckets import Buckets
from netprof.analysis.events.collectives import Collectives, FoundCollectives
from netprof.analysis.events.iterations import Dropped, FoundIterations, Iterations
from netprof.analysis.events.phase_times import PhaseTimes
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.columns import UNKNOWN, Int64, empty
from netprof.analysis.tables.intervals import NOTHING, merge
from netprof.schema import Backend, CollectiveKind

_REST_ON_MARKS = (
    "iterations",
    "iteration_times",
    "dropped",
    "waits",
    "exposed",
    "members",
    "exchanges",
    "together",
    "posted",
    "account",
    "unfinished",
    "outstanding",
)
"""What of the evidence is found anew; the wire and everything else stays."""


def at_most(evidence: Evidence) -> Evidence:
    """Return the evidence in which every rank waits from its launch until it may be done."""
    rows = evidence.bounds.rows
    return _waiting(evidence, rows, rows.launch_ns, rows.done_ns)


def at_least(evidence: Evidence, most: Evidence) -> Evidence:
    """Return the evidence in which it waits for what it surely does, for the causes that `most` gives."""
    rows = evidence.bounds.rows
    least = _waiting(evidence, rows, rows.gradient_ns, rows.received_ns)
    waiting = within(most.account.waiting, least.exposed)
    around = within(most.account.around, least.exposed_in_sight)
    least.__dict__["account"] = Account(waiting, around, most.account.groups)
    return least


def _waiting(evidence: Evidence, rows: Bounds, begin_ns: Int64, end_ns: Int64) -> Evidence:
    """Return the evidence with the steps of the bounds as iterations, in which is waited from `begin_ns` to `end_ns`.

    In each a rank asks for one collective, with its last launch: before all ranks have, nobody can be done.
    """
    _ = evidence.fold, evidence.unmarked  # which are not found again
    bounded = copy(evidence)
    for name in _REST_ON_MARKS:
        bounded.__dict__.pop(name, None)
    begin_ns = np.clip(begin_ns, rows.begin_ns, rows.end_ns)
    end_ns = np.clip(end_ns, begin_ns, rows.end_ns)
    pids = np.unique(rows.pid).tolist()
    found_iterations = FoundIterations(
        iterations=Iterations(rows.pid, rows.begin_ns, rows.begin_ns, begin_ns, end_ns, rows.end_ns),
        dropped={pid: Dropped() for pid in pids},
        phases={
            pid: PhaseTimes(NOTHING, NOTHING, merge(begin_ns[rows.pid == pid], end_ns[rows.pid == pid])) for pid in pids
        },
    )
    bounded.__dict__.update(
        found_iterations=found_iterations,
        found_collectives=FoundCollectives(_last_ones(rows), np.zeros(0, np.int64), empty(Collectives)),
        buckets=empty(Buckets),
        _buckets_in_sight=empty(Buckets),
        only_launch=frozenset(),
        is_bounded=True,
    )
    return bounded


def _last_ones(rows: Bounds) -> Collectives:
    """Return each step's last collective, as far as it is known: when it was launched, and when it is surely done."""
    count = len(rows)
    unknown = np.full(count, UNKNOWN)
    collectives = Collectives(
        pid=rows.pid,
        tid=rows.pid,
        begin_ns=rows.launch_ns,
        end_ns=rows.done_ns,
        bytes=unknown,
        kind=np.full(count, int(CollectiveKind.ALL_REDUCE)),
        backend=np.full(count, int(Backend.NCCL)),
        group=unknown,
        ranks=unknown,
        number=unknown,
        posted_ns=rows.launch_ns,
        posted_tid=rows.pid,
        work=np.zeros(count, np.int64),
        root=unknown,
        sequence=unknown,
    )
    return collectives.where(np.argsort(collectives.begin_ns, kind="stable"))
