"""Which hosts' digests, each made alone, are one job's: on one clock, of one time, and each rank once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from netprof.analysis.digest.alone.own import Reference, alone, collectives_of
from netprof.analysis.digest.opened import Source, open_digest
from netprof.analysis.hosts.by_collectives import of_whole_job, paired
from netprof.analysis.hosts.clocks import Span, by_collectives, by_realtime
from netprof.analysis.hosts.common_time import (
    ANOTHER_TIME,
    about_clocks,
    about_time,
    about_versions,
    at_one_time,
    common,
)
from netprof.analysis.hosts.moved import instant
from netprof.model import Host, HostClock
from netprof.schema import UNKNOWN_RANK


@dataclass(frozen=True, eq=False)
class Placed:
    """One host on the job's clock: its number, how its clock lies, and from when to when it recorded."""

    number: int
    host: Host
    span_ns: Span
    world_size: int | None


@dataclass(frozen=True, eq=False)
class Usable:
    """The clocks of the hosts that are of the job, by their number, and the time that the report is of.

    `left_out` says of each other one why, and `said` what one must know of the rest.
    """

    clocks: Mapping[int, HostClock]
    span_ns: Span
    left_out: Mapping[int, str]
    said: tuple[str, ...]


def placed_of(
    numbered: tuple[int, Source], reference: Reference, clocks: Mapping[int, HostClock]
) -> tuple[Placed, ...]:
    """Return where one host lies; `clocks` are by number, as far as streams tell. Raises TraceError, UsageError."""
    number, source = numbered
    digest = alone(open_digest(source, () if number in clocks else ("collectives",)))
    host = digest.host
    clock = clocks.get(number)
    if clock is None:
        rough = by_realtime(reference.host.host.meta.clock, host.host.meta.clock)
        own = of_whole_job(collectives_of(digest.tables.collectives), reference.world_size)
        both = None if digest.job.bounded else paired(reference.collectives, own, rough)
        found = None if both is None else by_collectives(*both, reference.host.span_ns)
        clock = rough if found is None else found
    span = instant(clock, host.span_ns[0]), instant(clock, host.span_ns[1])
    return (Placed(number, replace(host.host, clock=clock), span, digest.job.world_size),)


def all_placed(parts: Sequence[tuple[Placed, ...]]) -> tuple[Placed, ...]:
    """Return where several hosts lie."""
    return tuple(each for part in parts for each in part)


def usable(placed: Sequence[Placed]) -> Usable:
    """Return which hosts are of the job of the first one: what is of another, or there already, is left out."""
    placed = sorted(placed, key=lambda each: each.number)
    left_out: dict[int, str] = {}
    kept: list[Placed] = []
    ranks: dict[int, str] = {}
    processes: dict[tuple[object, ...], str] = {}
    for each in placed:
        reason = _why_not(each, placed[0], ranks, processes)
        if reason is not None:
            left_out[each.number] = reason
            continue
        kept.append(each)
        ranks |= dict.fromkeys(_ranks(each), each.host.name)
        processes |= dict.fromkeys(_processes(each), each.host.name)
    at_time = at_one_time([each.span_ns for each in kept])
    left_out |= {kept[n].number: ANOTHER_TIME for n in sorted(set(range(len(kept))) - set(at_time))}
    kept = [kept[n] for n in at_time]
    hosts, spans = [each.host for each in kept], [each.span_ns for each in kept]
    said = (*about_time([host.name for host in hosts], spans), *about_versions(hosts), *about_clocks(hosts))
    return Usable({each.number: each.host.clock for each in kept}, common(spans), left_out, said)


def _why_not(
    one: Placed, first: Placed, ranks: Mapping[int, str], processes: Mapping[tuple[object, ...], str]
) -> str | None:
    """Say why a digest cannot be put together with those before it, as `hosts.job.why_not_of_job` does of traces."""
    same = next((processes[each] for each in _processes(one) if each in processes), None)
    if same is not None:
        return f"it has the same processes of the same host as {same}"
    if one.world_size != first.world_size:
        own, its = (each.world_size or "an unknown number of" for each in (one, first))
        return f"it is of another job: of {own} ranks, while {first.host.name} is of one of {its}"
    rank = next((each for each in _ranks(one) if each in ranks), None)
    if rank is not None:
        return f"it has rank {rank} as {ranks[rank]} has: it is of another job, or of another run of this one"
    return None


def _ranks(one: Placed) -> list[int]:
    return sorted({t.rank for t in one.host.meta.targets if t.rank is not None and t.rank != UNKNOWN_RANK})


def _processes(one: Placed) -> list[tuple[object, ...]]:
    boot = one.host.meta.boot_id
    return [(boot, t.pid_namespace, t.inner_pid or t.pid, t.start_ticks, t.netns) for t in one.host.meta.targets]
