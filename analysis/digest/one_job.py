"""Which hosts' digests are one job's: on one clock, of one time, and each rank once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from netprof.analysis.digest.host_in_job import Reference, collectives_of
from netprof.analysis.digest.opened import Source, open_digest
from netprof.analysis.hosts.by_collectives import of_whole_job, paired
from netprof.analysis.hosts.clocks import Span, by_collectives, by_realtime
from netprof.analysis.hosts.common_time import ANOTHER_TIME, about, at_one_time, common
from netprof.analysis.hosts.connected import Against, of_one_job
from netprof.analysis.hosts.moved import instant
from netprof.analysis.hosts.streams import Ends
from netprof.model import Host, HostClock
from netprof.schema import UNKNOWN_RANK


@dataclass(frozen=True, eq=False)
class Placed:
    """One host on the job's clock: its number, how its clock lies, from when to when it recorded, and the ends of its
    connections."""

    number: int
    host: Host
    span_ns: Span
    world_size: int | None
    ends: frozenset[Ends] = frozenset()


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
    """Return where one host lies; `clocks` are by number, as far as streams tell. Raises TraceError."""
    number, source = numbered
    digest = open_digest(source, () if number in clocks else ("collectives",))
    host = digest.host
    clock = clocks.get(number)
    if clock is None:
        rough = by_realtime(reference.host.host.meta.clock, host.host.meta.clock)
        own = of_whole_job(collectives_of(digest.tables.collectives), reference.world_size)
        both = None if host.bounded else paired(reference.collectives, own, rough)
        found = None if both is None else by_collectives(*both, reference.host.span_ns)
        clock = rough if found is None else found
    span = instant(clock, host.span_ns[0]), instant(clock, host.span_ns[1])
    ends = frozenset(host.ends.values())
    return (Placed(number, replace(host.host, clock=clock), span, host.world_size, ends),)


def usable(placed: Sequence[Placed]) -> Usable:
    """Return which hosts are of the job of the first one: what is of another, or there already, is left out."""
    placed = sorted(placed, key=lambda each: each.number)
    known = _Known({}, {})

    def against(number: int, others: Sequence[int]) -> Against | None:
        for other in others[known.count :]:
            known.learn(placed[other])
        return known.against(placed[number], placed[0])

    names = [each.host.name for each in placed]
    found = of_one_job([each.ends for each in placed], names, against)
    left_out = {placed[number].number: why for number, why in found.left_out.items()}
    kept = [placed[number] for number in found.kept]
    at_time = at_one_time([each.span_ns for each in kept])
    left_out |= {kept[n].number: ANOTHER_TIME for n in sorted(set(range(len(kept))) - set(at_time))}
    kept = [kept[n] for n in at_time]
    hosts, spans = [each.host for each in kept], [each.span_ns for each in kept]
    said = (*found.said(names), *about(hosts, [host.name for host in hosts], spans))
    return Usable({each.number: each.host.clock for each in kept}, common(spans), left_out, said)


@dataclass
class _Known:
    """Whose the ranks and processes are of the `count` hosts that are of the job."""

    ranks: dict[int, str]
    processes: dict[tuple[object, ...], str]
    count: int = 0

    def learn(self, one: Placed) -> None:
        """Take a host for one of the job's."""
        self.ranks |= dict.fromkeys(_ranks(one), one.host.name)
        self.processes |= dict.fromkeys(_processes(one), one.host.name)
        self.count += 1

    def against(self, one: Placed, first: Placed) -> Against | None:
        """Say what speaks against putting a digest together with those, as `hosts.job` does of traces."""
        same = next((self.processes[each] for each in _processes(one) if each in self.processes), None)
        if same is not None:
            return Against(f"it has the same processes of the same host as {same}", of_job=False)
        if one.world_size != first.world_size:
            own, its = (each.world_size or "an unknown number of" for each in (one, first))
            why = f"it is of another job: of {own} ranks, while {first.host.name} is of one of {its}"
            return Against(why, of_job=True)
        rank = next((each for each in _ranks(one) if each in self.ranks), None)
        if rank is None:
            return None
        why = f"it has rank {rank} as {self.ranks[rank]} has: it is of another job, or of another run of this one"
        return Against(why, of_job=True)


def _ranks(one: Placed) -> list[int]:
    return sorted({t.rank for t in one.host.meta.targets if t.rank is not None and t.rank != UNKNOWN_RANK})


def _processes(one: Placed) -> list[tuple[object, ...]]:
    boot = one.host.meta.boot_id
    return [(boot, t.pid_namespace, t.inner_pid or t.pid, t.start_ticks, t.netns) for t in one.host.meta.targets]
