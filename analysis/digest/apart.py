"""The digests of hosts that were each digested alone: put on one clock by their streams, to say who comes last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.digest.conclude import in_order, without_times
from netprof.analysis.digest.digest import CollectiveTimes, Digest, HostPart, JobPart
from netprof.analysis.digest.latest import Latest, arrivals_of, latest_of, latest_of_all
from netprof.analysis.digest.opened import Source, open_digest
from netprof.analysis.digest.passages import NumberedStreams, streams_of
from netprof.analysis.events.arrivals import Arrivals
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.iterations import IterationTimes, narrow
from netprof.analysis.events.matching import partners
from netprof.analysis.events.split import splits_of
from netprof.analysis.findings.iterations import IterationsFinding, most_iterations
from netprof.analysis.findings.scaling import Scaling, scaling
from netprof.analysis.hosts.by_collectives import for_all, of_whole_job, paired
from netprof.analysis.hosts.clocks import by_collectives, by_realtime
from netprof.analysis.hosts.moved import instant, to_reference
from netprof.analysis.hosts.numbers import MOST_PIDS
from netprof.analysis.tables.columns import Columns, Float64, Int64, concatenate
from netprof.errors import TraceError, UsageError
from netprof.model import HostClock

_MOST_HOSTS = 1 << 20
_TABLES = ("iterations", "collectives")


@dataclass(frozen=True, eq=False)
class Reference:
    """The host whose clock the job's is, and the collectives of the whole job that its first rank saw."""

    host: HostPart
    collectives: Collectives
    world_size: int | None


@dataclass(frozen=True, eq=False)
class ApartPart:
    """Some hosts of a job, each digested alone: all times are the reference's, all processes have the job's numbers."""

    numbers: tuple[int, ...]
    jobs: tuple[JobPart, ...]
    hosts: tuple[HostPart, ...]
    times: IterationTimes
    latest: Latest


@dataclass(frozen=True, eq=False)
class ApartConcluded:
    """What they come to: iterations in the time that all recorded, and who came last in each."""

    jobs: tuple[JobPart, ...]
    hosts: tuple[HostPart, ...]
    span_ns: tuple[int, int]
    iterations: IterationsFinding
    scaling: Scaling | None
    arrivals: Arrivals
    iteration_ns: Int64


def reference_of(source: Source) -> Reference:
    """Return the reference of a job, given the digest of its first host. Raises TraceError, UsageError."""
    digest = _alone(open_digest(source, _TABLES))
    size = digest.job.world_size
    return Reference(digest.host, of_whole_job(_collectives(digest.tables.collectives), size), size)


def _alone(digest: Digest) -> Digest:
    if len(digest.job.hosts) > 1:
        names = ", ".join(digest.job.hosts[:4])
        raise UsageError(
            f"the digest of {digest.host.host.name} was made together with others ({names}), these were not",
            "make all digests of a job with one netprof digest, or each alone",
        )
    return digest


def streams_part(numbered: tuple[int, Source]) -> tuple[NumberedStreams, ...]:
    """Return the streams of one host. Raises TraceError."""
    number, source = numbered
    digest = open_digest(source, ("passages",))
    host = digest.host
    streams = streams_of(digest.tables.passages, host.ends)
    return (NumberedStreams(number, host.host.meta.boot_id, host.span_ns, streams),)


def all_streams(parts: Sequence[tuple[NumberedStreams, ...]]) -> tuple[NumberedStreams, ...]:
    """Return the streams of all hosts."""
    return tuple(each for part in parts for each in part)


def apart_part(numbered: tuple[int, Source], reference: Reference, clocks: Mapping[int, HostClock]) -> ApartPart:
    """Return what one host adds; the reference is number 0, `clocks` are by number, as far as streams tell.

    Raises TraceError, UsageError.
    """
    number, source = numbered
    if number >= _MOST_HOSTS:
        raise TraceError(f"{number + 1} digests are more than can be told apart", f"give {_MOST_HOSTS} at most")
    digest = _alone(open_digest(source, _TABLES))
    if digest.job.world_size != reference.world_size:
        raise TraceError(
            f"the digest of {digest.host.host.name} is of another job than that of {reference.host.host.name}",
            "name the digests of one job",
        )
    every = _collectives(digest.tables.collectives)
    clock = clocks.get(number) or _clock(digest.host, every, reference)
    distance = number * MOST_PIDS
    times = _moved_times(digest.tables.iterations, clock, distance)
    own = for_all(_moved(every, clock, distance), reference.world_size)
    return ApartPart(
        numbers=(number,),
        jobs=(digest.job,),
        hosts=(_moved_host(digest.host, clock, distance),),
        times=narrow(times),
        latest=_latest(own, reference.collectives, number, clock),
    )


def _collectives(table: CollectiveTimes) -> Collectives:
    columns = {name: getattr(table, name) for name in CollectiveTimes.__dataclass_fields__}
    found = Collectives(**columns, tid=table.pid, posted_tid=table.pid, work=np.zeros(len(table), np.int64))
    return found.where(np.argsort(found.begin_ns, kind="stable"))


def _clock(host: HostPart, own: Collectives, reference: Reference) -> HostClock:
    meta, known = host.host.meta, reference.host
    rough = by_realtime(known.host.meta.clock, meta.clock)
    both = paired(reference.collectives, of_whole_job(own, reference.world_size), rough)
    found = None if both is None else by_collectives(*both, known.span_ns)
    return rough if found is None else found


