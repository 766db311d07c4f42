"""Where profiles of the job's own processes lie on the recording's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netprof.analysis.hosts.moved import instant
from netprof.errors import TraceError
from netprof.model import Host, Target
from netprof.schema import UNKNOWN_RANK
from netprof.trace.kineto import Kineto


@dataclass(frozen=True)
class Beside:
    """A profile, the process that it is of and its host, and when its clock, which counts from some moment, reads 0.

    `pid` is the job's number of the process, `zero_ns` is on the recording's clock. The host's realtime clock stands
    between: where it is set, or slewed, between the beginning of the recording and the profile, the profile lies as
    much beside its place.
    """

    kineto: Kineto
    host: Host
    pid: int
    zero_ns: int


def lay_beside(profiles: Sequence[Kineto], hosts: Sequence[Host], ranks: Mapping[int, int]) -> list[Beside]:
    """Find the host and the place of each profile; `ranks` are by process. Raises TraceError for one of another job."""
    return [_beside(each, *_process(each, hosts, ranks)) for each in profiles]


def _beside(kineto: Kineto, host: Host, pid: int) -> Beside:
    clock = host.meta.clock
    middle_ns = (kineto.first_ns + kineto.last_ns) // 2
    own_ns = middle_ns - clock.realtime_ns + clock.monotonic_ns
    return Beside(kineto, host, pid, instant(host.clock, own_ns) - (middle_ns - kineto.base_ns))


def _process(kineto: Kineto, hosts: Sequence[Host], ranks: Mapping[int, int]) -> tuple[Host, int]:
    """Return the process that wrote a profile, and its host."""
    found = []
    for host in hosts:
        number = {own: pid for pid, own in host.pids.items()} if len(hosts) > 1 else {}
        pids = [(number.get(target.pid, target.pid), target) for target in host.meta.targets]
        found += [(host, pid) for pid, target in pids if _may_be_of(kineto, target, ranks.get(pid, target.rank))]
    if len(found) != 1:
        which = "is of no process" if not found else "may be of several processes"
        raise TraceError(
            f"{kineto.path} {which} of the recorded job",
            "give profiles of the job's own processes, written while or near when it was recorded",
        )
    return found[0]


def _may_be_of(kineto: Kineto, target: Target, rank: int) -> bool:
    """Tell whether a profile may be of a process: of its rank, where both are known, and by the number that it has.

    That is the one which it has for itself, in a container perhaps; where that is not known, its rank must tell.
    """
    same_rank = kineto.rank is not None and kineto.rank == rank
    if kineto.rank is not None and rank not in (UNKNOWN_RANK, kineto.rank):
        return False
    return target.inner_pid in kineto.pids if target.inner_pid else same_rank or target.pid in kineto.pids
