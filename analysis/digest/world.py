"""The collectives that hosts have in common, as all together know them: what each needs to explain its waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.bottlenecks import one_after_another
from netprof.analysis.digest.host_in_job import JobHost, Reference
from netprof.analysis.digest.last_arrivals import Latest, is_sure, untold_ns
from netprof.analysis.digest.shared_communicators import exchanged, flows_of
from netprof.analysis.events.members import UNTOLD_NS, Members, find_members, lone_members
from netprof.analysis.events.roots import last_awaited, needs
from netprof.analysis.hosts.numbers import MOST_PIDS
from netprof.analysis.tables.columns import UNKNOWN, Float64, Int64, grouped
from netprof.analysis.tables.intervals import Intervals, Windows, interval, union


@dataclass(frozen=True, eq=False)
class Seen:
    """By communicator of some processes: how many saw it, the latest first event and the earliest last one."""

    processes: Int64
    first: Int64
    last: Int64


@dataclass(frozen=True, eq=False)
class Group:
    """When every collective of a communicator was under way, who came last, and when all its members were recorded.

    `last_number`, `root_ns`, `root_pid` and `root_host` are as in `Latest`. `last_pid` is UNKNOWN where clocks do not
    tell, `last_host` is whose last one is, and `untold_ns` as in `Members`. It has `ranks` members, where that is
    known; `pids` of them have a digest.
    """

    first_ns: Int64
    ready_ns: Int64
    last_pid: Int64
    last_host: Int64
    last_number: Int64
    root_ns: Int64
    root_pid: Int64
    root_host: Int64
    untold_ns: Int64
    seen: Int64
    turn: Intervals
    all_seen: Intervals
    ranks: int | None
    pids: frozenset[int]

    @property
    def last(self) -> tuple[Int64, Int64, Int64, Int64]:
        """When the last one asked for each, which process that is, on which host, and its number."""
        return self.ready_ns, self.last_pid, self.last_host, self.last_number


@dataclass(frozen=True, eq=False)
class World:
    """The communicators that are on more than one host, by number: 0 is the whole job.

    `bounds_ns` is how true the clocks are, by host. `sizes` are of the collectives' buffers. `windows` are the
    iterations of the process that has the most, in `span_ns`, which all hosts recorded. Where processes are only seen
    to launch, what they wait is `bounded`, and those are their steps.
    """

    groups: Mapping[int, Group]
    bounds_ns: Float64
    windows: Windows
    span_ns: tuple[int, int]
    world_size: int | None
    sizes: Int64
    bounded: bool

    def members_on(self, job_host: JobHost) -> Members:
        """Return the members of a host's collectives.

        Those of communicators that all hosts know are of these, by their number, with what only this host saw of one at
        an edge of the recordings. All others are of communicators of this host alone, whose numbers come after those.
        """
        rest = np.flatnonzero(job_host.group == UNKNOWN)
        alone = job_host.collectives.where(rest)
        connected = exchanged(flows_of(job_host.host.ways, job_host.number * MOST_PIDS))
        local = find_members(alone, job_host.host.told_ranks, self.world_size, connected)
        members = lone_members(job_host.collectives, job_host.group, job_host.collectives.posted_ns)
        events = 0
        for number, group in self.groups.items():
            self._fill(members, job_host, number, group, events)
            events += len(group.first_ns)
        for name in Members.__dataclass_fields__:
            getattr(members, name)[rest] = getattr(local, name)
        members.group[rest] += np.where(local.group >= 0, self.first_local, 0)
        members.event[rest] += np.where(local.event >= 0, events, 0)
        return members

    @property
    def apart_ns(self) -> float:
        """How far the clocks of any two hosts may be apart of which anything is known."""
        known = self.bounds_ns[np.isfinite(self.bounds_ns)]
        return 2 * float(known.max(initial=0.0)) if len(self.bounds_ns) > 1 else 0.0

    @property
    def first_local(self) -> int:
        """The number of a host's first communicator that is of it alone."""
        return max(self.groups, default=-1) + 1

    def _fill(self, members: Members, job_host: JobHost, number: int, group: Group, events: int) -> None:
        rows = np.flatnonzero((job_host.group == number) & (job_host.event != UNKNOWN))
        event, mine = job_host.event[rows], job_host.collectives.where(rows)
        awaited = last_awaited(mine, event)
        ready_ns, last_pid, host = mine.posted_ns[awaited], mine.pid[awaited], np.full(len(rows), job_host.number)
        untold_ns, everything = np.full(len(rows), UNKNOWN), np.arange(len(rows))
        for at_ns, pid, of_host, of_number, untold in (
            (group.root_ns[event], group.root_pid[event], group.root_host[event], mine.root, untold_ns),
            (*(column[event] for column in group.last), group.untold_ns[event]),
        ):
            later = (at_ns >= ready_ns) & (at_ns <= mine.end_ns) & needs(mine, everything, mine.number, of_number)
            ready_ns, last_pid = np.where(later, at_ns, ready_ns), np.where(later, pid, last_pid)
            host, untold_ns = np.where(later, of_host, host), np.where(later, untold, untold_ns)
        is_here = host == job_host.number
        room_ns = np.where(is_here, 0.0, self.bounds_ns[job_host.number] + self.bounds_ns[host])
        later_ns = ready_ns - mine.posted_ns
        members.event[rows], members.seen[rows] = event + events, group.seen[event]
        members.ready_ns[rows], members.last_pid[rows] = ready_ns, last_pid
        own_ns = np.clip(room_ns - later_ns, 0, UNTOLD_NS).astype(np.int64)
        members.untold_ns[rows] = np.where(untold_ns == UNKNOWN, own_ns, untold_ns)
        members.late_ns[rows] = np.where(is_here | (later_ns > room_ns), ready_ns, mine.posted_ns)
        if group.ranks is not None:
            members.ranks[job_host.group == number] = group.ranks