def _moved(found: Collectives, clock: HostClock, distance: int) -> Collectives:
    times = {name: to_reference(clock, getattr(found, name)) for name in ("begin_ns", "end_ns", "posted_ns")}
    return replace(found, pid=found.pid + distance, **times)


def _moved_times(times: IterationTimes, clock: HostClock, distance: int) -> IterationTimes:
    begin_ns = to_reference(clock, times.begin_ns.astype(np.int64))
    return replace(times, pid=times.pid.astype(np.int64) + distance, begin_ns=begin_ns)


def _moved_host(host: HostPart, clock: HostClock, distance: int) -> HostPart:
    ranks = {pid + distance: rank for pid, rank in host.told_ranks.items()}
    span = instant(clock, host.span_ns[0]), instant(clock, host.span_ns[1])
    pids = {pid: pid - distance for pid in ranks}
    return replace(host, host=replace(host.host, clock=clock, pids=pids), told_ranks=ranks, span_ns=span)


def _latest(own: Collectives, reference: Collectives, number: int, clock: HostClock) -> Latest:
    parts = []
    for pid in np.unique(own.pid).tolist():
        mine = own.where(own.pid == pid)
        mine = mine.where(np.argsort(mine.posted_ns, kind="stable"))
        event = partners(mine, reference)
        parts.append(_Events(event, mine.posted_ns, mine.pid).where(event >= 0))
    found = concatenate(_Events, parts)
    return latest_of(found.event, found.posted_ns, found.pid, number, clock.bound_ns, len(reference))


@dataclass(frozen=True, eq=False)
class _Events(Columns):
    event: Int64
    posted_ns: Int64
    pid: Int64


def apart_together(parts: Sequence[ApartPart]) -> ApartPart:
    """Return the parts of some hosts as one."""
    return ApartPart(
        numbers=tuple(number for part in parts for number in part.numbers),
        jobs=tuple(job for part in parts for job in part.jobs),
        hosts=tuple(host for part in parts for host in part.hosts),
        times=concatenate(IterationTimes, [part.times for part in parts]),
        latest=latest_of_all([part.latest for part in parts]),
    )


def conclude_apart(part: ApartPart, baseline_s: float | None = None) -> ApartConcluded:
    """Conclude from all hosts. Raises TraceError where they recorded no time in common."""
    order = np.argsort(part.numbers, kind="stable").tolist()
    hosts, jobs = tuple(part.hosts[n] for n in order), tuple(part.jobs[n] for n in order)
    span = max(host.span_ns[0] for host in hosts), min(host.span_ns[1] for host in hosts)
    if span[0] >= span[1]:
        raise TraceError("the hosts recorded no time in common", "name the digests of hosts that recorded together")
    times = in_order(_cut(part.times, span))
    iterations = _iterations(jobs, times)
    found, (begin_ns, end_ns) = iterations.durations, _windows(times)
    ranks = {pid: rank for host in hosts for pid, rank in host.told_ranks.items()}
    return ApartConcluded(
        jobs=jobs,
        hosts=hosts,
        span_ns=span,
        iterations=without_times(iterations),
        scaling=scaling(splits_of(times), ranks, found.phases.total if found else None, baseline_s),
        arrivals=arrivals_of(part.latest, _bounds(part), begin_ns, end_ns),
        iteration_ns=end_ns - begin_ns,
    )


def _bounds(part: ApartPart) -> Float64:
    """Return how true the clock of each host is, by its number: a number whose digest was left out has none."""
    found = np.full(max(part.numbers) + 1, np.inf)
    for number, host in zip(part.numbers, part.hosts, strict=True):
        if host.host.clock.bound_ns is not None:
            found[number] = host.host.clock.bound_ns
    return found


def _cut(times: IterationTimes, span_ns: tuple[int, int]) -> IterationTimes:
    """Return the iterations in the time that all hosts recorded; what lasts since the one before is not known there."""
    begin_ns = times.begin_ns.astype(np.int64)
    inside = (begin_ns >= span_ns[0]) & (begin_ns + times.duration_ns <= span_ns[1])
    if inside.all():
        return times
    found = times.where(inside)
    first = np.append(True, found.pid[1:] != found.pid[:-1])[: len(found)]
    first &= np.append(True, ~inside[:-1])[inside]
    level = {name: np.where(first, 0, getattr(found, name)) for name in ("level_ns", "level_exposed_ns")}
    return replace(found, **level)


def _windows(times: IterationTimes) -> tuple[Int64, Int64]:
    """Return the iterations of the process that has the most."""
    if len(times) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    pids, counts = np.unique(times.pid, return_counts=True)
    own = times.where(times.pid == pids[np.argmax(counts)])
    begin_ns = own.begin_ns.astype(np.int64)
    return begin_ns, begin_ns + own.duration_ns


def _iterations(jobs: Sequence[JobPart], times: IterationTimes) -> IterationsFinding:
    dropped = jobs[0].dropped
    for job in jobs[1:]:
        dropped = dropped + job.dropped
    return IterationsFinding(
        count=most_iterations(times) if any(job.told for job in jobs) else None,
        times=times,
        inferred=None,
        failures=(),
        dropped=dropped,
        stepped=tuple(pid for job in jobs for pid in job.stepped),
        models=max(job.models for job in jobs),
        accumulates=any(job.accumulates for job in jobs),
        forward_unseen=any(job.forward_unseen for job in jobs),
    )
