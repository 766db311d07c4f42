"""One host's digest as a part of its job: on the clock of the first host, with the job's numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from netprof.analysis.account.waiting import OnWire
from netprof.analysis.digest.digest import BoundedSteps, CollectiveTimes, Did, Digest, HostPart, Tables, TcpClocks
from netprof.analysis.digest.opened import Source, open_digest
from netprof.analysis.digest.shared_communicators import SharedCommunicator, ViewKey, key_of
from netprof.analysis.digest.spans import SpanKey, Spans, SpanSet, What
from netprof.analysis.digest.ways import spread_over
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.iterations import IterationTimes
from netprof.analysis.events.matching import partners
from netprof.analysis.events.members import GroupView, are_one, views_of
from netprof.analysis.findings.stragglers.doing import Spent
from netprof.analysis.findings.transport.transport_reason import ClockSamples, ClockSums
from netprof.analysis.hosts.by_collectives import of_whole_job
from netprof.analysis.hosts.moved import instant, to_reference
from netprof.analysis.hosts.numbers import MOST_PIDS
from netprof.analysis.tables.columns import UNKNOWN, Columns, Float64, Int64, by_pid, concatenate, empty
from netprof.analysis.tables.intervals import Intervals, Windows, merge
from netprof.errors import TraceError
from netprof.model import HostClock

MOST_HOSTS = 1 << 20
_MOST_CELLS = 1 << 25
TABLES = ("iterations", "collectives", "spans", "steps")
"""What a digest is read for."""
T = TypeVar("T", Collectives, IterationTimes, BoundedSteps)
NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class Reference:
    """The host whose clock the job's is.

    `views` are the communicators of the whole job as one of its ranks sees them: their collectives, one after the
    other, are the job's events. `collectives` are those by which clocks are compared. `communicators` are those of a
    part of the job that are on more than one host, by number, from 1 on: 0 is the whole job.
    """

    host: HostPart
    collectives: Collectives
    views: tuple[Collectives, ...]
    world_size: int | None
    communicators: Mapping[int, SharedCommunicator] = field(default_factory=dict)

    @property
    def events(self) -> Collectives:
        """The collectives of the whole job."""
        return concatenate(Collectives, list(self.views))

    def starts(self, group: int) -> list[int]:
        """Return the number of the first event of each communicator of a group, and how many there are."""
        views = self.views if group == 0 else (self.communicators[group].collectives,)
        return [0, *np.cumsum([len(view) for view in views]).tolist()]

    @property
    def sizes(self) -> Int64:
        """The bytes of the buffer of each collective that more than one host takes part in."""
        parts = [*self.views, *(each.collectives for each in self.communicators.values())]
        return concatenate(Collectives, parts).bytes

    @cached_property
    def of_key(self) -> dict[ViewKey, int]:
        """Which communicator of a part of the job, by its number, a process has under which name."""
        return {key: number for number, each in self.communicators.items() for key in each.members}


@dataclass(frozen=True, eq=False)
class Accounted(Columns):
    """The iterations of which it is said what is waited in them: the steps of what is only seen to launch; ns."""

    pid: Int64
    begin_ns: Int64
    duration_ns: Int64

    def inside(self, span_ns: tuple[int, int]) -> Accounted:
        """Return those that lie in some time."""
        return self.where((self.begin_ns >= span_ns[0]) & (self.begin_ns + self.duration_ns <= span_ns[1]))

    def whole(self, pid: int) -> Intervals:
        """Return the time in those of a process."""
        steps = self.of_pid(pid)
        return merge(steps.begin_ns, steps.begin_ns + steps.duration_ns)

    @property
    def windows(self) -> Windows:
        """The same, of a single process, as windows."""
        return Windows(self.begin_ns, self.begin_ns + self.duration_ns)


def accounted(times: IterationTimes) -> Accounted:
    """Return iterations that marks tell."""
    return Accounted(*(getattr(times, name).astype(np.int64) for name in Accounted.__dataclass_fields__))


@dataclass(frozen=True, eq=False)
class JobHost:
    """One host: all times are the reference's, all processes have the job's numbers.

    `group` says of which communicator that all hosts know each collective is, UNKNOWN for one of none: 0 is the whole
    job, others are the reference's. `event` says which of that one's events it is, UNKNOWN for one that is not among
    them. `steps` are those of processes that are only seen to launch.
    """

    number: int
    host: HostPart
    times: IterationTimes
    collectives: Collectives
    on_wire: OnWire
    group: Int64
    event: Int64
    spans: Mapping[SpanKey, Intervals]
    steps: BoundedSteps

    @property
    def accounted(self) -> Accounted:
        """The iterations of which it is said what is waited in them."""
        steps = self.steps
        if not self.host.bounded:
            return accounted(self.times)
        return Accounted(steps.pid, steps.begin_ns, steps.end_ns - steps.begin_ns)

    def by_pid(self, what: What) -> dict[int, Intervals]:
        """Return the sets of time of one kind, by process."""
        return {key.pid: times for key, times in self.spans.items() if key.what is what}

    @property
    def groups(self) -> list[int]:
        """The numbers of the communicators that all hosts know and processes of this one take part in."""
        return [int(number) for number in np.unique(self.group) if number != UNKNOWN]

    def members_of(self, group: int) -> list[int]:
        """Return the processes that take part in the collectives of a communicator."""
        return [int(pid) for pid in np.unique(self.collectives.pid[self.group == group])]

    def flow_number(self, place: int) -> int:
        """Return the job's number of one of the host's sets of time that are of flows."""
        return self.number * MOST_PIDS + place


def reference_of(source: Source) -> Reference:
    """Return the reference of a job, given the digest of its first host. Raises TraceError."""
    digest = open_digest(source, TABLES)  # all of them: the reference has to be in the report
    size, every = digest.host.world_size, collectives_of(digest.tables.collectives)
    exact = every if not digest.host.bounded else empty(Collectives)
    whole = [view for view in views_of(every, {}, size) if size is None or view.ranks in (size, UNKNOWN)]
    pids, counts = np.unique([view.pid for view in whole for _ in view.rows], return_counts=True)
    of_one = [view.collectives for view in whole if view.pid == (pids[np.argmax(counts)] if len(pids) else None)]
    return Reference(digest.host, of_whole_job(exact, size), tuple(sorted(of_one, key=len, reverse=True)), size)


def own_of(numbered: tuple[int, Source], reference: Reference, clocks: Mapping[int, HostClock]) -> JobHost:
    """Return one host as a part of the job; `clocks` are by number. Raises TraceError."""
    number, source = numbered
    if number >= MOST_HOSTS:
        raise TraceError(f"{number + 1} digests are more than can be told apart", f"give {MOST_HOSTS} at most")
    digest, clock = open_digest(source, TABLES), clocks[number]
    table = digest.tables.collectives
    distance = number * MOST_PIDS
    moved = moved_collectives(table, clock, distance)
    order = np.argsort(table.begin_ns, kind="stable")
    moved_ns = np.where(table.moved_ns[order] == UNKNOWN, NEVER, to_reference(clock, table.moved_ns[order]))
    group, event = _events(moved, reference)
    return JobHost(
        number=number,
        host=_moved_host(digest.host, clock, distance),
        times=_moved(digest.tables.iterations, clock, distance, "begin_ns"),
        collectives=moved,
        on_wire=OnWire(table.another_way[order] == 1, moved_ns),
        group=group,
        event=event,
        spans=_spans(digest.host, digest.tables.spans, clock, distance),
        steps=_moved(digest.tables.steps, clock, distance, "begin_ns", "end_ns"),
    )


def collectives_of(table: CollectiveTimes) -> Collectives:
    """Return what a digest knows of collectives, by begin."""
    names = [name for name in CollectiveTimes.__dataclass_fields__ if name in Collectives.__dataclass_fields__]
    columns = {name: getattr(table, name) for name in names}
    collectives = Collectives(**columns, tid=table.pid, posted_tid=table.pid, work=np.zeros(len(table), np.int64))
    return collectives.where(np.argsort(collectives.begin_ns, kind="stable"))


def moved_collectives(table: CollectiveTimes, clock: HostClock, distance: int) -> Collectives:
    """Return the collectives of a host on the job's clock, whose processes have numbers that are `distance` farther."""
    return _moved(collectives_of(table), clock, distance, "begin_ns", "end_ns", "posted_ns")


