"""The digests of a job's hosts, put on one clock: iterations, and who comes last to what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from netprof.analysis.declared import merged
from netprof.analysis.digest.digest import HostPart
from netprof.analysis.digest.host_in_job import Accounted, JobHost, Reference, bounds_ns
from netprof.analysis.digest.last_arrivals import Latest, arrivals_of, latest_of, latest_of_all
from netprof.analysis.digest.opened import Source, open_digest
from netprof.analysis.digest.world import Seen, World, groups_of, seen_by_all, seen_of
from netprof.analysis.events.arrivals import Arrivals
from netprof.analysis.events.iterations import IterationTimes, narrow
from netprof.analysis.events.level import level_windows
from netprof.analysis.findings.collectives.scaling import Scaling, scaling
from netprof.analysis.findings.iterations.iterations import IterationsFinding, most_iterations
from netprof.analysis.hosts.by_collectives import needs_all
from netprof.analysis.hosts.clocks import NumberedStreams
from netprof.analysis.hosts.common_time import host_names
from netprof.analysis.hosts.host_streams import HostStreams
from netprof.analysis.tables.columns import UNKNOWN, concatenate, empty, opens
from netprof.analysis.tables.intervals import Windows

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class HostsPart:
    """Some hosts of a job: all times are the reference's, all processes have the job's numbers.

    `hosts` are by number; `steps` are those of the process that has the most, of what is only seen to launch; `latest`
    and `seen` are by the number of the communicator.
    """

    hosts: Mapping[int, HostPart]
    times: IterationTimes
    steps: Accounted
    latest: Mapping[int, Latest]
    seen: Mapping[int, Seen]


@dataclass(frozen=True, eq=False)
class JobIterations:
    """What they come to: iterations in the time that all recorded, who came last in each, and what all know together.

    `hosts` are by number.
    """

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
    streams = HostStreams(digest.tables.passages, host.ends)
    return (NumberedStreams(number, host.host.meta.boot_id, host.span_ns, streams),)


def joined(parts: Sequence[tuple[T, ...]]) -> tuple[T, ...]:
    """Return what hosts give, one after the other."""
    return tuple(each for part in parts for each in part)


def part_of_host(
    numbered: tuple[int, Source],
    opened: Callable[[tuple[int, Source]], JobHost],
    reference: Reference,
    span: tuple[int, int],
) -> HostsPart:
    """Return what one host adds to the report of some time; `opened` is how it is. Raises TraceError, UsageError."""
    job_host = opened(numbered)
    return HostsPart(
        hosts={job_host.number: job_host.host},
        times=narrow(job_host.times),
        steps=job_host.accounted.inside(span).of_most() if job_host.host.bounded else empty(Accounted),
        latest=_latest(job_host, reference),
        seen=seen_of(job_host, reference),
    )


def _latest(job_host: JobHost, reference: Reference) -> dict[int, Latest]:
    bound_ns, latest = job_host.host.host.clock.bound_ns, {}
    for number in {0, *job_host.groups}:
        rows = np.flatnonzero((job_host.group == number) & (job_host.event != UNKNOWN))
        collectives, events = job_host.collectives.where(rows), reference.starts(number)[-1]
        latest[number] = latest_of(job_host.event[rows], collectives, job_host.number, bound_ns, events)
    return latest


def parts_together(parts: Sequence[HostsPart]) -> HostsPart:
    """Return the parts of some hosts as one."""
    return HostsPart(
        hosts={number: host for part in parts for number, host in part.hosts.items()},
        times=concatenate(IterationTimes, [part.times for part in parts]),
        steps=concatenate(Accounted, [part.steps for part in parts]).of_most(),
        latest=merged([part.latest for part in parts], latest_of_all),
        seen=merged([part.seen for part in parts], seen_by_all),
    )


def conclude_iterations(
    part: HostsPart, reference: Reference, span: tuple[int, int], baseline_s: float | None = None
) -> JobIterations:
    """Conclude from all hosts; `span` is the time that the report is of."""
    numbers = sorted(part.hosts)
    hosts = dict(zip(numbers, _named([part.hosts[number] for number in numbers]), strict=True))
    times = in_order(in_span(part.times, span))
    iterations = _iterations(list(hosts.values()), times)
    bounded = any(host.bounded for host in hosts.values())
    windows = part.steps.windows if bounded else _windows(times.of_most())
    ranks = {pid: rank for host in hosts.values() for pid, rank in host.told_ranks.items()}
    bounds = bounds_ns({number: host.host.clock for number, host in hosts.items()})
    for_all = part.latest[0].where(needs_all(reference.events))
    world = World(
        groups=groups_of(part.latest, part.seen, bounds, reference),
        bounds_ns=bounds,
        windows=windows,
        span_ns=span,
        world_size=reference.world_size,
        sizes=reference.sizes,
        bounded=bounded,
    )
    return JobIterations(
        hosts=hosts,
        span_ns=span,
        iterations=without_times(iterations),
        scaling=scaling(iterations, ranks, baseline_s),
        arrivals=arrivals_of(for_all, bounds, windows.begin_ns, windows.end_ns),
        world=world,
    )


def _windows(times: IterationTimes) -> Windows:
    begin_ns, duration_ns, rest_ns = (
        np.asarray(each, np.int64) for each in (times.begin_ns, times.duration_ns, times.rest_phase_ns)
    )
    return level_windows(begin_ns, begin_ns + duration_ns, begin_ns + duration_ns - rest_ns)


def in_order(times: IterationTimes) -> IterationTimes:
    """Return iterations by process, as a trace has them: of iterations that are alike, the first ones count."""
    if len(times) == 0 or bool((times.pid[1:] >= times.pid[:-1]).all()):
        return times
    return times.where(np.argsort(times.pid, kind="stable"))


def without_times(finding: IterationsFinding) -> IterationsFinding:
    """Return a finding with its numbers, but without the iterations that they are of, which may be millions."""
    light = replace(finding, times=empty(IterationTimes))
    light.__dict__.update(durations=finding.durations, runs_ahead=finding.runs_ahead)
    return light


def _named(hosts: Sequence[HostPart]) -> list[HostPart]:
    """Return hosts of which no two have one name."""
    names = host_names([(each.host.name, each.host.trace) for each in hosts])
    return [replace(each, host=replace(each.host, name=name)) for each, name in zip(hosts, names, strict=True)]


def in_span(times: IterationTimes, span_ns: tuple[int, int]) -> IterationTimes:
    """Return the iterations in the time that all hosts recorded; what lasts since the one before is not known there."""
    begin_ns = times.begin_ns.astype(np.int64)
    inside = (begin_ns >= span_ns[0]) & (begin_ns + times.duration_ns <= span_ns[1])
    if inside.all():
        return times
    kept = times.where(inside)
    first = opens(kept.pid)
    first &= np.append(True, ~inside[:-1])[inside]
    level = {name: np.where(first, 0, getattr(kept, name)) for name in ("level_ns", "level_exposed_ns")}
    return replace(kept, **level)


def _iterations(hosts: Sequence[HostPart], times: IterationTimes) -> IterationsFinding:
    dropped, is_told = hosts[0].dropped, any(host.told for host in hosts)
    for host in hosts[1:]:
        dropped = dropped + host.dropped
    by_host = [] if is_told else [host.inferred for host in hosts if host.inferred is not None]
    inferred = max(by_host, key=lambda each: each.confidence, default=None)
    return IterationsFinding(
        count=most_iterations(times) if is_told else None,
        times=times,
        inferred=inferred,
        failures=()
        if is_told or inferred is not None
        else tuple(dict.fromkeys(why for host in hosts for why in host.failures)),
        dropped=dropped,
        stepped=tuple(pid for host in hosts for pid in host.stepped),
        models=max(host.models for host in hosts),
        accumulates=any(host.accumulates for host in hosts),
        forward_unseen=any(host.forward_unseen for host in hosts),
        only_launch=is_told and all(host.only_launch for host in hosts if host.told),
    )
