"""Finding which RDMA ports the job's processes use, and who else does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from netprof.probes.rdma.ports import Port, device_of_uverbs, ports_of
from netprof.probes.rdma.queue_pairs import QueuePair, open_uverbs
from netprof.probes.rdma.users import PortUsers, Row, ports_in_use

_NAMED = 3

Ports = Mapping[str, Sequence[Port]]
"""The ports of devices, by their names."""


@dataclass(frozen=True)
class Found:
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

    def look(self, pids: frozenset[int]) -> Found:
        """Return what the processes use now; a flow is told once."""
        opened = {pid: {self._device(each) for each in names} for pid, names in open_uverbs(pids).items()}
        pairs = self._pairs()
        devices, own = ports_in_use(pids, opened, pairs or ())
        for pair in pairs or ():
            if pair.pid not in pids:
                self._strangers.setdefault(f"{pair.device}/{pair.port}", set()).add(pair.pid)
        ports = {device: ports_of(device, self._sysfs) for device in sorted(devices - {""})}
        flows = self._of_opened(opened, ports) if pairs is None else self._of_pairs(own, ports)
        return Found(tuple(port for each in ports.values() for port in each), tuple(flows))

    def shared_with(self, names: Iterable[str]) -> Iterable[str]:
        """Yield who else has queue pairs on some ports, a sentence each."""
        wanted = set(names)
        for name, pids in self._strangers.items():
            if name in wanted:
                few = ", ".join(map(str, sorted(pids)[:_NAMED])) + (" and others" if len(pids) > _NAMED else "")
                yield f"others than the job have queue pairs on {name} ({few}): not all its bytes are the job's"

    def _device(self, uverbs: str) -> str:
        return device_of_uverbs(uverbs, self._sysfs)

    def _pairs(self) -> list[QueuePair] | None:
        """Return all queue pairs; None where the kernel does not tell of them."""
        try:
            return self._queue_pairs()
        except OSError as error:
            self.problem = error
            return None

    def _of_pairs(self, pairs: Iterable[QueuePair], ports: Ports) -> list[Row]:
        found = []
        for pair in pairs:
            port = _port_of(pair, ports.get(pair.device, ()))
            if port is not None:
                found += self.users.see(port, pair.pid, pair.local, pair.remote)
        return found

    def _of_opened(self, opened: dict[int, set[str]], ports: Ports) -> list[Row]:
        uses = [(port, pid) for pid, names in opened.items() for name in names for port in ports.get(name, ())]
        return [row for port, pid in uses for row in self.users.see(port, pid)]


def _port_of(pair: QueuePair, ports: Sequence[Port]) -> Port | None:
    """Return which of its device's ports a queue pair is on; one that has not been given any yet, on the only one."""
    if pair.port == 0 and len(ports) == 1:
        return ports[0]
    return next((port for port in ports if port.number == pair.port), None)
