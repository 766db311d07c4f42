"""Who came last: of each communicator and iteration, the rank that asked last for a collective, and by how much."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.members import Members
from netprof.analysis.tables.columns import UNKNOWN, Columns, Int64, closes, opens
from netprof.analysis.tables.intervals import row_at


@dataclass(frozen=True, eq=False)
class Arrivals(Columns):
    """The latest arrival of each communicator in each iteration, by iteration and group.

    `pid` asked for a collective `late_ns` after the last but one of its members that were seen; UNKNOWN where the
    hosts' clocks do not tell which one was last.
    """

    iteration: Int64
    group: Int64
    pid: Int64
    late_ns: Int64


def find_arrivals(collectives: Collectives, members: Members, begin_ns: Int64, end_ns: Int64) -> Arrivals:
    """Return the arrivals in iterations, which are disjoint and ascending; of several collectives the latest counts."""
    rows = np.flatnonzero((members.event >= 0) & (members.seen > 1))
    rows = rows[np.lexsort((collectives.posted_ns[rows], members.event[rows]))]
    event = members.event[rows]
    last = np.flatnonzero(closes(event) & ~opens(event))
    mine, before = rows[last], rows[last - 1]
    at_ns = collectives.posted_ns[mine]
    place = row_at(begin_ns, end_ns, at_ns)
    late_ns = at_ns - collectives.posted_ns[before]
    arrivals = Arrivals(place, members.group[mine], members.last_pid[mine], late_ns).where(place != UNKNOWN)
    arrivals = arrivals.sorted_by("iteration", "group", "late_ns")
    return arrivals.where(closes(arrivals.iteration, arrivals.group))
