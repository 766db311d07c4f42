"""Who came last to each collective of a job, and when it was under way: host by host, put together in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.arrivals import Arrivals
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.members import UNTOLD_NS
from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Float64, Int64, closes
from netprof.analysis.tables.intervals import row_at

NEVER = -(1 << 62)
_NOBODY_KNOWS = 1 << 61
"""How wide a bound is of which nobody knows: what it is added to is later than anything."""


@dataclass(frozen=True, eq=False)
class Latest(Columns):
    """By collective: when the last rank asked for it, which process that was on which host, and when the one before it.

    `first_ns` is when the first rank asked for it, and `done_ns` when the last one was done with it.
    `reach_ns` is until when one of the host `reach_host` may have asked for it, as far as clocks tell, the latest of
    all hosts, and `next_reach_ns` that of the others; `seen` ranks were seen. NEVER where there is none.
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


def latest_of(event: Int64, own: Collectives, host: int, bound_ns: float | None, events: int) -> Latest:
    """Return who came last of the processes of one host; `event` is which of so many collectives each row is of.

    Times are the reference's, known to `bound_ns`.
    """
    order = np.lexsort((own.posted_ns, event))
    event, posted_ns, pid = event[order], own.posted_ns[order], own.pid[order]
    last = np.flatnonzero(closes(event))
    found = {name: np.full(events, NEVER) for name in Latest.__dataclass_fields__}
    at = event[last]
    found["seen"] = np.bincount(event, minlength=events).astype(np.int64)
    found["last_ns"][at], found["last_pid"][at], found["last_host"][at] = posted_ns[last], pid[last], host
    several = last[found["seen"][at] > 1]
    found["before_ns"][event[several]] = posted_ns[several - 1]
    found["reach_ns"][at] = posted_ns[last] + _width(bound_ns)
    found["reach_host"][at] = host
    found["first_ns"][:] = -NEVER
    np.minimum.at(found["first_ns"], event, posted_ns)
    np.maximum.at(found["done_ns"], event, own.end_ns[order])
    return Latest(**found)


def _width(bound_ns: float | None) -> int:
    return _NOBODY_KNOWS if bound_ns is None else int(np.ceil(bound_ns))


def latest_of_all(parts: Sequence[Latest]) -> Latest:
    """Return who came last of the processes of all hosts."""
    found = parts[0]
    for part in parts[1:]:
        found = _of_both(found, part)
    return found


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
    )


def arrivals_of(found: Latest, bounds_ns: Float64, begin_ns: Int64, end_ns: Int64) -> Arrivals:
    """Return the latest arrival in each of some iterations, which are disjoint and ascending, as `find_arrivals` does.

    `bounds_ns` is how well the times of each host are known, infinite where nobody knows.
    """
    found = found.where(found.seen > 1)
    place = row_at(begin_ns, end_ns, found.last_ns)
    pid = np.where(is_sure(found, bounds_ns), found.last_pid, UNKNOWN)
    late_ns = found.last_ns - found.before_ns
    arrived = Arrivals(place, np.zeros(len(found), np.int64), pid, late_ns).where(place != UNKNOWN)
    arrived = arrived.where(np.lexsort((arrived.late_ns, arrived.iteration)))
    return arrived.where(closes(arrived.iteration))


def untold_ns(found: Latest, bounds_ns: Float64) -> Int64:
    """Return for how long after the last one that is known somebody on another host may still be to come."""
    others, own_ns = _others(found), _own_bound_ns(found, bounds_ns)
    later = np.where(others == NEVER, 0, others + own_ns - found.last_ns)
    return np.clip(later, 0, UNTOLD_NS)


def is_sure(found: Latest, bounds_ns: Float64) -> Bool:
    """Return where nobody on another host can have come later, whatever the clocks are."""
    others = _others(found)
    return np.asarray((others == NEVER) | (found.last_ns - _own_bound_ns(found, bounds_ns) > others))


def _others(found: Latest) -> Int64:
    """Return until when somebody on another host than the last one's may have asked."""
    return np.where(found.reach_host == found.last_host, found.next_reach_ns, found.reach_ns)


def _own_bound_ns(found: Latest, bounds_ns: Float64) -> Int64:
    own = np.minimum(bounds_ns[np.maximum(found.last_host, 0)], float(_NOBODY_KNOWS))
    return np.ceil(own).astype(np.int64)
