"""What is going on right now: the same conclusions, over the last part of a recording that is still growing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.account.idle import States, link_states
from netprof.analysis.events.buckets import find_buckets, outstanding_by_process
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.iterations import FoundIterations, Iterations
from netprof.analysis.findings.bandwidth import Bandwidths, rank_bandwidths
from netprof.analysis.findings.communication import all_collectives, outstanding_without_ddp
from netprof.analysis.findings.links import UNKNOWN_RATE
from netprof.analysis.findings.ranks import ranks_by_pid
from netprof.analysis.result import Analysis
from netprof.analysis.tables.columns import Int64, column, concatenate, int64_column
from netprof.analysis.tables.flow_table import LaneKey, LinkKey
from netprof.analysis.tables.marks import Marks
from netprof.analysis.wire.bins import Bins, combine
from netprof.model import LineRate, Meta
from netprof.schema import RECEIVE, TRANSMIT, GpuMetric, MarkKind

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
    process's last whole iteration. `gpus` are the latest values of table `gpu` for each GPU as a whole.
    """

    meta: Meta
    through_ns: int
    window_ns: int
    trail: Trail
    ranks: Mapping[int, int]  # pid to rank
    links: tuple[LinkNow, ...]
    last_bandwidths: Mapping[int, Bandwidths]
    analysis: Analysis | None
    gpus: Mapping[int, Mapping[GpuMetric, float]]


@dataclass(frozen=True, eq=False)
class Doings:
    """What the ranks on each link were doing lately, and the all-reduces of each process's last whole iteration."""

    states: Mapping[LinkKey, States]
    last_bandwidths: Mapping[int, Bandwidths]


NO_DOINGS = Doings({}, {})
"""Nothing known yet."""


def doings(found: FoundIterations, marks: Marks, pids: Mapping[LinkKey, Sequence[int]], size: int | None) -> Doings:
    """Return what the processes on each link did in the time of `marks`, in which iterations were `found`.

    `size` is the number of ranks.
    """
    iterations, collectives = found.iterations, all_collectives(marks, size).collectives
    without_ddp = outstanding_without_ddp(marks, collectives, found.stepped)
    buckets = find_buckets(marks, iterations, collectives)
    outstanding = outstanding_by_process(iterations, buckets, collectives, without_ddp)
    states = {key: link_states(iterations, outstanding, own) for key, own in pids.items()}
    return Doings(
        states={key: value for key, value in states.items() if len(value.window)},
        last_bandwidths=_last_bandwidths(iterations, collectives, size),
    )


def links_now(meta: Meta, lanes: Mapping[tuple[LaneKey, int], Bins], known: Doings) -> tuple[LinkNow, ...]:
    """Return the last seconds of every device that the recording watches or that carried a byte in them."""
    pids = pids_by_link(lanes)
    rates = {LinkKey(device.netns, device.device): device.line_rate for device in meta.devices}
    ranks = ranks_by_pid(meta.targets)
    return tuple(
        LinkNow(
            key=key,
            ranks=tuple(sorted({ranks[pid] for pid in pids.get(key, ()) if pid in ranks})),
            line_rate=rates.get(key, UNKNOWN_RATE),
            transmitted=_way(lanes, key, TRANSMIT),
            received=_way(lanes, key, RECEIVE),
            states=known.states.get(key),
        )
        for key in dict.fromkeys([*rates, *pids])
    )


def pids_by_link(lanes: Mapping[tuple[LaneKey, int], Bins]) -> dict[LinkKey, list[int]]:
    """Return the processes that moved a byte over each device."""
    found: dict[LinkKey, list[int]] = {}
    for key, _ in lanes:
        if key.pid not in found.setdefault(key.link, []):
            found[key.link].append(key.pid)
    return found


def latest_of_gpus(table: Any) -> dict[int, dict[GpuMetric, float]]:
    """Return each GPU's latest value of every metric that is the whole GPU's; `table` are rows of table `gpu`."""
    gpu, pid, metric = (int64_column(table, name) for name in ("gpu", "pid", "metric"))
    value = column(table, "value")
    known = {int(one) for one in GpuMetric}
    latest: dict[int, dict[GpuMetric, float]] = {}
    for row in np.argsort(int64_column(table, "time_ns"), kind="stable"):
        if pid[row] == 0 and metric[row] in known:
            latest.setdefault(int(gpu[row]), {})[GpuMetric(int(metric[row]))] = float(value[row])
    return dict(sorted(latest.items()))


def empty_trail() -> Trail:
    """Return the trail of a recording that just began."""
    return Trail(**{name: np.zeros(0, np.int64) for name in Trail.__dataclass_fields__})


def continue_trail(trail: Trail, found: Iterations, marks: Marks, steps: Mapping[int, int]) -> Trail:
    """Put the iterations found in `marks` at the end of the trail; where both know one, the newer look is right.

    `steps` counts each process's `ddp_wait` marks since the attach.
    """
    parts = []
    for pid in dict.fromkeys([*np.unique(trail.pid).tolist(), *np.unique(found.pid).tolist()]):
        new, old = found.where(found.pid == pid), trail.of(pid)
        if len(new):
            old = old.where(old.begin_ns < new.begin_ns[0])
            number = _numbers(new, old, marks.where(marks.pid == pid).times(MarkKind.DDP_WAIT), steps.get(pid, 0))
            numbered = Trail(**{name: getattr(new, name) for name in Iterations.__dataclass_fields__}, number=number)
            old = concatenate(Trail, [old, numbered])
        parts.append(old.where(np.arange(max(0, len(old) - HISTORY), len(old))))
    return concatenate(Trail, parts)


def _numbers(new: Iterations, old: Trail, waits: Int64, steps: int) -> Int64:
    """Number iterations by their process's `ddp_wait` marks, `steps` so far; where it has none, go on counting."""
    if steps:
        return np.asarray(steps - (len(waits) - np.searchsorted(waits, new.wait_ns, "right")))
    return np.arange(len(new)) + (int(old.number[-1]) + 1 if len(old) else 1)


def _way(lanes: Mapping[tuple[LaneKey, int], Bins], link: LinkKey, direction: int) -> Bins | None:
    return combine([bins for (key, way), bins in lanes.items() if key.link == link and way == direction])


def _last_bandwidths(found: Iterations, collectives: Collectives, size: int | None) -> dict[int, Bandwidths]:
    result = {}
    for pid in np.unique(collectives.pid).tolist():
        last = found.where(np.flatnonzero(found.pid == pid)[-1:])
        if len(last):
            result[pid] = rank_bandwidths(collectives.where(collectives.pid == pid), last, size, None)
    return result
