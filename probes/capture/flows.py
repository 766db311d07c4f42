"""The flows of a capture: of each connection that was seen, one as either end has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from netprof.probes.capture.networks import in_words
from netprof.probes.capture.packets import Int64
from netprof.probes.capture.streams import Ends
from netprof.probes.probe import Columns
from netprof.schema import TCP, UNKNOWN_RANK, tables

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
    """One end of a connection, as table `flows` has it; of RoCE one of both queue pairs is known."""

    ends: Ends
    far: bool

    @property
    def local(self) -> tuple[str, int]:
        """Address and port of this end."""
        ends = self.ends
        return (ends.peer_address, ends.peer_port) if self.far else (ends.address, ends.port)

    @property
    def remote(self) -> tuple[str, int]:
        """Address and port of the other end."""
        ends = self.ends
        return (ends.address, ends.port) if self.far else (ends.peer_address, ends.peer_port)

    @property
    def queue_pairs(self) -> tuple[int, int]:
        """The local and the remote queue pair, 0 where nothing says it."""
        return (self.ends.queue_pair, 0) if self.far else (0, self.ends.queue_pair)


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
            for end in (End(ends, False), End(ends, True)):
                owner = self._owner_of(end, time_ns)
                self._flow_of.append(self._number(owner))
                if owner is not None and owner.flow_id is None:
                    rows.append(_row(self._flow_of[-1], end, owner))
        return {name: [row[name] for row in rows] for name in rows[0]} if rows else None

    def _number(self, owner: Owner | None) -> int:
        if owner is None:
            return LEFT_OUT
        if owner.flow_id is not None:
            return owner.flow_id
        self._next_id += 1
        return self._next_id - 1


def _row(flow_id: int, end: End, owner: Owner) -> dict[str, int | str]:
    known: dict[str, int | str] = {
        "flow_id": flow_id,
        "family": end.ends.family,
        "local_addr": end.local[0],
        "local_port": end.local[1],
        "remote_addr": end.remote[0],
        "remote_port": end.remote[1],
        "protocol": end.ends.protocol,
        "netns": owner.netns,
        "device": owner.device,
        "pid": owner.pid,
        "rank": owner.rank,
        "local_queue_pair": end.queue_pairs[0],
        "remote_queue_pair": end.queue_pairs[1],
        "congestion_control": "",
    }
    return {name: known.get(name, 0) for name in tables()["flows"].names}


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
    within = in_words(ends.network)
    if ends.protocol == TCP:
        return f"{ends.address}:{ends.port} to {ends.peer_address}:{ends.peer_port}{within}"
    return f"{ends.address} to {ends.peer_address} queue pair {ends.queue_pair}{within}"
