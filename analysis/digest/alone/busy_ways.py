"""Which ways between ranks are slow, of all hosts that were digested each alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.causes import TRANSPORT, WAIT_CAUSES
from netprof.analysis.account.episodes import MATTERS
from netprof.analysis.account.held_up import Windows, more_than_siblings
from netprof.analysis.digest.alone.explained import Explained
from netprof.analysis.digest.alone.own import ways_in
from netprof.analysis.digest.digest import Digest
from netprof.analysis.tables.columns import Float64, Int64
from netprof.model import HostClock


@dataclass(frozen=True, eq=False)
class BusyWays:
    """For how long ways were busy by iteration, shape (ways, iterations), ns; each is known by host and place there."""

    keys: tuple[tuple[int, int], ...]
    busy_ns: Int64


NO_WAYS = BusyWays((), np.zeros((0, 0), np.int64))
"""Nobody asked."""


def transport_matters(found: Explained) -> bool:
    """Say whether enough of the waiting is for the transport for anybody to look for a slow way."""
    waited_ns = int(found.causes_ns[WAIT_CAUSES.index(TRANSPORT)].sum())
    return waited_ns >= MATTERS * max(sum(rank.window_ns for rank in found.by_rank), 1)


def busy_ways(number: int, digest: Digest, clock: HostClock, windows: Windows) -> BusyWays:
    """Return how busy the ways of one host were."""
    measured = np.unique(digest.tables.way_busy.way).tolist()
    busy_ns = np.rint(ways_in(digest, clock, windows)[measured]).astype(np.int64)
    return BusyWays(tuple((number, place) for place in measured), busy_ns)


def all_ways(parts: Sequence[BusyWays]) -> BusyWays:
    """Return how busy the ways of all hosts were."""
    return BusyWays(tuple(key for part in parts for key in part.keys), np.concatenate([part.busy_ns for part in parts]))


def slow_ns(busy_ns: Int64, waited_ns: Float64) -> Int64:
    """Return for how long each of some ways held most up by being busy for longer than the others, as `by_paths` does.

    For so long most waited for the transport, by iteration. Shapes (ways, iterations) and (iterations,), ns.
    """
    more = more_than_siblings(busy_ns.astype(np.float64))
    return np.asarray(np.minimum(more, waited_ns), np.int64)
