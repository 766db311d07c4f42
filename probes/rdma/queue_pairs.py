"""Queue pairs and the processes that made them, as the kernel tells over rdma netlink."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from netprof.probes.job.procfs import open_files
from netprof.probes.kernel.netlink import DUMP, NetlinkSocket, attribute, attributes, each_attribute, number
from netprof.probes.kernel.rtnetlink import device_name

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
        found = (attributes(body) for body in self.request(_GET, DUMP, b""))
        return {number(each.get(DEV_INDEX, b"")): _name(each) for each in found if _DEV_NAME in each}

    def queue_pairs(self) -> list[QueuePair]:
        """Return the queue pairs of every process."""
        return [pair for index, name in self.devices().items() for pair in self._of_device(index, name)]

    def _of_device(self, index: int, name: str) -> list[QueuePair]:
        found = []
        for body in self.request(_RES_QP_GET, DUMP, attribute(DEV_INDEX, struct.pack("=I", index))):
            for _, entry in each_attribute(attributes(body).get(RES_QP, b"")):
                told = attributes(entry)
                if _PID in told:  # else it is the kernel's own
                    numbers = (number(told.get(kind, b"")) for kind in (PORT_INDEX, _PID, LQPN, _RQPN))
                    found.append(QueuePair(name, *numbers))
        return found


def queue_pairs() -> list[QueuePair]:
    """Return the queue pairs of every process. Raises OSError, also for want of the right."""
    with RdmaSocket() as asked:
        return asked.queue_pairs()


def open_uverbs(pids: Iterable[int]) -> dict[int, set[str]]:
    """Return the names of the RDMA devices' files that each process has open; processes that have any."""
    found = {pid: {match[1] for name in open_files(pid) if (match := _UVERBS.match(name))} for pid in pids}
    return {pid: names for pid, names in found.items() if names}


def _name(told: dict[int, bytes]) -> str:
    return device_name(told[_DEV_NAME].rstrip(b"\0"))
