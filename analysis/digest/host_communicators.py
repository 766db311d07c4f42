"""What a host, digested alone, says of its processes' communicators for others to know theirs again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from netprof.analysis.digest.host_in_job import Reference, moved_collectives
from netprof.analysis.digest.opened import Source, open_digest
from netprof.analysis.digest.shared_communicators import (
    Fragment,
    Fragments,
    SharedCommunicator,
    ViewKey,
    flows_of,
    key_of,
)
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.members import GroupView, views_of
from netprof.analysis.hosts.numbers import MOST_PIDS
from netprof.model import HostClock

_SAMPLE = 32
_MOST_VIEWS = 4096
"""Communicators of a host's processes: more than any job has, unless its digest is damaged."""


def fragments_of(
    numbered: tuple[int, Source], reference: Reference, clocks: Mapping[int, HostClock], at_ns: int
) -> Fragments:
    """Return the communicators of one host's processes that are a part of the job, and what they do from `at_ns` on.

    Raises TraceError.
    """
    number, source = numbered
    digest, size = open_digest(source, ("collectives",)), reference.world_size
    if size is None:  # nothing tells which of them are of the whole job
        return Fragments((), {})
    moved = moved_collectives(digest.tables.collectives, clocks[number], number * MOST_PIDS)
    of_parts = [view for view in views_of(moved, {}, size) if 1 < view.ranks < size][:_MOST_VIEWS]
    flows = flows_of(digest.host.ways, number * MOST_PIDS) if of_parts else {}
    return Fragments(tuple(_fragment(view, at_ns) for view in of_parts), flows)


def _fragment(view: GroupView, at_ns: int) -> Fragment:
    """Return a view with its first collectives after an instant, or the last ones where there are too few after it."""
    first = int(np.searchsorted(view.collectives.posted_ns, at_ns))
    first = max(0, min(first, len(view.rows) - _SAMPLE))
    sample = view.collectives.where(np.arange(first, min(first + _SAMPLE, len(view.rows))))
    return Fragment(key_of(view), view.ranks, view.number, len(view.rows), sample)


def collectives_of_first(
    numbered: tuple[int, Source],
    reference: Reference,
    clocks: Mapping[int, HostClock],
    wanted: Collection[ViewKey],
) -> dict[ViewKey, Collectives]:
    """Return all collectives of some communicators, as processes of one host have them. Raises TraceError."""
    number, source = numbered
    table = open_digest(source, ("collectives",)).tables.collectives
    moved = moved_collectives(table, clocks[number], number * MOST_PIDS)
    views = ((key_of(view), view.collectives) for view in views_of(moved, {}, reference.world_size))
    return {key: collectives for key, collectives in views if key in wanted}


def all_collectives(parts: Sequence[dict[ViewKey, Collectives]]) -> dict[ViewKey, Collectives]:
    """Return those of several hosts."""
    return {key: collectives for part in parts for key, collectives in part.items()}


def numbered_communicators(
    collectives: dict[ViewKey, Collectives], shared: Sequence[Sequence[Fragment]]
) -> dict[int, SharedCommunicator]:
    """Return communicators by number; `collectives` are those of each one's first member."""
    return {
        number: SharedCommunicator(members[0].ranks, tuple(each.key for each in members), collectives[members[0].key])
        for number, members in enumerate(shared, 1)
    }
