"""Where profiles of the job's own processes lie on the recording's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netprof.analysis.hosts.moved import instant
from netprof.errors import UsageError
from netprof.model import Host
from netprof.trace.kineto import Kineto


@dataclass(frozen=True)
class Beside:
    """A profile, the host that it was written on, and when its clock, which counts from some moment, reads 0.

    `zero_ns` is on the recording's clock. The host's realtime clock stands between: where it is set, or slewed, between
    the beginning of the recording and the profile, the profile lies as much beside its place.
    """

    kineto: Kineto
    host: Host
    zero_ns: int


def lay_beside(profiles: Sequence[Kineto], hosts: Sequence[Host], ranks: Mapping[int, int]) -> list[Beside]:
    """Find the host and the place of each profile; `ranks` are by process. Raises UsageError for one of another job."""
    return [_beside(each, _host_of(each, hosts, ranks)) for each in profiles]


def _beside(kineto: Kineto, host: Host) -> Beside:
    clock = host.meta.clock
    middle_ns = (kineto.first_ns + kineto.last_ns) // 2
    own_ns = middle_ns - clock.realtime_ns + clock.monotonic_ns
    return Beside(kineto, host, instant(host.clock, own_ns) - (middle_ns - kineto.base_ns))


def _host_of(kineto: Kineto, hosts: Sequence[Host], ranks: Mapping[int, int]) -> Host:
    """Return the host that has the process: by its rank, which is one in the job, else by its number."""
    alone = len(hosts) == 1
    of_rank = [
        host
        for host in hosts
        if any(rank == kineto.rank and (alone or pid in host.pids) for pid, rank in ranks.items())
    ]
    of_pid = [host for host in hosts if kineto.pids & _own_pids(host)]
    found = of_rank if len(of_rank) == 1 else of_pid
    if len(found) != 1:
        which = "is of no process" if not found else "may be of several hosts' processes"
        raise UsageError(
            f"{kineto.path} {which} of the recorded job",
            "give profiles of the job's own processes, written while or near when it was recorded",
        )
    return found[0]


def _own_pids(host: Host) -> set[int]:
    """Return the numbers that the processes of a host have for themselves, in a container perhaps."""
    return {target.inner_pid or target.pid for target in host.meta.targets}
