"""Whom a member of a collective waits for: all others, or with a root some of them.

A broadcast's root may be done before anybody else has begun, and so may a gather's leaf; leaves wait for no other leaf.
Gloo's broadcast is a binomial tree over the numbers from the root on (broadcast.cc), whose members wait for their
children too; its gather and scatter are messages between the root and each other member; its reduce is a ring, in which
all wait for all.
"""

from __future__ import annotations

import numpy as np

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.tables.columns import UNKNOWN, Bool, Int64, distinct
from netprof.schema import Backend, CollectiveKind

_FROM_ROOT = (CollectiveKind.BROADCAST, CollectiveKind.SCATTER)
_TO_ROOT = (CollectiveKind.REDUCE, CollectiveKind.GATHER)
_SOME = (*_FROM_ROOT, *_TO_ROOT, CollectiveKind.ALL_TO_ALL)
"""Those in which some members may exchange nothing: an all-to-all of no bytes between two."""


def may_be_one(mine: Collectives, theirs: Collectives) -> Bool:
    """Return row by row whether two ranks' collectives can be one event, by their times.

    Whoever receives is not done before those who send to it have begun: all, where nobody is known to be the root.
    """
    kind, mine_is, theirs_is = mine.kind, is_root(mine), is_root(theirs)
    of_all, from_root, to_root = ~np.isin(kind, _SOME), np.isin(kind, _FROM_ROOT), np.isin(kind, _TO_ROOT)
    receives = of_all | (from_root & theirs_is) | (to_root & mine_is)
    sends = of_all | (from_root & mine_is) | (to_root & theirs_is)
    after, before = mine.end_ns >= theirs.begin_ns, theirs.end_ns >= mine.begin_ns
    return np.asarray((~receives | after) & (~sends | before))


def last_awaited(collectives: Collectives, event: Int64) -> Int64:
    """Return for each collective the row of the member that it waited for last: itself, where it waited for none.

    That is the last one of its `event` (-1: none) that posted it before this one was done, of those that it needs.
    """
    awaited = np.arange(len(event))
    rows = np.flatnonzero(event >= 0)
    rows = rows[np.lexsort((collectives.posted_ns[rows], event[rows]))]
    if not len(rows):
        return awaited
    posted_ns, end_ns = collectives.posted_ns[rows], collectives.end_ns[rows]
    times = distinct(posted_ns, end_ns)
    key = event[rows] * len(times)
    posted = key + np.searchsorted(times, posted_ns)
    place, own = np.searchsorted(posted, key + np.searchsorted(times, end_ns), "right") - 1, np.arange(len(rows))
    left = np.flatnonzero(place > own)
    while len(left := left[~_needs(collectives, rows[left], rows[place[left]])]):
        place[left] -= 1
        left = left[place[left] > own[left]]
    awaited[rows] = rows[np.maximum(place, own)]
    return awaited


def _needs(collectives: Collectives, mine: Int64, theirs: Int64) -> Bool:
    """Return whether members, by row, need that others take part before they can be done; so is what is not known."""
    kind, number, other = collectives.kind[mine], collectives.number[mine], collectives.number[theirs]
    return needs(collectives, mine, number, other) if np.isin(kind, _SOME).any() else np.ones(len(mine), bool)


def needs(collectives: Collectives, rows: Int64, number: Int64, other: Int64) -> Bool:
    """Return whether member `number` of each collective in `rows` needs the `other` one before it can be done.

    What is not known is taken to be so.
    """
    kind, root, ranks = collectives.kind[rows], collectives.root[rows], np.maximum(collectives.ranks[rows], 1)
    known = (root != UNKNOWN) & (number != UNKNOWN) & (other != UNKNOWN) & (collectives.ranks[rows] != UNKNOWN)
    known &= collectives.backend[rows] == Backend.GLOO
    place, far = (number - root) % ranks, (other - root) % ranks
    in_tree = ((place > far) & (place & _ones(far) == far)) | ((far > place) & (far & (_ones(far) >> 1) == place))
    by_root = (place == 0) | (far == 0)
    is_star = (kind == CollectiveKind.GATHER) | (kind == CollectiveKind.SCATTER)
    needed = np.where(kind == CollectiveKind.BROADCAST, in_tree, np.where(is_star, by_root, True))
    return np.asarray(~known | needed)


def _ones(number: Int64) -> Int64:
    """Return the number of as many bits that are all set."""
    for shift in (1, 2, 4, 8, 16):
        number = number | number >> shift
    return number


def has_root(kind: Int64) -> Bool:
    """Return which kinds of collectives have a root."""
    return np.isin(kind, (*_FROM_ROOT, *_TO_ROOT))


def is_root(collectives: Collectives) -> Bool:
    """Return in which collectives a process is the root, as far as that is known."""
    return np.asarray((collectives.root != UNKNOWN) & (collectives.root == collectives.number))
