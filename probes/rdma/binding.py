"""Counters bound to the job's queue pairs for a recording, and unbound on every way out.

To bind one modifies a queue pair that is in use, so it is done only where a person asks for it. What is bound is noted
like what is lowered (`refresh`), before it is: the number of the counter is not known then, and is looked up.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from netprof.probes.rdma.drivers import DRIVERS
from netprof.probes.rdma.notes import Held, Notes, own
from netprof.probes.rdma.queue_pairs import QueuePair
from netprof.probes.rdma.statistic import PairCounter, StatisticSocket
from netprof.probes.series import Quantity
from netprof.schema import COUNT, PAIR_RECEIVED, PAIR_SENT

NOTES = Path("/run/netprof/rdma-bound.json")

SENT = Quantity(PAIR_SENT, "bytes", COUNT, "bytes that the queue pair sent")
RECEIVED = Quantity(PAIR_RECEIVED, "bytes", COUNT, "bytes that the queue pair received")

_BYTES = {
    "rdma_tx_bytes": SENT,  # mlx5
    "rdma_rx_bytes": RECEIVED,
    "tx_bytes": SENT,
    "rx_bytes": RECEIVED,
}
_EVENTS = {
    name.rpartition("/")[2]: quantity
    for driver in DRIVERS
    for name, quantity in driver.events.items()
    if name.startswith("hw_counters/")
}
QUANTITIES = {**_EVENTS, **_BYTES}
"""What drivers call what they count of a queue pair: as of a port, and bytes."""

_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOMEM)  # a driver that cannot bind leaves the kernel without a counter
_MOST = 4096
_NOT_OURS = -1

Open = Callable[[], StatisticSocket]


class BoundPairs:
    """Binds counters to queue pairs until `close`. `open_socket` is how the kernel is reached, `notes` a file.

    `problem` says why counters are not bound, "" where nothing went wrong.
    """

    def __init__(self, open_socket: Open = StatisticSocket, notes: Path = NOTES) -> None:
        self._open = open_socket
        self._notes = _notes(notes, open_socket)
        self._tried: set[str] = set()
        self._bound: dict[str, int] = {}  # counters by name of the queue pair
        self.problem = ""

    def bind(self, pairs: Iterable[QueuePair]) -> None:
        """Bind a counter to each queue pair that has none yet; after a refusal to any, nothing more is tried."""
        fresh = {_name(pair): pair for pair in pairs if pair.port and pair.local and _name(pair) not in self._tried}
        if not fresh or self.problem:
            return
        self._tried |= fresh.keys()
        try:
            with self._notes.opened() as held, self._open() as socket:
                others = {_name_of(each, pair) for each in socket.read() for pair in each.pairs}
                free = [name for name in fresh if name not in others and len(held) < _MOST]
                for name in free:
                    held[name] = Held(0, [own()])
                self._notes.write(held)
                for number, name in enumerate(free):
                    if not self._bind(socket, fresh[name], held):
                        for rest in free[number:]:
                            del held[rest]
                        break
        except OSError as error:
            self.problem = self.problem or f"counters cannot be bound to queue pairs: {error.strerror or error}"

    def _bind(self, socket: StatisticSocket, pair: QueuePair, held: dict[str, Held]) -> bool:
        """Bind one; returns False where that is refused, and would be to others."""
        try:
            number = socket.bind(pair.device, pair.port, pair.local)
        except OSError as error:
            if error.errno == errno.ENOENT:  # it is gone already
                del held[_name(pair)]
                return True
            self.problem = _why(error, pair, len(self._bound))
            return False
        held[_name(pair)].before = self._bound[_name(pair)] = number
        return True

    def read(self) -> list[PairCounter]:
        """Return the counters of single queue pairs as they are now, also those that others have bound."""
        with suppress(OSError), self._open() as socket:
            return [each for each in socket.read() if len(each.pairs) == 1]
        return []

    def __len__(self) -> int:
        return len(self._bound)

    def close(self) -> None:
        """Unbind what was bound. May be called twice."""
        if self._bound:
            self._notes.let_go()
        self._bound.clear()


def mend(open_socket: Open = StatisticSocket, notes: Path = NOTES) -> None:
    """Unbind what recorders that were killed have left bound."""
    _notes(notes, open_socket).mend()


def _notes(path: Path, open_socket: Open) -> Notes:
    """Return the notes of what is bound: queue pairs by name, and the number of the counter, 0 before that is known."""
    return Notes(path, lambda name, _: _is_name(name), lambda free: _undo(free, open_socket))


def _undo(free: Mapping[str, int], open_socket: Open) -> None:
    """Unbind the counters of queue pairs, unless others have bound another one meanwhile."""
    with suppress(OSError), open_socket() as socket:
        for each in socket.read():
            for pair in each.pairs:
                if free.get(_name_of(each, pair), _NOT_OURS) in (0, each.id):
                    with suppress(OSError):
                        socket.unbind(each.device, each.port, pair, each.id)


def _why(error: OSError, pair: QueuePair, bound: int) -> str:
    device = f"{pair.device}/{pair.port}"
    if error.errno in _UNSUPPORTED and not bound:
        return f"the driver of {device} does not bind counters to queue pairs: {os.strerror(error.errno or 0)}"
    if error.errno in (errno.ENOMEM, errno.ENOSPC):
        return f"{device} has counters for {bound} queue pairs of the job only: {os.strerror(error.errno or 0)}"
    return f"counters cannot be bound to queue pairs of {device}: {error.strerror or error}"


def _name(pair: QueuePair) -> str:
    return f"{pair.device}/{pair.port}/{pair.local}"


def _name_of(counter: PairCounter, pair: int) -> str:
    return f"{counter.device}/{counter.port}/{pair}"


def _is_name(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == 3 and bool(parts[0]) and all(part.isascii() and part.isdecimal() for part in parts[1:])
