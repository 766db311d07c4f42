"""What two ways to run a job cost or hide: collectives compared before they run (DETAIL), ranks out of data (join)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.account.causes import LATE_RANK
from netprof.analysis.account.waiting import Waiting
from netprof.analysis.declared import added
from netprof.analysis.evidence import Evidence
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import by_pid
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind
from netprof.units import duration

_SEVERAL = 5
"""Steps that the others do, and collectives that a rank takes part in, before it is taken to be out of data."""
_LONGEST_NS = 10**9


@dataclass(frozen=True)
class DetailAndJoin:
    """How many collectives were compared first (TORCH_DISTRIBUTED_DEBUG=DETAIL), for how long in all, by `steps`.

    In `checks_ns` no rank waits for one that is late: that is no cost of comparing.
    `shadows` are the ranks that only take part in the others' collectives, as under DDP's join, and since which of the
    others' steps.
    """

    checks: int
    checks_ns: int
    steps: int
    shadows: tuple[tuple[str, int], ...]


def _conclude(analysis: Analysis) -> DetailAndJoin:
    evidence = analysis.evidence
    checked = evidence.marks.of(MarkKind.COLLECTIVE_CHECK, MarkKind.COLLECTIVE_ENQUEUE)
    checking = set(checked.pid[checked.are(MarkKind.COLLECTIVE_CHECK)].tolist())
    checks = {pid: _checks(rows) for pid, rows in by_pid(checked, only=checking)}
    late = evidence.account.waiting.of(LATE_RANK) if checks and len(evidence.iterations) else None
    costs = (times if late is None else times - _of_process(pid, late) for pid, times in checks.items())
    return DetailAndJoin(
        checks=int(checked.are(MarkKind.COLLECTIVE_CHECK).sum()),
        checks_ns=sum(each.total_ns for each in costs),
        steps=len(evidence.iterations),
        shadows=tuple(_shadows(evidence)),
    )


def _of_process(pid: int, waiting: Waiting) -> Intervals:
    stretches = waiting.where(waiting.pid == pid)
    return merge(stretches.begin_ns, stretches.end_ns)


def _checks(marks: Marks) -> Intervals:
    """Return the times of a process' comparisons: until the thread hands over the collective itself."""
    rows = marks.where(np.lexsort((marks.time_ns, marks.tid)))
    begins = np.flatnonzero(rows.kind == MarkKind.COLLECTIVE_CHECK)
    last = np.append(begins[1:], len(rows)) - 1
    ended = (rows.tid[last] == rows.tid[begins]) & (rows.time_ns[last] > rows.time_ns[begins])
    begin_ns, end_ns = rows.time_ns[begins[ended]], rows.time_ns[last[ended]]
    return merge(begin_ns, np.minimum(end_ns, begin_ns + _LONGEST_NS))


def _shadows(evidence: Evidence) -> Iterator[tuple[str, int]]:
    iterations = evidence.iterations
    every_pass = evidence.marks.of(MarkKind.DDP_FORWARD, MarkKind.FORWARD, MarkKind.BACKWARD)
    for pid in sorted(evidence.ranks):
        passes = every_pass.time_ns[every_pass.rows_of(pid)]
        if not len(passes) and evidence.piece.is_first:
            continue  # it never trained: an evaluator, a parameter server
        since_ns = int(passes.max(initial=evidence.meta.started_ns))
        joined = evidence.collectives.begin_ns[evidence.collectives.rows_of(pid)] > since_ns
        if int(joined.sum()) < _SEVERAL:
            continue
        others = iterations.where((iterations.pid != pid) & (iterations.begin_ns > since_ns))
        if not len(others):
            continue
        ahead = int(np.unique(others.pid, return_counts=True)[1].max())
        whole = int(np.unique(iterations.pid[iterations.pid != pid], return_counts=True)[1].max())
        if ahead >= _SEVERAL:
            yield f"rank {evidence.ranks[pid]}", whole - ahead


def _document(found: DetailAndJoin) -> Mapping[str, Any]:
    each_s = found.checks_ns / found.steps / 1e9 if found.steps else None
    checks = {"count": found.checks, "seconds": found.checks_ns / 1e9, "step_s": each_s} if found.checks else None
    return {
        "collective_checks": checks,
        "out_of_data": [{"rank": name, "since_step": step} for name, step in found.shadows],
    }


def _notes(found: DetailAndJoin) -> Iterator[str]:
    if found.checks:
        each_s = found.checks_ns / found.steps / 1e9 if found.steps else 0.0
        cost = f": {duration(each_s)} of a rank's step" if found.steps else ""
        yield (
            "TORCH_DISTRIBUTED_DEBUG=DETAIL compares every collective with the other ranks' before it runs"
            f"{cost}, without waiting for late ranks; unset it outside of a search for errors"
        )
    for name, step in found.shadows:
        yield f"{name} is out of data since step {step} of the others: it only shadows their collectives (join)"


DETAIL_AND_JOIN = Section(
    "shapes",
    _conclude,
    ("marks",),
    _document,
    notes=_notes,
    merge=lambda parts, whole: DetailAndJoin(**added(parts, "checks checks_ns steps"), shadows=parts[-1].shadows),
)
