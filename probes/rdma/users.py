"""Which processes of the job use which RDMA port: flows of kind RDMA, by queue pair where the kernel tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

from netprof.probes.probe import Row, row_of
from netprof.probes.rdma.ports import Port
from netprof.probes.rdma.queue_pairs import QueuePair
from netprof.schema import FIRST_QUEUE_PAIR, RDMA, ROCE

UNKNOWN = 0

_Key = tuple[str, int, int]
"""Port, pid, local queue pair."""


class PortUsers:
    """Numbers the queue pairs of the job. A row tells of one that is new, or whose remote end is known now."""

    def __init__(self, netns: int, rank_of: Callable[[int], int]) -> None:
        self._netns, self._rank_of = netns, rank_of
        self._ids = count(FIRST_QUEUE_PAIR)
        self._known: dict[_Key, tuple[int, int]] = {}  # the flow, and the remote queue pair

    def see(self, port: Port, pid: int, local: int = UNKNOWN, remote: int = UNKNOWN) -> list[Row]:
        """Return the row of table `flows` that tells of a process's use of a port; none if it was told."""
        key = port.name, pid, local
        flow_id, before = self._known.get(key, (0, None))
        if before is not None and remote in (before, UNKNOWN):
            return []
        self._known[key] = flow_id, _ = flow_id or next(self._ids), remote
        row = row_of(
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
        return [row]

    def __len__(self) -> int:
        return sum(local != UNKNOWN for _, _, local in self._known)


def ports_in_use(
    pids: Iterable[int], opened: Mapping[int, Iterable[str]], pairs: Sequence[QueuePair]
) -> tuple[set[str], list[QueuePair]]:
    """Return the devices that processes of the job have open or queue pairs on, and those queue pairs.

    `opened` are devices by process.
    """
    wanted = set(pids)
    own = [pair for pair in pairs if pair.pid in wanted]
    return {pair.device for pair in own} | {name for names in opened.values() for name in names}, own
