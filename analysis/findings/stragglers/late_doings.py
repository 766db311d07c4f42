"""What late ranks do, all of them together: one that is late in turn with others is no straggler of its own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from netprof.analysis.account.causes import LATE_RANK
from netprof.analysis.account.episodes import MATTERS
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.stragglers.doing import EVERY, Doing, what_it_did
from netprof.analysis.findings.stragglers.stragglers_parts import StragglersParts
from netprof.analysis.tables.intervals import covered_until, merge

_ALIKE = 0.8
"""Share of the time for which late ranks are waited for in which they do the same."""

BY_NAME = {each.name: each for each in EVERY}


def what_late_ranks_do(evidence: Evidence, parts: StragglersParts) -> Doing | None:
    """Return what ranks do while the others wait for them, if nearly all of them do the same."""
    late = evidence.account.waiting.of(LATE_RANK)
    windows, amounts = parts.windows, dict[str, int]()
    for pid in np.intersect1d(late.culprit, parts.times.pids).tolist():
        own = late.where(late.culprit == pid)
        times = merge(own.begin_ns, own.end_ns)
        within = covered_until(times, windows.end_ns) - covered_until(times, windows.begin_ns)
        rows = np.flatnonzero(within >= MATTERS * (windows.end_ns - windows.begin_ns))
        doing = what_it_did(parts.times, pid, rows) if len(rows) else None
        name = "" if doing is None else doing.name
        amounts[name] = amounts.get(name, 0) + int(within[rows].sum())
    return what_all_do(amounts)


def what_all_do(amounts: Mapping[str, int]) -> Doing | None:
    """Return what ranks do for nearly all of the time that others wait for them; given by what they do, "" unknown."""
    most = max(amounts, key=lambda name: amounts[name], default="")
    return BY_NAME[most] if most and amounts[most] >= _ALIKE * sum(amounts.values()) else None
