"""What is going on right now: the same conclusions, over the last part of a recording that is still growing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.bandwidth import Bandwidths, rank_bandwidths
from netprof.analysis.bins import Bins, combine
from netprof.analysis.buckets import find_buckets, outstanding_by_process
from netprof.analysis.collectives import Collectives, find_collectives
from netprof.analysis.columns import Int64, concatenate
from netprof.analysis.flow_table import LaneKey, LinkKey
from netprof.analysis.idle import States, link_states
from netprof.analysis.iterations import Iterations, find_iterations
from netprof.analysis.links import UNKNOWN_RATE
from netprof.analysis.marks import Marks
from netprof.analysis.ranks import ranks_by_pid, world_size
from netprof.analysis.result import Analysis
from netprof.model import LineRate, Meta, Target
from netprof.schema import RECEIVE, TRANSMIT, MarkKind

HISTORY = 100
"""Iterations of each process that are remembered."""


@dataclass(frozen=True, eq=False)
class Trail(Iterations):
    """The last whole iterations of every process, by process and time; `number` counts its steps since the attach."""

    number: Int64

    def of(self, pid: int) -> Trail:
        """Return the iterations of one process."""
        return self.where(self.pid == pid)


@dataclass(frozen=True, eq=False)
class LinkNow:
    """The last seconds of one device: bytes per bin each way, and what its ranks were doing (None: not known)."""

    key: LinkKey
    ranks: tuple[int, ...]
    line_rate: LineRate
    transmitted: Bins | None
    received: Bins | None
    states: States | None


@dataclass(frozen=True, eq=False)
class Recent:
    """What a live view draws.

    `through_ns` is how far the recording has come. `analysis` is over the `window_ns` before that, or less where it
    is made less often; None until there is something to conclude from. `last_bandwidths` are the all-reduces of each
    process's last whole iteration. `gpus` are the latest samples of table `gpu`, by GPU and column, where one exists.
    """

    meta: Meta
    through_ns: int
    window_ns: int
    trail: Trail
    ranks: Mapping[int, int]  # pid to rank
    links: tuple[LinkNow, ...]
    last_bandwidths: Mapping[int, Bandwidths]
    analysis: Analysis | None
    gpus: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class Glance:
    """The part of `Recent` that is looked at several times a second."""

    trail: Trail
    links: tuple[LinkNow, ...]
    last_bandwidths: Mapping[int, Bandwidths]


def glance(
    meta: Meta,
    marks: Marks,
    steps: Mapping[int, int],
    trail: Trail,
    lanes: Mapping[tuple[LaneKey, int], Bins],
) -> Glance:
    """Look at the last seconds: `marks` and `lanes` are of that time, `steps` counts each process's `ddp_wait` so far.

    `trail` is what the glance before returned.
    """
    found = find_iterations(marks).iterations
    collectives = find_collectives(marks).collectives
    trail = _continue(trail, found, marks, steps)
    outstanding = outstanding_by_process(found, find_buckets(marks, found, collectives), collectives)
    pids = {key.link: {k.pid for k, _ in lanes if k.link == key.link} for key, _ in lanes}
    rates = {LinkKey(device.netns, device.device): device.line_rate for device in meta.devices}
    ranks = ranks_by_pid(meta.targets)
    links = tuple(
        LinkNow(
            key=key,
            ranks=tuple(sorted({ranks[pid] for pid in pids.get(key, ()) if pid in ranks})),
            line_rate=rates.get(key, UNKNOWN_RATE),
            transmitted=_way(lanes, key, TRANSMIT),
            received=_way(lanes, key, RECEIVE),
            states=_states(link_states(found, outstanding, sorted(pids.get(key, ())))),
        )
        for key in dict.fromkeys([*rates, *pids])
    )
    return Glance(trail, links, _last_bandwidths(trail, collectives, meta.targets))


def empty_trail() -> Trail:
    """Return the trail of a recording that just began."""
    return Trail(**{name: np.zeros(0, np.int64) for name in Trail.__dataclass_fields__})


def _continue(trail: Trail, found: Iterations, marks: Marks, steps: Mapping[int, int]) -> Trail:
    """Put what was found at the end of the trail; where both know an iteration, the newer look is right."""
    parts = []
    for pid in dict.fromkeys([*np.unique(trail.pid).tolist(), *np.unique(found.pid).tolist()]):
        new, old = found.where(found.pid == pid), trail.of(pid)
        if len(new):
            old = old.where(old.begin_ns < new.begin_ns[0])
            waits = marks.where(marks.pid == pid).times(MarkKind.DDP_WAIT)
            later = len(waits) - np.searchsorted(waits, new.wait_ns, "right")
            number = steps.get(pid, len(waits)) - later
            numbered = Trail(**{name: getattr(new, name) for name in Iterations.__dataclass_fields__}, number=number)
            old = concatenate(Trail, [old, numbered])
        parts.append(old.where(np.arange(max(0, len(old) - HISTORY), len(old))))
    return concatenate(Trail, parts)


def _way(lanes: Mapping[tuple[LaneKey, int], Bins], link: LinkKey, direction: int) -> Bins | None:
    return combine([bins for (key, way), bins in lanes.items() if key.link == link and way == direction])


def _states(states: States) -> States | None:
    return states if len(states.window) else None


def _last_bandwidths(trail: Trail, collectives: Collectives, targets: Sequence[Target]) -> dict[int, Bandwidths]:
    size = world_size(targets)
    result = {}
    for pid in np.unique(collectives.pid).tolist():
        last = trail.of(pid).where(slice(-1, None))  # type: ignore[arg-type]
        if len(last):
            result[pid] = rank_bandwidths(collectives.where(collectives.pid == pid), last, size, None)
    return result
