"""What is going on right now: the same conclusions as a report's, over the last part of a recording that goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from netprof.analysis.account.idle import CauseTimes
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.links.links import UNKNOWN_RATE, links_by_rank
from netprof.analysis.findings.stalls.hang import Hang
from netprof.analysis.findings.stalls.stall import Stall
from netprof.analysis.findings.stragglers.stacks import is_native
from netprof.analysis.findings.stragglers.stragglers import Straggler
from netprof.analysis.live.past_iterations import PastIterations
from netprof.analysis.section import Analysis
from netprof.analysis.tables.columns import Int64, by_pid, column, concatenate, int64_column, text_column
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals
from netprof.analysis.tables.marks import Marks
from netprof.analysis.wire.bins import Bins
from netprof.model import Host, LineRate, Meta
from netprof.schema import RECEIVE, TRANSMIT, UNKNOWN_RANK, GpuMetric, MarkKind

_EARLY_NS = 10 * 10**9
_STRIPS_BEHIND_NS = 4 * 10**9
"""How old a strip may be before one without causes is shown instead."""


@dataclass(frozen=True, eq=False)
class LinkNow:
    """The last seconds of one device: bytes per bin each way, and when which cause of idleness applied, if known.

    `unknown` is the time, by direction, in which bytes passed at unknown moments.
    """

    key: LinkKey
    ranks: tuple[int, ...]
    line_rate: LineRate
    transmitted: Bins | None
    received: Bins | None
    causes: CauseTimes | None
    unknown: tuple[Intervals, Intervals] = (NOTHING, NOTHING)


@dataclass(frozen=True)
class LastStack:
    """What a process executed when it was sampled last: its frames, the outermost first."""

    time_ns: int
    frames: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Recent:
    """What a live view draws.

    `through_ns` is how far the recording has come. `analysis` is over the `window_ns` before that, or less where it
    is made less often; None until there is something to conclude from. `gpus` are the latest values of table `gpu` for
    each GPU as a whole. `stall` is set while nothing moves, `hang` where that is all that was ever seen, `stragglers`
    are those that hold the job up in the last seconds. `hosts` are those that recorded. `stacks` are the last ones of
    the processes that were sampled.
    Why links are idle is known until `idle_through_ns`. Of those `launching` no more is seen: their phases are unknown.
    """

    meta: Meta
    through_ns: int
    window_ns: int
    past: PastIterations
    ranks: Mapping[int, int]  # pid to rank
    links: tuple[LinkNow, ...]
    analysis: Analysis | None
    gpus: Mapping[int, Mapping[GpuMetric, float]]
    stall: Stall | None = None
    hang: Hang | None = None
    stragglers: tuple[Straggler, ...] = ()
    hosts: tuple[Host, ...] = ()
    stacks: Mapping[int, LastStack] = field(default_factory=dict)
    idle_through_ns: int = 0
    launching: frozenset[int] = frozenset()

    @property
    def strips_through_ns(self) -> int:
        """Where the strips of links end: where it is known why they are idle, unless that is long ago."""
        is_new = 0 <= self.through_ns - self.idle_through_ns < _STRIPS_BEHIND_NS
        return self.idle_through_ns if is_new else self.through_ns

    @property
    def is_early(self) -> bool:
        """Whether it is too early to say that there are no iterations."""
        return len(self.past) == 0 and self.through_ns - self.meta.started_ns < _EARLY_NS

    @property
    def has_many_hosts(self) -> bool:
        """Whether several hosts recorded the job."""
        return len(self.hosts) > 1

    @cached_property
    def host_of(self) -> Mapping[int, Host]:
        """The host of each process, where several hosts recorded the job."""
        return {pid: host for host in self.hosts for pid in host.pids} if self.has_many_hosts else {}

    @cached_property
    def gpu_names(self) -> Mapping[int, str]:
        """What each GPU is called: its number, where several hosts recorded the job the host's own and the host."""
        gpus = [(host.name, gpu.index) for host in self.hosts for gpu in host.meta.gpus]
        names = [f"{host}: {own_index}" if self.has_many_hosts else str(own_index) for host, own_index in gpus]
        return dict(zip((gpu.index for gpu in self.meta.gpus), names, strict=False))

    def name_of(self, pid: int) -> str:
        """Return a process's rank, or where nothing says it the number that it has on its host."""
        rank = self.ranks.get(pid, UNKNOWN_RANK)
        host = self.host_of.get(pid)
        return str(rank) if rank != UNKNOWN_RANK else f"p{pid if host is None else host.pids[pid]}"


