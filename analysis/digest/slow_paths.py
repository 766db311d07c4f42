"""The ways between the processes of all hosts, put together of each host's connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from netprof.analysis.account.causes import TRANSPORT, WAIT_CAUSES
from netprof.analysis.account.episodes import MATTERS
from netprof.analysis.account.held_up import MAIN
from netprof.analysis.digest.digest import Digest, HostPart
from netprof.analysis.digest.explained_waiting import Explained
from netprof.analysis.digest.host_in_job import ways_in
from netprof.analysis.digest.ways import other_end
from netprof.analysis.hosts.numbers import MOST_PIDS
from netprof.analysis.tables.columns import UNKNOWN, Bool, Int64
from netprof.analysis.tables.intervals import Windows
from netprof.model import HostClock


class Between(NamedTuple):
    """From which process to which, as `paths.PathKey`; where the other end has no digest, its address instead."""

    pid: int
    to_pid: int
    to_addr: str


@dataclass(frozen=True, eq=False)
class AllWays:
    """The ways that carry enough to be compared, by connection: host's number and place, and by host's number and flow.

    Both are the place in `keys`.
    """

    keys: tuple[Between, ...]
    of_connection: Mapping[tuple[int, int], int]
    of_flow: Mapping[tuple[int, str], int]

    def within(self, pids: frozenset[int]) -> Bool:
        """Return which are between two of some processes, or go from one of them to an unknown one."""
        known = [key.pid in pids and (key.to_pid in pids or key.to_pid == UNKNOWN) for key in self.keys]
        return np.array(known, bool)


def ways_between(hosts: Mapping[int, HostPart]) -> AllWays:
    """Return the ways between the processes of all hosts, by number."""
    sender = {way.flow: way.pid + number * MOST_PIDS for number, host in hosts.items() for way in host.ways}
    connections: dict[Between, list[tuple[int, int]]] = {}
    sent: dict[Between, int] = {}
    for number, host in hosts.items():
        for place, way in enumerate(host.ways):
            pid, to_pid = way.pid + number * MOST_PIDS, sender.get(other_end(way.flow), UNKNOWN)
            address = way.flow.partition(" → ")[2].rpartition(":")[0].strip("[]")
            key = Between(pid, to_pid, "" if to_pid != UNKNOWN else address)
            connections.setdefault(key, []).append((number, place))
            sent[key] = sent.get(key, 0) + way.sent_bytes
    least = max(MAIN * max(sent.values(), default=0), 1)
    main = [key for key, amount in sent.items() if amount >= least]
    of_connection = {each: row for row, key in enumerate(main) for each in connections[key]}
    of_flow = {(number, hosts[number].ways[place].flow): row for (number, place), row in of_connection.items()}
    return AllWays(tuple(main), of_connection, of_flow)


@dataclass(frozen=True, eq=False)
class BusyWays:
    """For how long ways were busy by iteration, shape (ways, iterations), ns; each is known by host and place there."""

    keys: tuple[tuple[int, int], ...]
    busy_ns: Int64


NO_WAYS = BusyWays((), np.zeros((0, 0), np.int64))
"""Nobody asked."""


def transport_matters(explained: Explained) -> bool:
    """Say whether enough of the waiting is for the transport for anybody to look for a slow way."""
    waited_ns = int(explained.causes_ns[WAIT_CAUSES.index(TRANSPORT)].sum())
    return waited_ns >= MATTERS * max(sum(rank.window_ns for rank in explained.by_rank), 1)


def busy_ways(number: int, digest: Digest, clock: HostClock, windows: Windows) -> BusyWays:
    """Return how busy the ways of one host were."""
    measured = np.unique(digest.tables.way_busy.way).tolist()
    busy_ns = np.rint(ways_in(digest, clock, windows)[measured]).astype(np.int64)
    return BusyWays(tuple((number, place) for place in measured), busy_ns)


def all_ways(parts: Sequence[BusyWays]) -> BusyWays:
    """Return how busy the ways of all hosts were."""
    return BusyWays(tuple(key for part in parts for key in part.keys), np.concatenate([part.busy_ns for part in parts]))
