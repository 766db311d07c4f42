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
from netprof.analysis.hosts.host_streams import Ends
from netprof.analysis.hosts.moved import instant
from netprof.analysis.hosts.open_job import processes_of, stated_ranks
from netprof.model import Host, HostClock


@dataclass(frozen=True, eq=False)
class Placed:
    """One host on the job's clock: its number, how its clock lies, from when to when it recorded, and the ends of its
    connections; `told_ranks` are those that nothing but its communicators tells."""

    number: int
    host: Host
    span_ns: Span
    world_size: int | None
    ends: frozenset[Ends] = frozenset()
    told_ranks: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class Usable:
    """The clocks of the hosts that are of the job, by their number, and the time that the report is of.

    `left_out` says of each other one why, and `notes` what one must know of the rest.
    """

    clocks: Mapping[int, HostClock]
    span_ns: Span
    left_out: Mapping[int, str]
    notes: tuple[str, ...]


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
        host_collectives = of_whole_job(collectives_of(digest.tables.collectives), reference.world_size)
        both = None if host.bounded else paired(reference.collectives, host_collectives, rough)
        clock = (None if both is None else by_collectives(*both, reference.host.span_ns)) or rough
    span = instant(clock, host.span_ns[0]), instant(clock, host.span_ns[1])
    told_ranks = frozenset(host.told_ranks.values()) - stated_ranks(host.host.meta)
    ends = frozenset(host.ends.values())
    return (Placed(number, replace(host.host, clock=clock), span, host.world_size, ends, told_ranks),)


def usable(placed: Sequence[Placed]) -> Usable:
    """Return which hosts are of the job of the first one: what is of another, or there already, is left out."""
    placed = sorted(placed, key=lambda each: each.number)
    known = _Known({}, {}, {})

    def against(number: int, kept: Sequence[int]) -> Against | None:
        for new in kept[known.count :]:
            known.learn(placed[new])
        return known.against(placed[number])

    names = [each.host.name for each in placed]
    job = of_one_job([each.ends for each in placed], names, against)
    left_out = {placed[number].number: why for number, why in job.left_out.items()}
    kept = [placed[number] for number in job.kept]
    at_time = at_one_time([each.span_ns for each in kept])
    left_out |= {kept[n].number: ANOTHER_TIME for n in sorted(set(range(len(kept))) - set(at_time))}
    kept = [kept[n] for n in at_time]
    hosts, spans = [each.host for each in kept], [each.span_ns for each in kept]
    notes = (*job.notes(names), *about(hosts, [host.name for host in hosts], spans))
    return Usable({each.number: each.host.clock for each in kept}, common(spans), left_out, notes)


@dataclass
class _Known:
    """Whose the ranks, processes and numbers of ranks are of the `count` hosts that are of the job."""

    ranks: dict[int, str]
    sizes: dict[int, str]
    processes: dict[tuple[object, ...], str]
    count: int = 0

    def learn(self, placed: Placed) -> None:
        """Take a host for one of the job's."""
        self.ranks |= dict.fromkeys(_ranks(placed), placed.host.name)
        self.processes |= dict.fromkeys(_processes(placed), placed.host.name)
        if placed.world_size is not None:
            self.sizes.setdefault(placed.world_size, placed.host.name)
        self.count += 1

    def against(self, placed: Placed) -> Against | None:
        """Say what speaks against putting a digest together with those, as `open_job` does of traces."""
        same = next((self.processes[each] for each in _processes(placed) if each in self.processes), None)
        if same is not None:
            return Against(f"it has the same processes of the same host as {same}", of_job=False)
        if placed.world_size is not None and self.sizes and placed.world_size not in self.sizes:
            size, name = next(iter(self.sizes.items()))
            why = f"it is of another job: of {placed.world_size} ranks, while {name} is of one of {size}"
            return Against(why, of_job=True)
        rank = next((each for each in _ranks(placed) if each in self.ranks), None)
        if rank is None:
            return None
        why = f"it has rank {rank} as {self.ranks[rank]} has: it is of another job, or of another run of this one"
        if rank in placed.told_ranks:
            why += ", or has the number from a communicator of the host: record with --rank and --world-size"
        return Against(why, of_job=rank not in placed.told_ranks)


def _ranks(placed: Placed) -> list[int]:
    return sorted(stated_ranks(placed.host.meta) | placed.told_ranks)


def _processes(placed: Placed) -> list[tuple[object, ...]]:
    return [(placed.host.meta.boot_id, *process) for process in processes_of(placed.host.meta)]
