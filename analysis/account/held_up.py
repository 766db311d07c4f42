"""For how long each rank, link and way between ranks held the others up, iteration by iteration: read off the account.

Only what one of them did alone is held against it: a link that is full while all others are full too holds nobody up
more than they do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from netprof.analysis.account.account import Account
from netprof.analysis.account.causes import WAIT_CAUSES, Cause
from netprof.analysis.account.group_times import GroupTimes
from netprof.analysis.account.wait_pieces import cut_at
from netprof.analysis.account.waiting import Waiting
from netprof.analysis.tables.columns import UNKNOWN, Bool, Int32, Int64, by_pid, distinct, grouped
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals, Windows, at_least, merge, union
from netprof.analysis.wire.paths import BusyClocks, Paths, more_than_siblings

MAIN = 0.1
"""Share of the bytes of the way that carries the most from which on another one is its sibling."""


def main_ways(paths: Paths, sent_bytes: Int64) -> Int64:
    """Return the ways that carry enough to be compared; `sent_bytes` are by flow."""
    amount = np.bincount(paths.of_flow, weights=sent_bytes, minlength=len(paths.keys))
    return np.flatnonzero(amount >= max(MAIN * amount.max(initial=0), 1))


class Kind(IntEnum):
    """What may hold others up, and what it is compared with: its like."""

    RANK = 0
    LINK = 1
    PATH = 2


CAUSES: Mapping[Kind, tuple[Cause, ...]] = {
    kind: tuple(cause for cause in WAIT_CAUSES if cause.against == kind.name.lower()) for kind in Kind
}
"""The causes of the account that are held against each kind."""


@dataclass(frozen=True, eq=False)
class HeldUp:
    """How long the others waited for each of some things of one kind: `ns` has the shape (things, causes, iterations).

    The causes are those of its kind. `keys` tell the things apart: processes, links, or ways between processes.
    """

    kind: Kind
    keys: tuple[object, ...]
    ns: Int64 | Int32


def by_ranks(waiting: Waiting, pids: Sequence[int], mates: Bool, windows: Windows) -> HeldUp:
    """Return for how long the median one of its mates waits for each process, because it is late or its host is busy.

    `pids` are ascending; `mates`, shape (P, P), says who is in a communicator with whom.
    """
    held_ns = np.zeros((len(pids), len(CAUSES[Kind.RANK]), len(windows)), np.int64)
    known = np.array(pids, np.int64)
    waiting = waiting.where(np.isin(waiting.pid, known) & np.isin(waiting.culprit, known))
    for number, cause in enumerate(CAUSES[Kind.RANK]):
        parts, place = by_window(waiting.of(cause), windows)
        culprit, waiter = (np.searchsorted(known, each) for each in (parts.culprit, parts.pid))
        among = mates[culprit, waiter]
        cell = (culprit * len(windows) + place) * len(pids) + waiter
        held_ns[:, number] = _median_of_mates(cell[among], parts.length_ns[among], mates.sum(axis=1), len(windows))
    return HeldUp(Kind.RANK, tuple(pids), held_ns)


def _median_of_mates(cell: Int64, length_ns: Int64, mates: Int64, windows: int) -> Int64:
    """Return for how long the median mate of each of P processes waits for it in each window; shape (P, windows).

    `cell` numbers a process, a window and a mate, of which a process has so many: most of them do not wait.
    """
    cells, row = np.unique(cell, return_inverse=True)
    waited = np.bincount(row.reshape(-1), weights=length_ns, minlength=len(cells))
    thing = cells // len(mates)
    order = np.lexsort((waited, thing))
    thing, waited = thing[order], waited[order]
    first = np.flatnonzero(np.diff(thing, prepend=-1))
    count, of_all = np.diff(np.append(first, len(thing))), mates[thing[first] // windows]
    middle = np.zeros((2, len(first)))
    for half, at in enumerate(((of_all - 1) // 2, of_all // 2)):
        place = at - (of_all - count)  # of those that wait at all; before them are those that do not
        middle[half] = np.where(place >= 0, waited[first + np.maximum(place, 0)], 0.0)
    median_ns = np.zeros(len(mates) * windows, np.int64)
    median_ns[thing[first]] = middle.mean(axis=0)
    return median_ns.reshape(len(mates), windows)


def by_window(waiting: Waiting, windows: Windows) -> tuple[Waiting, Int64]:
    """Cut stretches by windows, and return what lies in any, and in which."""
    begin, end, row = cut_at(waiting.begin_ns, waiting.end_ns, distinct(windows.begin_ns, windows.end_ns))
    place = np.searchsorted(windows.begin_ns, begin, "right") - 1
    inside = np.flatnonzero((place >= 0) & (end <= np.append(windows.end_ns, 0)[place]))
    return replace(waiting.where(row[inside]), begin_ns=begin[inside], end_ns=end[inside]), place[inside]


def by_links(
    account: Account, members: Mapping[int, Sequence[int]], links: Sequence[LinkKey], windows: Windows
) -> HeldUp:
    """Return for how long most of a communicator wait while one link of it alone is full.

    `members` are the processes of each communicator, `links` all that they use. Where those of several wait for one at
    the same time, that is one time.
    """
    held_ns = np.zeros((len(links), len(CAUSES[Kind.LINK]), len(windows)), np.int64)
    place_of = {link: place for place, link in enumerate(links)}
    for number, cause in enumerate(CAUSES[Kind.LINK]):
        held: list[list[Intervals]] = [[] for _ in links]
        waiting = _by_group(account.around, cause)
        for group, pids in members.items():
            times = account.groups.get(group)
            if times is None:
                continue
            waits = _most_wait(waiting.get(group), pids)
            for link in {each.side.link for each in times.bottlenecks} & place_of.keys():
                held[place_of[link]].append(waits & _alone(times, link, others=cause.of_others))
        for place, link_times in enumerate(held):
            held_ns[place, number] = windows.of(union(link_times))
    return HeldUp(Kind.LINK, tuple(links), held_ns)


def _alone(times: GroupTimes, link: LinkKey, *, others: bool) -> Intervals:
    """Return when one link holds a communicator up and no other one is full."""
    full = union([each.others if others else each.own for each in times.bottlenecks if each.side.link == link])
    return full - union([each.full for each in times.bottlenecks if each.side.link != link]) if len(full) else NOTHING


def by_paths(
    account: Account,
    members: Mapping[int, Sequence[int]],
    paths: Paths,
    clocks: BusyClocks,
    sent_bytes: Int64,
    windows: Windows,
) -> HeldUp:
    """Return for how long most of a communicator wait while one way between two of it recovers from loss, or is busy.

    Of the time that no link and no loss explains, a way is held for as much as TCP was busy there for longer than the
    median of its siblings; `sent_bytes` are by flow. Where several communicators use a way, that is the most for any.
    """
    main = main_ways(paths, sent_bytes)
    held_ns = np.zeros((len(main), 2, len(windows)), np.int64)
    again: list[list[Intervals]] = [[] for _ in main]
    of_path = {int(paths.of_flow[rows[0]]): rows.tolist() for rows in grouped(paths.of_flow)}
    flows = [of_path[path] for path in main.tolist()]
    waiting = [_by_group(account.around, cause) for cause in CAUSES[Kind.PATH]]
    ways = [paths.keys[path] for path in main.tolist()]
    of_pid: defaultdict[int, list[int]] = defaultdict(list)
    for place, way in enumerate(ways):
        of_pid[way.pid].append(place)
    for group, pids in members.items():
        times, ends = account.groups.get(group), {UNKNOWN, *pids}  # a path to an unknown peer counts as one to a rank
        inside = np.array([place for pid in pids for place in of_pid[pid] if ways[place].to_pid in ends], np.int64)
        if times is None or len(inside) == 0:
            continue
        inside.sort()
        recovering, slow = (_most_wait(each.get(group), pids) for each in waiting)
        for place in inside.tolist():
            lost = union([times.loss[flow] for flow in flows[place] if flow in times.loss])
            again[place].append(recovering & lost)
        busy = np.stack([clocks.during(flows[place], windows.begin_ns, windows.end_ns) for place in inside.tolist()])
        held = np.minimum(
            more_than_siblings(busy, [ways[place] for place in inside.tolist()]), windows.of(slow)
        ).astype(np.int64)
        held_ns[inside, 1] = np.maximum(held_ns[inside, 1], held)
    for place, path_times in enumerate(again):
        held_ns[place, 0] = windows.of(union(path_times))
    return HeldUp(Kind.PATH, tuple(ways), held_ns)


def _by_group(waiting: Waiting, cause: Cause) -> dict[int, Waiting]:
    """Return the stretches with one cause, by the communicator that is waited for."""
    waits = waiting.of(cause)
    return {int(waits.group[rows[0]]): waits.where(rows) for rows in grouped(waits.group)}


def _most_wait(waits: Waiting | None, pids: Sequence[int]) -> Intervals:
    """Return when at least half of some processes wait, of those that wait for a communicator."""
    if waits is None:
        return NOTHING
    waits = waits.where(np.isin(waits.pid, np.array(pids, np.int64)))
    return at_least([merge(own.begin_ns, own.end_ns) for _, own in by_pid(waits)], -(-len(pids) // 2))


def mates(members: Mapping[int, Sequence[int]], pids: Sequence[int]) -> Bool:
    """Return which processes are in a communicator together, shape (P, P); without any known, all are."""
    together = np.zeros((len(pids), len(pids)), bool)
    for group in members.values():
        inside = np.flatnonzero(np.isin(pids, list(group)))
        together[np.ix_(inside, inside)] = True
    if not together.any():
        together[:] = True
    np.fill_diagonal(together, False)
    return together
