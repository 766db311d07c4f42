"""Finding which RDMA ports the job's processes use, by queue pair where the kernel tells, and who else does."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from netprof.probes.job.procfs import open_files
from netprof.probes.kernel.netlink import DUMP, NetlinkSocket, attribute, attributes, each_attribute, number
from netprof.probes.kernel.rtnetlink import device_name
from netprof.probes.probe import Row, row_of
from netprof.probes.rdma.ports import Port, device_of_uverbs, ports_of
from netprof.schema import FIRST_QUEUE_PAIR, RDMA, ROCE

_NAMED = 3

Ports = Mapping[str, Sequence[Port]]
"""The ports of devices, by their names."""


@dataclass(frozen=True)
class PortsInUse:
    """The ports that the job uses, and rows of table `flows` that tell of its queue pairs on them."""

    ports: tuple[Port, ...]
    flows: tuple[Row, ...]


class PortFinder:
    """Looks for the job's ports. `problem` says why queue pairs are not told apart, None where they are."""

    def __init__(self, users: PortUsers, queue_pairs: Callable[[], list[QueuePair]], sysfs: Path) -> None:
        self.users = users
        self.problem: OSError | None = None
        self._queue_pairs, self._sysfs = queue_pairs, sysfs
        self._strangers: dict[str, set[int]] = {}  # processes with queue pairs on a port that are not the job's

    def look(self, pids: frozenset[int]) -> PortsInUse:
        """Return what the processes use now; a flow is told once."""
        opened = {
            pid: {device_of_uverbs(name, self._sysfs) for name in names} for pid, names in open_uverbs(pids).items()
        }
        pairs = self._pairs()
        of_job = [pair for pair in pairs or () if pair.pid in pids]
        for pair in pairs or ():
            if pair.pid not in pids:
                self._strangers.setdefault(f"{pair.device}/{pair.port}", set()).add(pair.pid)
        devices = {pair.device for pair in of_job}.union(*opened.values())
        ports = {device: ports_of(device, self._sysfs) for device in sorted(devices - {""})}
        flows = self._of_opened(opened, ports) if pairs is None else self._of_pairs(of_job, ports)
        return PortsInUse(tuple(chain(*ports.values())), tuple(flows))

    def shared_with(self, names: Iterable[str]) -> Iterable[str]:
        """Yield who else has queue pairs on some ports, a sentence each."""
        wanted = set(names)
        for name, pids in self._strangers.items():
            if name in wanted:
                few = ", ".join(map(str, sorted(pids)[:_NAMED])) + (" and others" if len(pids) > _NAMED else "")
                yield f"others than the job have queue pairs on {name} ({few}): not all its bytes are the job's"

    def _pairs(self) -> list[QueuePair] | None:
        """Return all queue pairs; None where the kernel does not tell of them."""
        try:
            return self._queue_pairs()
        except OSError as error:
            self.problem = error
            return None

    def _of_pairs(self, pairs: Iterable[QueuePair], ports: Ports) -> list[Row]:
        rows = []
        for pair in pairs:
            port = _port_of(pair, ports.get(pair.device, ()))
            if port is not None:
                rows += self.users.see(port, pair.pid, pair.local, pair.remote)
        return rows

    def _of_opened(self, opened: dict[int, set[str]], ports: Ports) -> list[Row]:
        uses = [(port, pid) for pid, names in opened.items() for name in names for port in ports.get(name, ())]
        return [row for port, pid in uses for row in self.users.see(port, pid)]


def _port_of(pair: QueuePair, ports: Sequence[Port]) -> Port | None:
    """Return which of its device's ports a queue pair is on; one that has not been given any yet, on the only one."""
    if pair.port == 0 and len(ports) == 1:
        return ports[0]
    return next((port for port in ports if port.number == pair.port), None)


UNKNOWN = 0

_Key = tuple[str, int, int]
"""Port, pid, local queue pair."""