def _moved(table: T, clock: HostClock, distance: int, *times: str) -> T:
    """Return rows of a host as the job's: some columns are times."""
    moved = {name: to_reference(clock, getattr(table, name).astype(np.int64)) for name in times}
    return replace(table, pid=table.pid.astype(np.int64) + distance, **moved)


def _moved_host(host: HostPart, clock: HostClock, distance: int) -> HostPart:
    ranks = {pid + distance: rank for pid, rank in host.told_ranks.items()}
    span = instant(clock, host.span_ns[0]), instant(clock, host.span_ns[1])
    named = {each.pid: each.pid for each in host.ranks} | {pid: pid for pid in host.told_ranks}
    pids = {pid + distance: pid for pid in named}
    ends = host.open_waits
    if ends is not None:
        ends = replace(ends, waited_ns={pid + distance: ns for pid, ns in ends.waited_ns.items()})
    return replace(
        host,
        host=replace(host.host, clock=clock, pids=pids),
        told_ranks=ranks,
        span_ns=span,
        unbounded={pid + distance: why for pid, why in host.unbounded.items()},
        on_gpu=tuple(pid + distance for pid in host.on_gpu),
        profiled=tuple(pid + distance for pid in host.profiled),
        open_waits=ends,
    )


def _events(moved: Collectives, reference: Reference) -> tuple[Int64, Int64]:
    """Return of which communicator each collective is, and which of its events, as `JobHost` has them.

    Every communicator of the whole job that a process has is one of the reference's.
    """
    group, event = np.full(len(moved), UNKNOWN), np.full(len(moved), UNKNOWN)
    taken: set[tuple[int, int]] = set()
    starts = reference.starts(0)
    for view in sorted(views_of(moved, {}, reference.world_size), key=lambda view: -len(view.rows)):
        shared = reference.of_key.get(key_of(view))
        if shared is not None:
            group[view.rows] = shared
            event[view.rows] = partners(view.collectives, reference.communicators[shared].collectives)
            continue
        number, partner_rows = _same_communicator(view, reference, [each for pid, each in taken if pid == view.pid])
        if number is not None:
            taken.add((view.pid, number))
            group[view.rows] = 0
            event[view.rows] = np.where(partner_rows >= 0, partner_rows + starts[number], UNKNOWN)
    return group, event


