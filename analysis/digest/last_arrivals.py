"""Who came last to each collective of a job, and when it was under way: host by host, put together in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from netprof.analysis.events.arrivals import Arrivals
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.members import UNTOLD_NS
from netprof.analysis.events.roots import is_root
from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Float64, Int64, closes
from netprof.analysis.tables.intervals import row_at

NEVER = -(1 << 62)
_UNKNOWN_BOUND_NS = 1 << 61
"""Stands for the bound of clocks that were not compared: any time plus this is later than all others."""


@dataclass(frozen=True, eq=False)
class Latest(Columns):
    """By collective: when the last rank asked for it, which process that was on which host, and when the one before it.

    `last_number` is that one's in its communicator, and `root_ns`, `root_pid` and `root_host` are the root's.
    `first_ns` is when the first rank asked for it, and `done_ns` when the last one was done with it. `reach_ns` is
    until when one of the host `reach_host` may have asked for it, as far as clocks tell, the latest of all hosts, and
    `next_reach_ns` that of the others; `seen` ranks were seen. NEVER where there is none.
    """

    last_ns: Int64
    last_pid: Int64
    last_host: Int64
    before_ns: Int64
    reach_ns: Int64
    reach_host: Int64
    next_reach_ns: Int64
    seen: Int64
    first_ns: Int64
    done_ns: Int64
    last_number: Int64
    root_ns: Int64
    root_pid: Int64
    root_host: Int64


def latest_of(event: Int64, collectives: Collectives, host: int, bound_ns: float | None, events: int) -> Latest:
    """Return who came last of the processes of one host; `event` is which of so many collectives each row is of.

    Times are the reference's, known to `bound_ns`.
    """
    order = np.lexsort((collectives.posted_ns, event))
    event, posted_ns, pid = event[order], collectives.posted_ns[order], collectives.pid[order]
    roots = np.flatnonzero(is_root(collectives)[order])
    last = np.flatnonzero(closes(event))
    columns = {name: np.full(events, NEVER) for name in Latest.__dataclass_fields__}
    at = event[last]
    columns["seen"] = np.bincount(event, minlength=events).astype(np.int64)
    columns["last_ns"][at], columns["last_pid"][at], columns["last_host"][at] = posted_ns[last], pid[last], host
    columns["last_number"][at] = collectives.number[order][last]
    at_root = event[roots]
    columns["root_ns"][at_root], columns["root_pid"][at_root], columns["root_host"][at_root] = (
        posted_ns[roots],
        pid[roots],
        host,
    )
    several = last[columns["seen"][at] > 1]
    columns["before_ns"][event[several]] = posted_ns[several - 1]
    columns["reach_ns"][at] = posted_ns[last] + (_UNKNOWN_BOUND_NS if bound_ns is None else int(np.ceil(bound_ns)))
    columns["reach_host"][at] = host
    columns["first_ns"][:] = -NEVER
    np.minimum.at(columns["first_ns"], event, posted_ns)
    np.maximum.at(columns["done_ns"], event, collectives.end_ns[order])
    return Latest(**columns)


def latest_of_all(parts: Sequence[Latest]) -> Latest:
    """Return who came last of the processes of all hosts."""
    return reduce(_of_both, parts)


def _of_both(a: Latest, b: Latest) -> Latest:
    later, wider = b.last_ns > a.last_ns, b.reach_ns > a.reach_ns
    return Latest(
        last_ns=np.where(later, b.last_ns, a.last_ns),
        last_pid=np.where(later, b.last_pid, a.last_pid),
        last_host=np.where(later, b.last_host, a.last_host),
        before_ns=np.maximum(np.minimum(a.last_ns, b.last_ns), np.maximum(a.before_ns, b.before_ns)),
        reach_ns=np.maximum(a.reach_ns, b.reach_ns),
        reach_host=np.where(wider, b.reach_host, a.reach_host),
        next_reach_ns=np.maximum(np.minimum(a.reach_ns, b.reach_ns), np.maximum(a.next_reach_ns, b.next_reach_ns)),
        seen=a.seen + b.seen,
        first_ns=np.minimum(a.first_ns, b.first_ns),
        done_ns=np.maximum(a.done_ns, b.done_ns),
        last_number=np.where(later, b.last_number, a.last_number),
        root_ns=np.maximum(a.root_ns, b.root_ns),
        root_pid=np.maximum(a.root_pid, b.root_pid),
        root_host=np.maximum(a.root_host, b.root_host),
    )


def arrivals_of(latest: Latest, bounds_ns: Float64, begin_ns: Int64, end_ns: Int64) -> Arrivals:
    """Return the latest arrival in each of some iterations, which are disjoint and ascending, as `find_arrivals` does.

    `bounds_ns` is how well the times of each host are known, infinite where that is unknown.
    """
    latest = latest.where(latest.seen > 1)
    place = row_at(begin_ns, end_ns, latest.last_ns)
    pid = np.where(is_sure(latest, bounds_ns), latest.last_pid, UNKNOWN)
    late_ns = latest.last_ns - latest.before_ns
    arrived = Arrivals(place, np.zeros(len(latest), np.int64), pid, late_ns).where(place != UNKNOWN)
    arrived = arrived.where(np.lexsort((arrived.late_ns, arrived.iteration)))
    return arrived.where(closes(arrived.iteration))


def untold_ns(latest: Latest, bounds_ns: Float64) -> Int64:
    """Return for how long after the last one that is known somebody on another host may still be to come."""
    elsewhere_ns, own_ns = _elsewhere_ns(latest), _own_bound_ns(latest, bounds_ns)
    later = np.where(elsewhere_ns == NEVER, 0, elsewhere_ns + own_ns - latest.last_ns)
    return np.clip(later, 0, UNTOLD_NS)


def is_sure(latest: Latest, bounds_ns: Float64) -> Bool:
    """Return where nobody on another host can have come later, whatever the clocks are."""
    elsewhere_ns = _elsewhere_ns(latest)
    return np.asarray((elsewhere_ns == NEVER) | (latest.last_ns - _own_bound_ns(latest, bounds_ns) > elsewhere_ns))


def _elsewhere_ns(latest: Latest) -> Int64:
    """Return until when somebody on another host than the last one's may have asked."""
    return np.where(latest.reach_host == latest.last_host, latest.next_reach_ns, latest.reach_ns)


def _own_bound_ns(latest: Latest, bounds_ns: Float64) -> Int64:
    bound_ns = np.minimum(bounds_ns[np.maximum(latest.last_host, 0)], float(_UNKNOWN_BOUND_NS))
    return np.ceil(bound_ns).astype(np.int64)