def seen_of(job_host: JobHost, reference: Reference) -> dict[int, Seen]:
    """Return what the processes of one host saw of the communicators that all hosts know, by number."""
    return {number: _seen_of(job_host, number, reference.starts(number)) for number in {0, *job_host.groups}}


def _seen_of(job_host: JobHost, number: int, starts: Sequence[int]) -> Seen:
    count = len(starts) - 1
    processes, first, last = np.zeros(count, np.int64), np.zeros(count, np.int64), np.full(count, 1 << 62)
    rows = (job_host.group == number) & (job_host.event != UNKNOWN)
    pid, event = job_host.collectives.pid[rows], job_host.event[rows]
    view = np.searchsorted(np.array(starts[1:], np.int64), event, "right")
    for same in grouped(pid, view):
        place, events = view[same[0]], event[same]
        processes[place] += 1
        first[place], last[place] = max(first[place], events.min()), min(last[place], events.max())
    return Seen(processes, first, last)


def seen_by_all(parts: Sequence[Seen]) -> Seen:
    """Return what the processes of several hosts saw of one."""
    return Seen(
        np.sum([part.processes for part in parts], axis=0, dtype=np.int64),
        np.maximum.reduce([part.first for part in parts]),
        np.minimum.reduce([part.last for part in parts]),
    )


def groups_of(
    latest: Mapping[int, Latest], seen: Mapping[int, Seen], bounds_ns: Float64, reference: Reference
) -> dict[int, Group]:
    """Return what all hosts come to of the communicators that they know."""
    groups = {}
    for number, last in sorted(latest.items()):
        shared = reference.communicators.get(number)
        ranks = reference.world_size if shared is None else shared.ranks
        pids = frozenset() if shared is None else frozenset(key.pid for key in shared.members)
        known = last.seen > 0
        groups[number] = Group(
            first_ns=last.first_ns,
            ready_ns=last.last_ns,
            last_pid=np.where(is_sure(last, bounds_ns), last.last_pid, UNKNOWN),
            last_host=np.maximum(last.last_host, 0),
            last_number=last.last_number,
            root_ns=last.root_ns,
            root_pid=last.root_pid,
            root_host=np.maximum(last.root_host, 0),
            untold_ns=untold_ns(last, bounds_ns),
            seen=last.seen,
            turn=one_after_another(last.first_ns[known], last.done_ns[known]),
            all_seen=_all_seen(last, seen[number], ranks),
            ranks=ranks,
            pids=pids,
        )
    return groups


def _all_seen(latest: Latest, seen: Seen, ranks: int | None) -> Intervals:
    """Return when all members were recorded, as `waiting.when_all_seen` does."""
    spans = []
    for processes, first, last in np.stack((seen.processes, seen.first, seen.last), axis=1).tolist():
        if first <= last and processes >= (ranks or 0):
            both = slice(first, last + 1)
            inside = latest.seen[both] > 0
            begin, end = latest.first_ns[both][inside], latest.done_ns[both][inside]
            spans.append(interval(int(begin.min(initial=1 << 62)), int(end.max(initial=0))))
    return union(spans)