def _same_communicator(view: GroupView, reference: Reference, taken: Sequence[int]) -> tuple[int | None, Int64]:
    if reference.world_size is None or view.ranks in (reference.world_size, UNKNOWN):
        for number, of_job in enumerate(reference.views):
            if number not in taken and of_job.backend[0] == view.collectives.backend[0]:
                partner_rows = partners(view.collectives, of_job)
                if are_one(of_job, view.collectives, partner_rows):
                    return number, partner_rows
    return None, np.zeros(0, np.int64)


def _spans(host: HostPart, table: Spans, clock: HostClock, distance: int) -> dict[SpanKey, Intervals]:
    order = np.argsort(table.set, kind="stable")
    edges = np.searchsorted(table.set[order], np.arange(len(host.spans) + 1))
    begin, end = (to_reference(clock, each[order]) for each in (table.begin_ns, table.end_ns))
    spans = {}
    for place, each in enumerate(host.spans):
        rows = slice(edges[place], edges[place + 1])
        key = _key(each, distance)
        apart = Intervals(begin[rows], end[rows])
        spans[key] = apart if key.what is What.RESENDS else merge(apart.begin_ns, apart.end_ns)
    return spans


def _key(span_set: SpanSet, distance: int) -> SpanKey:
    pid = span_set.pid + distance if span_set.pid >= 0 else span_set.pid
    return SpanKey(What(span_set.what), pid, span_set.link, span_set.direction, span_set.flow)


def check_size(rows: int, windows: int) -> None:
    """Raise TraceError where there are more processes, or ways, by iterations than any job has."""
    if rows * windows > _MOST_CELLS:
        raise TraceError(
            f"{rows} processes or ways of a host in {windows} iterations are more than any job has",
            "make the digests again from their traces",
        )


def did_in(tables: Tables, number: int, clock: HostClock, windows: Windows) -> Did:
    """Return what the processes of one host did, by the iterations of the job: theirs do not begin at the same time."""
    edges, wanted = _edges(tables, clock), (windows.begin_ns, windows.end_ns)
    check_size(len(np.unique(tables.did.pid)), max(len(edges[0]), len(windows)))
    parts = []
    for pid, did in by_pid(tables.did):
        values = np.full((len(Spent), len(edges[0])), np.nan)
        values[:, did.window] = did.amounts
        is_known = ~np.isnan(values)
        with_known = np.concatenate((np.where(is_known, values, 0.0), is_known))
        amounts, known = np.split(spread_over(with_known, edges, wanted), 2)
        amounts = np.where(known > 0, amounts, np.nan)
        same = np.full(len(windows), pid + number * MOST_PIDS)
        parts.append(Did(same, np.arange(len(windows)), *amounts))
    return concatenate(Did, parts)


def ways_in(digest: Digest, clock: HostClock, windows: Windows) -> Float64:
    """Return for how long each way of a host was busy, by the iterations of the job; shape (ways, iterations), ns."""
    table, edges = digest.tables.way_busy, _edges(digest.tables, clock)
    check_size(len(digest.host.ways), max(len(edges[0]), len(windows)))
    values = np.zeros((len(digest.host.ways), len(edges[0])))
    np.add.at(values, (table.way, table.window), table.busy_ns)
    return spread_over(values, edges, (windows.begin_ns, windows.end_ns))


def _edges(tables: Tables, clock: HostClock) -> tuple[Int64, Int64]:
    """Return when a host's iterations begin and end, on the job's clock."""
    return to_reference(clock, tables.windows.begin_ns), to_reference(clock, tables.windows.end_ns)


def ran_in(table: TcpClocks, clock: HostClock, times: Intervals) -> ClockSums | None:
    """Return for how long TCP's clocks of a host ran in some time; None where none were recorded."""
    if len(table) == 0:
        return None
    begin_ns, end_ns = (to_reference(clock, at_ns) for at_ns in (table.begin_ns, table.end_ns))
    names = ("busy_us", "receiver_us", "sender_us", "held_back_us", "full_us")
    clocks = np.stack([getattr(table, name) for name in names]).astype(np.float64)
    return ClockSamples(begin_ns, end_ns, clocks, table.watched_ns).ran_in(times)


def bounds_ns(hosts: Mapping[int, HostClock]) -> Float64:
    """Return how true the clock of each host is, by its number: a number whose digest was left out has none."""
    bounds = np.full(max(hosts) + 1, np.inf)
    for number, clock in hosts.items():
        if clock.bound_ns is not None:
            bounds[number] = clock.bound_ns
    return bounds
