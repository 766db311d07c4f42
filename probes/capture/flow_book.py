"""The flows of a capture: of each connection that was seen, one as either end has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from netprof.probes.capture.connections import Ends
from netprof.probes.capture.networks import in_words
from netprof.probes.capture.packets import Int64
from netprof.probes.probe import Columns, Row, columns_of, row_of
from netprof.schema import UNKNOWN_RANK

LEFT_OUT = -1


@dataclass(frozen=True)
class Owner:
    """Whose flow it is: the columns of table `flows` that a capture cannot know."""

    netns: int
    device: str
    pid: int
    rank: int = UNKNOWN_RANK
    flow_id: int | None = None  # of a recorded flow, which this is the capture's view of


@dataclass(frozen=True)
class End:
    """One end of a connection, as table `flows` has it: addresses with ports, and queue pairs, 0 where nothing says it.

    Of RoCE one of both queue pairs is known.
    """

    ends: Ends
    local: tuple[str, int]
    remote: tuple[str, int]
    queue_pairs: tuple[int, int]


def _both(ends: Ends) -> tuple[End, End]:
    near, far = (ends.address, ends.port), (ends.peer_address, ends.peer_port)
    return End(ends, near, far, (0, ends.queue_pair)), End(ends, far, near, (ends.queue_pair, 0))


OwnerOf = Callable[[End, int], Owner | None]
"""Whose flow an end of a connection is that was first seen at a time (on the trace's clock); None: not wanted."""


class FlowBook:
    """Numbers the flows of a capture, from `first_id` on. `flow_of` holds the flow of each stream's source."""

    def __init__(self, owner_of: OwnerOf, first_id: int = 1) -> None:
        self._owner_of = owner_of
        self._next_id = first_id
        self._flow_of: list[int] = []

    @property
    def flow_of(self) -> Int64:
        """By stream, the flow of the end that it comes from; LEFT_OUT where that is not wanted."""
        return np.array(self._flow_of, np.int64)

    def add(self, connections: list[Ends], first_ns: Int64) -> Columns | None:
        """Return the rows of table `flows` for connections that are new: those beyond the ones given before.

        `first_ns` is when each of the new ones was first seen.
        """
        rows = []
        known = len(self._flow_of) // 2
        for ends, time_ns in zip(connections[known:], first_ns.tolist(), strict=True):
            for end in _both(ends):
                owner = self._owner_of(end, time_ns)
                self._flow_of.append(self._number(owner))
                if owner is not None and owner.flow_id is None:
                    rows.append(_row(self._flow_of[-1], end, owner))
        return columns_of("flows", rows) if rows else None

    def _number(self, owner: Owner | None) -> int:
        if owner is None:
            return LEFT_OUT
        if owner.flow_id is not None:
            return owner.flow_id
        self._next_id += 1
        return self._next_id - 1


def _row(flow_id: int, end: End, owner: Owner) -> Row:
    (local_addr, local_port), (remote_addr, remote_port) = end.local, end.remote
    local_queue_pair, remote_queue_pair = end.queue_pairs
    return row_of(
        "flows",
        flow_id=flow_id,
        family=end.ends.family,
        local_addr=local_addr,
        local_port=local_port,
        remote_addr=remote_addr,
        remote_port=remote_port,
        protocol=end.ends.protocol,
        netns=owner.netns,
        device=owner.device,
        pid=owner.pid,
        rank=owner.rank,
        local_queue_pair=local_queue_pair,
        remote_queue_pair=remote_queue_pair,
    )


MOST_HOSTS = 10_000
OTHERS = "other addresses"


class Hosts:
    """The owners in a capture by itself: every address is a host, with one device that is called like it.

    With `only`, flows are wanted as that address has them, and no others. Addresses after the first `most` are one
    host together, for a trace describes each of its hosts.
    """

    def __init__(self, only: str | None = None, most: int = MOST_HOSTS) -> None:
        self._only, self._most = only, most
        self._numbers: dict[str, int] = {}
        self._crowded: set[str] = set()

    @property
    def together(self) -> int:
        """How many addresses are one host."""
        return len(self._crowded)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yield the addresses, and the numbers that stand for their processes."""
        yield from self._numbers.items()

    def owner_of(self, end: End, time_ns: int) -> Owner | None:
        """Return whose flow this is."""
        del time_ns
        address = end.local[0]
        if self._only not in (None, address):
            return None
        if address not in self._numbers and len(self._numbers) - (OTHERS in self._numbers) >= self._most:
            self._crowded.add(address)
            address = OTHERS
        return Owner(0, address, self._numbers.setdefault(address, len(self._numbers) + 1))


def name_of(ends: Ends) -> str:
    """Return a RoCE connection as people say it."""
    return f"{ends.address} to {ends.peer_address} queue pair {ends.queue_pair}{in_words(ends.network)}"