@dataclass(frozen=True, eq=False)
class LastSeen:
    """Why links were idle until `through_ns`: what takes longer to find, and so is looked at less often."""

    causes: Mapping[LinkKey, CauseTimes]
    through_ns: int


NOTHING_SEEN = LastSeen({}, 0)
"""Nothing known yet."""


def last_seen(evidence: Evidence, through_ns: int) -> LastSeen:
    """Return what the processes on each link waited for until now."""
    until_now = evidence.with_iterations(with_unfinished(evidence.iterations, evidence.marks, through_ns))
    causes = {key: until_now.cause_times(key) for key in evidence.links.lanes.links}
    known = {key: times for key, times in causes.items() if times is not None}
    return LastSeen(known, through_ns)


def links_now(evidence: Evidence, seen: LastSeen) -> tuple[LinkNow, ...]:
    """Return the last seconds of every device that the recording watches or that carried a byte in them."""
    lanes, ranks = evidence.links.lanes, evidence.ranks
    rates = {key: past.changes[-1] for key, past in evidence.pasts.items()}
    return tuple(
        LinkNow(
            key=key,
            ranks=tuple(sorted({ranks[pid] for pid in lanes.pids_of(key) if pid in ranks})),
            line_rate=LineRate(now.line_rate_bps, now.line_rate_source) if (now := rates.get(key)) else UNKNOWN_RATE,
            transmitted=lanes.of_link(key, TRANSMIT),
            received=lanes.of_link(key, RECEIVE),
            causes=seen.causes.get(key),
            unknown=(evidence.links.unknown(key, TRANSMIT), evidence.links.unknown(key, RECEIVE)),
        )
        for key in links_by_rank(evidence)
    )


def latest_of_gpus(table: Any) -> dict[int, dict[GpuMetric, float]]:
    """Return each GPU's latest value of every metric that is the whole GPU's; `table` are rows of table `gpu`."""
    gpu, pid, metric = (int64_column(table, name) for name in ("gpu", "pid", "metric"))
    value = column(table, "value")
    known = set(map(int, GpuMetric))
    latest: dict[int, dict[GpuMetric, float]] = {}
    for row in np.argsort(int64_column(table, "time_ns"), kind="stable"):
        if pid[row] == 0 and metric[row] in known:
            latest.setdefault(int(gpu[row]), {})[GpuMetric(int(metric[row]))] = float(value[row])
    return dict(sorted(latest.items()))


def latest_stacks(table: Any) -> dict[int, LastStack]:
    """Return the last stack of each process that was sampled, of Python if there is one; rows of table `stacks`."""
    pid, time_ns, frames = int64_column(table, "pid"), int64_column(table, "time_ns"), text_column(table, "frames")
    rows = sorted(range(len(frames)), key=lambda row: (not is_native(frames[row]), time_ns[row]))
    return {int(pid[row]): LastStack(int(time_ns[row]), tuple(frames[row].split(";"))) for row in rows}


def with_unfinished(whole: Iterations, marks: Marks, through_ns: int) -> Iterations:
    """Add to each process's whole iterations what follows the last one until `through_ns`; by process and time.

    It is for drawing: a bucket that is still to be launched in it, or to arrive, cannot be known.
    """
    parts = []
    for pid, iterations in by_pid(whole):
        parts.append(iterations)
        if iterations.end_ns[-1] < through_ns:
            parts.append(_unfinished(iterations.where(np.array([len(iterations) - 1])), marks.of_pid(pid), through_ns))
    return concatenate(Iterations, parts)


def _unfinished(last: Iterations, marks: Marks, through_ns: int) -> Iterations:
    begin_ns = int(last.end_ns[0])
    since = marks.where((marks.time_ns >= begin_ns) & (marks.time_ns <= through_ns))
    wait_ns = _first(since.times(MarkKind.DDP_WAIT), through_ns)
    unpacked = since.times(MarkKind.BUCKET_DONE)
    stats = since.times(MarkKind.DDP_STATS)
    done_ns = _first(stats[stats > max([wait_ns, *unpacked[-1:].tolist()])], through_ns)
    backward_ns = min(_first(since.times(MarkKind.DDP_BACKWARD), through_ns), wait_ns)
    edges = {"backward_ns": backward_ns, "wait_ns": wait_ns, "done_ns": done_ns, "end_ns": through_ns}
    return replace(last, begin_ns=last.end_ns, **{name: np.array([at_ns]) for name, at_ns in edges.items()})


def _first(times: Int64, otherwise: int) -> int:
    return int(times[0]) if len(times) else otherwise
