"""Who is waited for where no mark tells: the nearest process that does something else while nothing moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from netprof.analysis.account.causes import LATE_RANK, WAIT_CAUSES
from netprof.analysis.account.wait_pieces import cut_at
from netprof.analysis.account.waiting import Waiting
from netprof.analysis.tables.columns import UNKNOWN, Int64, concatenate, distinct, empty
from netprof.analysis.tables.intervals import Intervals, merge, row_at, union

_MAIN = 0.01
"""Share of the bytes of the peer that a process exchanges most with from which on another one is waited for."""
_LATE = WAIT_CAUSES.index(LATE_RANK)
_NO_GROUP = -1


def late_peers(
    silent: Mapping[int, Intervals], busy: Mapping[int, Intervals], traffic: Mapping[tuple[int, int], float]
) -> Waiting:
    """Return when each process waits for another one that does something else than to wait.

    `silent` is when processes wait and nothing of theirs moves, `busy` when each process does not wait for others, and
    `traffic` the bytes between each two, all by pid. A process waits for those with whom it exchanges bytes; where
    they wait too, for whom those wait. Of several the one is named that is last to be done.
    """
    peers = _peers(traffic, busy)
    stretches = [empty(Waiting)]
    for pid, left in silent.items():
        for level in _levels(pid, peers):
            if not len(left):
                break
            times, culprit = _last_of(left, [(peer, busy[peer]) for peer in level])
            left = left - merge(times.begin_ns, times.end_ns)
            count = len(times)
            fixed = (np.full(count, value, np.int64) for value in (pid, _LATE, _NO_GROUP))
            number, cause, group = fixed
            stretches.append(Waiting(number, times.begin_ns, times.end_ns, cause, culprit, group))
    return concatenate(Waiting, stretches).in_order()


def _peers(traffic: Mapping[tuple[int, int], float], known: Mapping[int, Intervals]) -> dict[int, list[int]]:
    """Return the peers each process exchanges more than a little with, among processes whose threads are watched."""
    most: dict[int, float] = {}
    for (pid, _), amount in traffic.items():
        most[pid] = max(most.get(pid, 0.0), amount)
    peers: dict[int, list[int]] = {}
    for (pid, peer), amount in traffic.items():
        if pid != peer and amount and amount >= _MAIN * most[pid] and peer in known:
            peers.setdefault(pid, []).append(peer)
    return peers


def _levels(pid: int, peers: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Return the processes that can be reached from one, the nearest first."""
    seen, levels, level = {pid}, [], [pid]
    while level := sorted({peer for each in level for peer in peers.get(each, ())} - seen):
        seen.update(level)
        levels.append(level)
    return levels


def _last_of(times: Intervals, busy: Sequence[tuple[int, Intervals]]) -> tuple[Intervals, Int64]:
    """Return what of some times lies where any of some processes is busy, in parts, and who of them is the longest."""
    within = times & union([spans for _, spans in busy])
    edges = distinct(*(edge for _, spans in busy for edge in (spans.begin_ns, spans.end_ns)))
    begin, end, _ = cut_at(within.begin_ns, within.end_ns, edges)
    until = np.full((len(busy), len(begin)), np.iinfo(np.int64).min)
    for place, (_, spans) in enumerate(busy):
        row = row_at(spans.begin_ns, spans.end_ns, begin)
        until[place, row != UNKNOWN] = spans.end_ns[row[row != UNKNOWN]]
    pids = np.array([pid for pid, _ in busy], np.int64)
    return Intervals(begin, end), pids[until.argmax(axis=0)] if len(begin) else np.zeros(0, np.int64)