class PortUsers:
    """Numbers the queue pairs of the job. A row is for one that is new, or whose remote end is known now."""

    def __init__(self, netns: int, rank_of: Callable[[int], int]) -> None:
        self._netns, self._rank_of = netns, rank_of
        self._ids = count(FIRST_QUEUE_PAIR)
        self._known: dict[_Key, tuple[int, int]] = {}  # the flow, and the remote queue pair

    def see(self, port: Port, pid: int, local: int = UNKNOWN, remote: int = UNKNOWN) -> list[Row]:
        """Return the row of table `flows` for a process's use of a port; none if it was returned before."""
        key = port.name, pid, local
        flow_id, before = self._known.get(key, (0, None))
        if before is not None and remote in (before, UNKNOWN):
            return []
        self._known[key] = flow_id, _ = flow_id or next(self._ids), remote
        return [
            row_of(
                "flows",
                flow_id=flow_id,
                family=4,
                protocol=ROCE if port.is_ethernet else RDMA,
                netns=self._netns,
                device=port.name,
                pid=pid,
                rank=self._rank_of(pid),
                local_queue_pair=local,
                remote_queue_pair=remote,
            )
        ]

    def __len__(self) -> int:
        return sum(local != UNKNOWN for _, _, local in self._known)


_NETLINK_RDMA = 20
NLDEV = 5 << 10  # RDMA_NL_NLDEV, as RDMA_NL_GET_TYPE puts it beside a command
_GET, _RES_QP_GET = NLDEV + 1, NLDEV + 10
DEV_INDEX, _DEV_NAME, PORT_INDEX = 1, 2, 3  # enum rdma_nldev_attr
RES_QP, LQPN, _RQPN, _PID = 19, 21, 22, 28
_UVERBS = re.compile(r".*/infiniband/(uverbs\d+)$")


@dataclass(frozen=True)
class QueuePair:
    """A queue pair of a process: local and remote number (0: nothing says it); `port` is 0 where it has none yet."""

    device: str
    port: int
    pid: int
    local: int
    remote: int


class RdmaSocket(NetlinkSocket):
    """A netlink socket to the kernel's RDMA devices. Raises OSError, also where the kernel has none."""

    def __init__(self) -> None:
        super().__init__(_NETLINK_RDMA)

    def devices(self) -> dict[int, str]:
        """Return the names of all devices, by the kernel's number."""
        devices = (attributes(body) for body in self.request(_GET, DUMP, b""))
        return {
            number(device.get(DEV_INDEX, b"")): device_name(device[_DEV_NAME].rstrip(b"\0"))
            for device in devices
            if _DEV_NAME in device
        }

    def queue_pairs(self) -> list[QueuePair]:
        """Return the queue pairs of every process."""
        return [pair for index, name in self.devices().items() for pair in self._of_device(index, name)]

    def _of_device(self, index: int, name: str) -> list[QueuePair]:
        pairs = []
        for body in self.request(_RES_QP_GET, DUMP, attribute(DEV_INDEX, struct.pack("=I", index))):
            for _, entry in each_attribute(attributes(body).get(RES_QP, b"")):
                pair = attributes(entry)
                if _PID in pair:  # else it is the kernel's own
                    numbers = (number(pair.get(kind, b"")) for kind in (PORT_INDEX, _PID, LQPN, _RQPN))
                    pairs.append(QueuePair(name, *numbers))
        return pairs


def queue_pairs() -> list[QueuePair]:
    """Return the queue pairs of every process. Raises OSError, also for want of the right."""
    with RdmaSocket() as kernel:
        return kernel.queue_pairs()


def open_uverbs(pids: Iterable[int]) -> dict[int, set[str]]:
    """Return the names of the RDMA devices' files that each process has open; processes that have any."""
    names_of = {pid: {match[1] for name in open_files(pid) if (match := _UVERBS.match(name))} for pid in pids}
    return {pid: names for pid, names in names_of.items() if names}
