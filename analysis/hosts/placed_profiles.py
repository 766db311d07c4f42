"""A recording with profiles and dumps of the job's processes beside it, as if the recorder had asked for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from netprof.analysis.hosts.moved import instant, to_reference
from netprof.errors import TraceError
from netprof.model import Host, Meta, Target
from netprof.schema import UNKNOWN_RANK, tables
from netprof.trace import TraceSource
from netprof.trace.columns import to_arrow
from netprof.trace.flight import FlightDump, Operation, read_flight
from netprof.trace.kineto import Kineto, OnRead, profiled_rows, read_kineto
from netprof.units import listed


@dataclass(frozen=True)
class PlacedProfile:
    """A profile, the process that it is of and its host, and when its clock, which counts from some moment, reads 0.

    `pid` is the job's number of the process, `zero_ns` is on the recording's clock. The host's realtime clock stands
    between: where it is set, or slewed, between the beginning of the recording and the profile, the profile lies as
    much beside its place.
    """

    kineto: Kineto
    host: Host
    pid: int
    zero_ns: int


def lay_beside(profiles: Sequence[Kineto], hosts: Sequence[Host], ranks: Mapping[int, int]) -> list[PlacedProfile]:
    """Find the host and the place of each profile; `ranks` are by process. Raises TraceError for one of another job."""
    return [_beside(each, *_process(each, hosts, ranks)) for each in profiles]


def _beside(kineto: Kineto, host: Host, pid: int) -> PlacedProfile:
    clock = host.meta.clock
    middle_ns = (kineto.first_ns + kineto.last_ns) // 2
    own_ns = middle_ns - clock.realtime_ns + clock.monotonic_ns
    return PlacedProfile(kineto, host, pid, instant(host.clock, own_ns) - (middle_ns - kineto.base_ns))


def _process(kineto: Kineto, hosts: Sequence[Host], ranks: Mapping[int, int]) -> tuple[Host, int]:
    """Return the process that wrote a profile, and its host."""
    candidates = []
    for host in hosts:
        number = {own_pid: pid for pid, own_pid in host.pids.items()} if len(hosts) > 1 else {}
        pids = [(number.get(target.pid, target.pid), target) for target in host.meta.targets]
        candidates += [(host, pid) for pid, target in pids if _may_be_of(kineto, target, ranks.get(pid, target.rank))]
    if len(candidates) != 1:
        which = "is of no process" if not candidates else "may be of several processes"
        raise TraceError(
            f"{kineto.path} {which} of the recorded job",
            "give profiles of the job's own processes, written while or near when it was recorded",
        )
    return candidates[0]


def _may_be_of(kineto: Kineto, target: Target, rank: int) -> bool:
    """Tell whether a profile may be of a process: of its rank, where both are known, and by the number that it has.

    That is the one which it has for itself, in a container perhaps; where that is not known, its rank must tell.
    """
    same_rank = kineto.rank is not None and kineto.rank == rank
    if kineto.rank is not None and rank not in (UNKNOWN_RANK, kineto.rank):
        return False
    return target.inner_pid in kineto.pids if target.inner_pid else same_rank or target.pid in kineto.pids


_TABLE = "profiled"


class WithProfiles:
    """What `source` has, and in table `profiled` what profiles say too; its description has what `dumps` say.

    `on_read` is told how many bytes of each profile have been read, and how many it has. Raises TraceError for one of
    another job and for a file that is none.
    """

    def __init__(
        self,
        source: TraceSource,
        profiles: Sequence[Path],
        on_read: OnRead | None = None,
        dumps: Sequence[Path] = (),
    ) -> None:
        self._source = source
        self.path, self.hosts = source.path, source.hosts
        self.meta = _with_dumps(source.meta, dumps)
        kinetos = [read_kineto(path, on_read=on_read) for path in profiles]
        ranks = {target.pid: target.rank for target in source.meta.targets}
        self._rows = [_batch(each) for each in lay_beside(kinetos, source.hosts, ranks)]

    @property
    def still_recording(self) -> bool:
        """Whether a recorder is at work."""
        return self._source.still_recording

    @property
    def truncated(self) -> bool:
        """Whether its end is missing."""
        return self._source.truncated

    @property
    def damage(self) -> Sequence[str]:
        """What no recorder writes."""
        return self._source.damage

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of table `name`."""
        yield from self._source.batches(name)
        if name == _TABLE:
            yield from self._rows

    def places(self, name: str, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield where each batch of table `name` lies in the recording, and some of its columns."""
        return self._source.places(name, columns)

    def batches_at(self, name: str, offsets: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of table `name` that lie at some places of the recording."""
        return self._source.batches_at(name, offsets)

    def table(self, name: str) -> pa.Table:
        """Return table `name` whole."""
        if name != _TABLE:
            return self._source.table(name)
        return pa.Table.from_batches(list(self.batches(name)), schema=tables()[name])


def _with_dumps(meta: Meta, paths: Sequence[Path]) -> Meta:
    """Return a description that tells in what the job's own files disagree. Raises TraceError."""
    if not paths:
        return meta
    dumps = [dump for path in paths for dump in read_flight(path)]
    sentences = disagreements(dumps)
    warnings = sentences or [f"in {len(dumps)} dumps the ranks agree on every operation that several of them have"]
    return replace(meta, warnings=(*meta.warnings, *warnings), stalled=sentences[0] if sentences else meta.stalled)


def _batch(beside: PlacedProfile) -> pa.RecordBatch:
    """Return what a profile says, with the job's number of its process, on the job's clock."""
    rows = profiled_rows(beside.kineto, beside.pid, beside.host.meta.clock)
    rows |= {name: to_reference(beside.host.clock, rows[name]) for name in ("first_ns", "last_ns")}
    schema = tables()[_TABLE]
    return pa.RecordBatch.from_arrays([to_arrow(rows[field.name], field.type) for field in schema], schema=schema)


_NAMED = 6

_Ranks = Mapping[int, Mapping[int, Operation]]
"""The operations of a communicator, by rank and number."""


def disagreements(dumps: Sequence[FlightDump]) -> list[str]:
    """Return a sentence for each communicator in which ranks differ: first those that want different things.

    The k-th operation of a communicator is one on all of its ranks, of one kind. Of each communicator the first one is
    told in which that is not so; and which ranks have not asked for the last one, if others have and wait for it.
    """
    groups: dict[str, dict[int, dict[int, Operation]]] = {}
    for dump in dumps:
        for each in dump.operations:
            groups.setdefault(each.group, {}).setdefault(dump.rank, {})[each.number] = each
    unlike = [sentence for group, ranks in sorted(groups.items()) for sentence in _unlike(group, ranks)]
    behind = [sentence for group, ranks in sorted(groups.items()) for sentence in _behind(group, ranks)]
    return unlike + behind


def _unlike(group: str, ranks: _Ranks) -> Iterator[str]:
    for number in sorted(set().union(*ranks.values())):
        asked: dict[tuple[str, str], list[int]] = {}
        for rank, operations in sorted(ranks.items()):
            if number in operations:
                kind = operations[number].kind
                # What each rank gives to a gather or an all-to-all may be of any size.
                size = operations[number].elements if kind in _EVEN else ""
                asked.setdefault((kind, size), []).append(rank)
        if len(asked) > 1:
            kinds = len({kind for kind, _ in asked}) > 1
            parts = [
                f"{_names(who)} {'asks' if len(who) == 1 else 'ask'} for {kind}{'' if kinds else f' of {size}'}"
                for (kind, size), who in asked.items()
            ]
            yield f"ranks disagree on operation {number} of group {group}: {', '.join(parts)}"
            return


_EVEN = ("all_reduce", "allreduce", "AllReduce", "broadcast", "Broadcast", "reduce", "Reduce")


def _behind(group: str, ranks: _Ranks) -> Iterator[str]:
    last = {rank: max(operations) for rank, operations in ranks.items()}
    newest = max(last.values())
    late = sorted(rank for rank, number in last.items() if number < newest)
    waiting = [rank for rank in sorted(ranks) if newest in ranks[rank] and not ranks[rank][newest].done]
    if late and waiting:
        number = min(last[rank] for rank in late) + 1
        kind = next((operations[number].kind for operations in ranks.values() if number in operations), "it")
        yield (
            f"{_names(late)} {'has' if len(late) == 1 else 'have'} not asked for operation {number} ({kind}) of group "
            f"{group}, and {_names(waiting)} {'waits' if len(waiting) == 1 else 'wait'}"
        )


def _names(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {listed(ranks, _NAMED)}"
