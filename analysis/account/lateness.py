"""Why late ranks are late: what they wait for themselves, meanwhile or just before, is what all wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from netprof.analysis.account.causes import LATE_RANK, WAIT_CAUSES
from netprof.analysis.account.wait_pieces import cut_at
from netprof.analysis.account.waiting import Waiting
from netprof.analysis.tables.columns import Int64, concatenate, distinct
from netprof.analysis.tables.intervals import Intervals

_LATE = WAIT_CAUSES.index(LATE_RANK)
_TIMES_ASKED = 8
"""How often late ranks are asked what they wait for: each time twice as far down a chain of them, so 255 in all.

Who waits beyond that stays late, and so do those who wait for each other.
"""
_TAKEN_OVER = ("cause", "culprit", "group")


def resolve_lateness(waiting: Waiting, waits: Mapping[int, Intervals]) -> Waiting:
    """Give the time in which a late rank is itself exposed the cause for which that one waits.

    A rank that is still held up by a slow link in its last collective posts the next one late, but is not to blame; nor
    is one that was done with it later than the others, and computes no longer than they do. `waits` is when processes
    wait, by pid, at least of those whose waiting is asked for.
    """
    for _ in range(_TIMES_ASKED):
        late = (waiting.cause == _LATE) & np.isin(waiting.culprit, waiting.pid)
        passed, _, changed = _passed_on(waiting.where(late), waiting.where(np.isin(waiting.pid, waiting.culprit[late])))
        if not changed:
            break
        waiting = concatenate(Waiting, [waiting.where(~late), passed]).in_order()
    late = (waiting.cause == _LATE) & np.isin(waiting.culprit, waiting.pid)
    passed = _before(waiting.where(late), waiting.where(np.isin(waiting.pid, waiting.culprit[late])), waits)
    return concatenate(Waiting, [waiting.where(~late), passed]).in_order()


def _before(late: Waiting, culprits: Waiting, waits: Mapping[int, Intervals]) -> Waiting:
    """Give them the causes of what those waited for when the others were done with waiting and they were not.

    Who waits had computed for some time since it last waited. So long before, a late process that computes just as
    long was still waiting; one that was done by then computes for longer, and that is its own.
    """
    ago_ns = np.zeros(len(late), np.int64)
    for pid in np.unique(late.pid).tolist():
        rows = late.rows_of(pid)
        ago_ns[rows] = _since_last_wait(late.begin_ns[rows], waits.get(pid))
    known = ago_ns > 0
    rest, late, ago_ns = late.where(~known), late.where(known), ago_ns[known]
    earlier = replace(late, begin_ns=late.begin_ns - ago_ns, end_ns=late.end_ns - ago_ns)
    parts, row, _ = _passed_on(earlier, culprits)
    parts = replace(parts, begin_ns=parts.begin_ns + ago_ns[row], end_ns=parts.end_ns + ago_ns[row])
    return concatenate(Waiting, [rest, parts])


def _since_last_wait(at_ns: Int64, waits: Intervals | None) -> Int64:
    """Return how long a process had not waited when it began to wait as it does at some instants; 0 if ever."""
    if waits is None or len(waits) < 2:
        return np.zeros(len(at_ns), np.int64)
    place = np.searchsorted(waits.begin_ns, at_ns, "right") - 1
    since = waits.begin_ns[place] - waits.end_ns[np.maximum(place - 1, 0)]
    return np.where(place > 0, since, 0)


def _passed_on(late: Waiting, culprits: Waiting) -> tuple[Waiting, Int64, bool]:
    """Cut stretches that wait for late processes by those ones' own waiting, and take over its causes there.

    `culprits` are the stretches of those processes, by process and begin; each of `late` has some. All are laid one
    process behind the other, by places instead of times, so that one look tells of all. Returns what each is a part of,
    too, and whether anything was taken over.
    """
    if len(late) == 0:
        return late, np.zeros(0, np.int64), False
    places = distinct(late.begin_ns, late.end_ns, culprits.begin_ns, culprits.end_ns)
    pids = distinct(culprits.pid)

    def laid(pid: Int64, at_ns: Int64) -> Int64:
        return np.searchsorted(pids, pid) * len(places) + np.searchsorted(places, at_ns)

    low, high = (laid(culprits.pid, at_ns) for at_ns in (culprits.begin_ns, culprits.end_ns))
    begin, end, row = cut_at(laid(late.culprit, late.begin_ns), laid(late.culprit, late.end_ns), distinct(low, high))
    known = np.maximum(np.searchsorted(low, begin, "right") - 1, 0)
    parts = late.where(row)
    parts = replace(parts, begin_ns=places[begin % len(places)], end_ns=places[end % len(places)])
    waits = (low[known] <= begin) & (begin < high[known]) & (culprits.culprit[known] != parts.pid)
    taken = {name: np.where(waits, getattr(culprits, name)[known], getattr(parts, name)) for name in _TAKEN_OVER}
    return replace(parts, **taken), row, bool(waits.any())
