"""Clocks of hosts between which bytes go one way only: what comes back comes by way of others, as around a ring.

That nothing arrives before it left bounds the difference of two clocks on one side. Along a way of several streams the
bounds add up, to that of the first clock and the last; two ways, there and back, bound it on both sides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

import numpy as np

from netprof.analysis.hosts.corridor import MOST_DRIFT
from netprof.analysis.hosts.streams import Delays
from netprof.analysis.tables.columns import Int64

_WINDOWS_NS = (10_000_000, 100_000_000, 1_000_000_000)
"""So near to each other in time have the two bytes to be whose delays are added: as little as there are enough."""
_ENOUGH = 20

Ways = Mapping[tuple[int, int], Delays]
"""What went from one host to another, and how long that took at most, by both hosts."""


def there_and_back(ways: Ways, first: int, hosts: Collection[int]) -> dict[int, tuple[Delays, Delays]]:
    """Return, for those of some hosts to which streams lead from the first one and back, the delays of both ways."""
    out = _from(first, {pair: each for pair, each in ways.items() if len(each)})
    back = _from(first, {pair[::-1]: _turned(each) for pair, each in ways.items() if len(each)})
    return {host: (out[host], _turned(back[host])) for host in sorted(hosts) if host in out and host in back}


def _from(first: int, ways: Ways) -> dict[int, Delays]:
    """Return the delays on the way from one host to every other one, over as few streams as that takes."""
    neighbours: dict[int, list[int]] = {}
    for one, other in sorted(ways):
        neighbours.setdefault(one, []).append(other)
    found: dict[int, Delays] = {}
    waiting = deque([first])
    while waiting:
        here = waiting.popleft()
        for other in neighbours.get(here, ()):
            if other not in found and other != first:
                step = ways[here, other]
                found[other] = step if here == first else _after(found[here], step)
                waiting.append(other)
    return {host: each for host, each in found.items() if len(each)}


def _turned(delays: Delays) -> Delays:
    """Return the same as if time ran backwards: what arrived left, later, for where it came from."""
    return Delays(-delays.arrived_ns, -delays.sent_ns)


def _after(first: Delays, second: Delays) -> Delays:
    """Return the delays of two ways, one after the other: those of bytes that passed the host between at about a time.

    In the time between the two its clock may have gained on the others'.
    """
    for width_ns in _WINDOWS_NS:
        mine, its = _least(first, first.arrived_ns // width_ns), _least(second, second.sent_ns // width_ns)
        _, ours, theirs = np.intersect1d(
            first.arrived_ns[mine] // width_ns, second.sent_ns[its] // width_ns, assume_unique=True, return_indices=True
        )
        if len(ours) >= _ENOUGH:
            break
    mine, its = mine[ours], its[theirs]
    apart_ns = np.abs(second.sent_ns[its] - first.arrived_ns[mine])
    gained_ns = np.ceil(MOST_DRIFT * apart_ns).astype(np.int64)
    took_ns = second.arrived_ns[its] - second.sent_ns[its] + gained_ns
    return Delays(first.sent_ns[mine], first.arrived_ns[mine] + took_ns)


def _least(delays: Delays, window: Int64) -> Int64:
    """Return the row of each window that took least, by window."""
    order = np.lexsort((delays.arrived_ns - delays.sent_ns, window))
    first = np.append(True, np.diff(window[order]) != 0)[: len(order)]
    return np.asarray(order[first], np.int64)
