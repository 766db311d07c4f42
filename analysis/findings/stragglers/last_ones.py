"""The last rank of each communicator in each iteration, by how much, and what it did meanwhile, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from netprof.analysis.account.episodes import MATTERS
from netprof.analysis.events.arrivals import Arrivals, find_arrivals
from netprof.analysis.findings.stragglers.doing import SummedTimes, what_it_did
from netprof.analysis.findings.stragglers.stragglers import STRAGGLERS
from netprof.analysis.section import Analysis
from netprof.analysis.tables.columns import Int64
from netprof.schema import UNKNOWN_RANK


def arrivals_table(analysis: Analysis) -> Mapping[str, Any]:
    """Return the arrivals: `iteration` as in the report, its `begin_ns`, `group`, `pid`, `rank`, `late_ns`, `doing`.

    `doing` is given where the lateness matters, empty where nothing tells.
    """
    finding, evidence = analysis.of(STRAGGLERS), analysis.evidence
    if finding is None:
        none = np.zeros(0, np.int64)
        return dict.fromkeys(("iteration", "begin_ns", "group", "pid", "rank", "late_ns"), none) | {"doing": []}
    windows = finding.made_of.windows
    found = find_arrivals(evidence.collectives, evidence.members, windows.begin_ns, windows.end_ns)
    length_ns = (windows.end_ns - windows.begin_ns)[found.iteration]
    return {
        "iteration": found.iteration,
        "begin_ns": windows.begin_ns[found.iteration],
        "group": found.group,
        "pid": found.pid,
        "rank": np.array([evidence.ranks.get(pid, UNKNOWN_RANK) for pid in found.pid.tolist()], np.int64),
        "late_ns": found.late_ns,
        "doing": _doing(found, finding.made_of.times, found.late_ns >= MATTERS * length_ns),
    }


def _doing(found: Arrivals, times: SummedTimes, matters: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[str]:
    rows: list[tuple[int, Int64]] = [
        (pid, found.iteration[row : row + 1]) for row, pid in enumerate(found.pid.tolist())
    ]
    said = [what_it_did(times, *row) if known else None for row, known in zip(rows, matters, strict=True)]
    return ["" if each is None else each.name for each in said]
