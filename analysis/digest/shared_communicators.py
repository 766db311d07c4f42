"""Communicators of a part of the job that are on more than one host: told by what each host says of its processes'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from netprof.analysis.digest.ways import WayOut, other_end
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.members import GroupView, communicators
from netprof.analysis.hosts.numbers import MOST_PIDS

MOST_EVENTS = 1 << 20
"""Collectives of all such communicators: all hosts hold when each was under way. Those beyond it stay untold."""
_PATIENCE = 64
"""Communicators that are tried in a row and are not the same one: where nothing is known of any connection, all of the
job look alike."""


class ViewKey(NamedTuple):
    """A communicator as one process has it."""

    pid: int
    backend: int
    group: int

    @property
    def host(self) -> int:
        """The number of the process's host."""
        return self.pid // MOST_PIDS


@dataclass(frozen=True, eq=False)
class Fragment:
    """A communicator of a part of the job, as one process sees it: `rows` collectives, of which `sample` are some."""

    key: ViewKey
    ranks: int
    number: int
    rows: int
    sample: Collectives


@dataclass(frozen=True, eq=False)
class Fragments:
    """Those of some hosts, in the order of these, and the processes' flows with the bytes sent, by its text."""

    views: tuple[Fragment, ...]
    flows: Mapping[str, tuple[int, float]]


@dataclass(frozen=True, eq=False)
class SharedCommunicator:
    """A communicator of `ranks` processes; of those in `members` there are digests.

    Its events are the `collectives` of one of them.
    """

    ranks: int
    members: tuple[ViewKey, ...]
    collectives: Collectives


def flows_of(ways: Sequence[WayOut], distance: int) -> dict[str, tuple[int, float]]:
    """Return a host's flows as `Fragments` has them; `distance` is what its processes are farther in the job."""
    return {way.flow: (way.pid + distance, float(way.sent_bytes)) for way in ways}


def exchanged(flows: Mapping[str, tuple[int, float]]) -> dict[tuple[int, int], float]:
    """Return how many bytes went between each two processes, in both directions, as `traffic` does."""
    amounts: dict[tuple[int, int], float] = {}
    for flow, (pid, amount) in flows.items():
        far = flows.get(other_end(flow))
        if far is not None and far[0] != pid:
            for pair in ((pid, far[0]), (far[0], pid)):
                amounts[pair] = amounts.get(pair, 0.0) + amount
    return amounts


def all_fragments(parts: Sequence[Fragments]) -> Fragments:
    """Return those of several hosts."""
    flows = {flow: of for part in parts for flow, of in part.flows.items()}
    return Fragments(tuple(view for part in parts for view in part.views), flows)


def find_shared(fragments: Fragments) -> tuple[tuple[Fragment, ...], ...]:
    """Return the members of each communicator that is on more than one host, those with the fewest collectives first.

    They are told as `members` tells those of traces, by a few collectives of each, but nothing is guessed. The member
    with the most collectives is the first.
    """
    of_key = {each.key: each for each in fragments.views}
    views = [
        GroupView(each.key.pid, each.ranks, each.number, np.arange(len(each.sample)), each.sample, np.arange(0))
        for each in fragments.views
    ]
    shared: list[tuple[Fragment, ...]] = []
    for members in communicators(views, exchanged(fragments.flows), guess=False, patience=_PATIENCE):
        of_one = sorted((of_key[key_of(view)] for view in members), key=lambda each: -each.rows)
        if len({each.key.host for each in of_one}) > 1:
            shared.append(tuple(of_one))
    shared.sort(key=lambda of_one: of_one[0].rows)
    through = np.cumsum([of_one[0].rows for of_one in shared])
    return tuple(shared[: int(np.searchsorted(through, MOST_EVENTS, "right"))])


def key_of(view: GroupView) -> ViewKey:
    """Return which communicator of which process it is."""
    first = view.collectives
    return ViewKey(view.pid, int(first.backend[0]), int(first.group[0]))
