"""The digests of hosts that were each digested alone, put on one clock: iterations, and who comes last to what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.account.held_up import Windows
from netprof.analysis.digest.alone.latest import Latest, arrivals_of, latest_of, latest_of_all
from netprof.analysis.digest.alone.own import Own, Reference, bounds_ns
from netprof.analysis.digest.alone.world import Seen, World, seen_by_all, seen_of, world_of
from netprof.analysis.digest.conclude import in_order, without_times
from netprof.analysis.digest.digest import HostPart, JobPart
from netprof.analysis.digest.opened import Source, open_digest
from netprof.analysis.digest.passages import NumberedStreams, streams_of
from netprof.analysis.events.arrivals import Arrivals
from netprof.analysis.events.iterations import IterationTimes, narrow
from netprof.analysis.events.split import splits_of
from netprof.analysis.findings.iterations import IterationsFinding, most_iterations
from netprof.analysis.findings.scaling import Scaling, scaling
from netprof.analysis.hosts.by_collectives import needs_all
from netprof.analysis.tables.columns import concatenate


@dataclass(frozen=True, eq=False)
class ApartPart:
    """Some hosts of a job, each digested alone: all times are the reference's, all processes have the job's numbers."""

    numbers: tuple[int, ...]
    jobs: tuple[JobPart, ...]
    hosts: tuple[HostPart, ...]
    times: IterationTimes
    latest: Latest
    seen: Seen


@dataclass(frozen=True, eq=False)
class ApartConcluded:
    """What they come to: iterations in the time that all recorded, who came last in each, and what all know together.

    `hosts` are by number.
    """

    jobs: tuple[JobPart, ...]
    hosts: Mapping[int, HostPart]
    span_ns: tuple[int, int]
    iterations: IterationsFinding
    scaling: Scaling | None
    arrivals: Arrivals
    world: World


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


def apart_part(
    numbered: tuple[int, Source], own: Callable[[tuple[int, Source]], Own], reference: Reference
) -> ApartPart:
    """Return what one host adds; `own` is how it is opened. Raises TraceError, UsageError."""
    return _part(own(numbered), reference)


def _part(own: Own, reference: Reference) -> ApartPart:
    return ApartPart(
        numbers=(own.number,),
        jobs=(own.job,),
        hosts=(own.host,),
        times=narrow(own.times),
        latest=_latest(own, reference),
        seen=seen_of(own, reference),
    )


def _latest(own: Own, reference: Reference) -> Latest:
    rows = np.flatnonzero(own.event >= 0)
    bound_ns = own.host.host.clock.bound_ns
    return latest_of(own.event[rows], own.collectives.where(rows), own.number, bound_ns, len(reference.events))


def apart_together(parts: Sequence[ApartPart]) -> ApartPart:
    """Return the parts of some hosts as one."""
    return ApartPart(
        numbers=tuple(number for part in parts for number in part.numbers),
        jobs=tuple(job for part in parts for job in part.jobs),
        hosts=tuple(host for part in parts for host in part.hosts),
        times=concatenate(IterationTimes, [part.times for part in parts]),
        latest=latest_of_all([part.latest for part in parts]),
        seen=seen_by_all([part.seen for part in parts]),
    )


def conclude_apart(
    part: ApartPart, reference: Reference, span: tuple[int, int], baseline_s: float | None = None
) -> ApartConcluded:
    """Conclude from all hosts; `span` is the time that the report is of."""
    order = np.argsort(part.numbers, kind="stable").tolist()
    hosts = {part.numbers[n]: part.hosts[n] for n in order}
    jobs = tuple(part.jobs[n] for n in order)
    times = in_order(in_span(part.times, span))
    iterations = _iterations(jobs, times)
    found, windows = iterations.durations, _windows(times)
    ranks = {pid: rank for host in hosts.values() for pid, rank in host.told_ranks.items()}
    bounds = bounds_ns({number: host.host.clock for number, host in hosts.items()})
    for_all = part.latest.where(needs_all(reference.events))
    return ApartConcluded(
        jobs=jobs,
        hosts=hosts,
        span_ns=span,
        iterations=without_times(iterations),
        scaling=scaling(splits_of(times), ranks, found.phases.total if found else None, baseline_s),
        arrivals=arrivals_of(for_all, bounds, windows.begin_ns, windows.end_ns),
        world=world_of(part.latest, part.seen, bounds, windows, span, reference),
    )


def in_span(times: IterationTimes, span_ns: tuple[int, int]) -> IterationTimes:
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


def _windows(times: IterationTimes) -> Windows:
    """Return the iterations of the process that has the most."""
    if len(times) == 0:
        return Windows(np.zeros(0, np.int64), np.zeros(0, np.int64))
    pids, counts = np.unique(times.pid, return_counts=True)
    own = times.where(times.pid == pids[np.argmax(counts)])
    begin_ns = own.begin_ns.astype(np.int64)
    return Windows(begin_ns, begin_ns + own.duration_ns)


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
