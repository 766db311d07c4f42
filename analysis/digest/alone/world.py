"""The collectives of the whole job, as all hosts together know them: what each needs to explain its own waiting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.bottlenecks import one_after_another
from netprof.analysis.account.held_up import Windows
from netprof.analysis.digest.alone.latest import Latest, is_sure
from netprof.analysis.digest.alone.own import Own, Reference
from netprof.analysis.events.members import Members
from netprof.analysis.tables.columns import UNKNOWN, Float64, Int64
from netprof.analysis.tables.intervals import Intervals, interval, union


@dataclass(frozen=True, eq=False)
class Seen:
    """By communicator of the whole job: how many processes saw it, the latest first event and the earliest last one."""

    processes: Int64
    first: Int64
    last: Int64


@dataclass(frozen=True, eq=False)
class World:
    """When every collective of the whole job was under way, who came last to it, and when all ranks were recorded.

    `last_pid` is UNKNOWN where clocks do not tell; `last_host` is whose last one is, `bounds_ns` how true the clocks
    are, by host. `sizes` are of the collectives' buffers. `windows` are the iterations of the process that has the
    most, in `span_ns`, which all hosts recorded. Where processes are only seen to launch, what they wait is `bounded`,
    and those are their steps.
    """

    first_ns: Int64
    ready_ns: Int64
    last_pid: Int64
    last_host: Int64
    seen: Int64
    bounds_ns: Float64
    turn: Intervals
    all_seen: Intervals
    windows: Windows
    span_ns: tuple[int, int]
    world_size: int | None
    sizes: Int64
    bounded: bool

    def members(self, own: Own, local: Members) -> Members:
        """Return the members of a host's collectives; what `local` says of those of the whole job is replaced.

        Those are of communicator 0, with what only this host saw of it at an edge of the recordings; all others are of
        what they are of on the host alone, and one more.
        """
        of_job = own.event != UNKNOWN
        event = own.event[of_job]
        ready_ns, host = self.ready_ns[event], self.last_host[event]
        room_ns = np.where(host == own.number, 0.0, self.bounds_ns[own.number] + self.bounds_ns[host])
        posted_ns = own.collectives.posted_ns[of_job]
        late_ns = np.where((host == own.number) | (ready_ns - posted_ns > room_ns), ready_ns, posted_ns)
        at_edge = ~of_job & np.isin(local.group, local.group[of_job])
        group = np.where(of_job | at_edge, 0, np.where(local.group >= 0, local.group + 1, local.group))
        found = {name: getattr(local, name).copy() for name in Members.__dataclass_fields__} | {"group": group}
        found["event"][~of_job & (local.event >= 0)] += len(self.ready_ns)
        for name, values in (
            ("event", event),
            ("ready_ns", ready_ns),
            ("last_pid", self.last_pid[event]),
            ("late_ns", late_ns),
            ("seen", self.seen[event]),
        ):
            found[name][of_job] = values
        if self.world_size is not None:
            found["ranks"][of_job | at_edge] = self.world_size
        return Members(**found)


def seen_of(own: Own, reference: Reference) -> Seen:
    """Return what the processes of one host saw of the communicators of the whole job."""
    count = len(reference.views)
    processes, first, last = np.zeros(count, np.int64), np.zeros(count, np.int64), np.full(count, 1 << 62)
    starts = np.array(reference.starts[1:], np.int64)
    pid, event = own.collectives.pid[own.event != UNKNOWN], own.event[own.event != UNKNOWN]
    view = np.searchsorted(starts, event, "right")
    for one in np.unique(pid).tolist():
        for number in np.unique(view[pid == one]).tolist():
            its = event[(pid == one) & (view == number)]
            processes[number] += 1
            first[number], last[number] = max(first[number], its.min()), min(last[number], its.max())
    return Seen(processes, first, last)


def seen_by_all(parts: Sequence[Seen]) -> Seen:
    """Return what the processes of several hosts saw."""
    return Seen(
        np.sum([part.processes for part in parts], axis=0, dtype=np.int64),
        np.maximum.reduce([part.first for part in parts]),
        np.minimum.reduce([part.last for part in parts]),
    )


def world_of(
    latest: Latest,
    seen: Seen,
    bounds_ns: Float64,
    windows: Windows,
    span_ns: tuple[int, int],
    reference: Reference,
    *,
    bounded: bool,
) -> World:
    """Return what all hosts come to; `span_ns` is the time that all recorded."""
    world_size = reference.world_size
    known = latest.seen > 0
    return World(
        first_ns=latest.first_ns,
        ready_ns=latest.last_ns,
        last_pid=np.where(is_sure(latest, bounds_ns), latest.last_pid, UNKNOWN),
        last_host=np.maximum(latest.last_host, 0),
        seen=latest.seen,
        bounds_ns=bounds_ns,
        turn=one_after_another(latest.first_ns[known], latest.done_ns[known]),
        all_seen=_all_seen(latest, seen, world_size),
        windows=windows,
        span_ns=span_ns,
        world_size=world_size,
        sizes=reference.events.bytes,
        bounded=bounded,
    )


def _all_seen(latest: Latest, seen: Seen, world_size: int | None) -> Intervals:
    """Return when all members were recorded, as `waiting.when_all_seen` does."""
    found = []
    for processes, first, last in zip(
        *(each.tolist() for each in (seen.processes, seen.first, seen.last)), strict=True
    ):
        if first <= last and processes >= (world_size or 0):
            both = slice(first, last + 1)
            inside = latest.seen[both] > 0
            begin, end = latest.first_ns[both][inside], latest.done_ns[both][inside]
            found.append(interval(int(begin.min(initial=1 << 62)), int(end.max(initial=0))))
    return union(found)
