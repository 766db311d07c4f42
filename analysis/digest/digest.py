"""What a digest consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.digest.spans import Spans, SpanSet
from netprof.analysis.digest.ways import WayBusy, WayOut
from netprof.analysis.events.iterations import Dropped, IterationTimes
from netprof.analysis.findings.collectives.ranks import RankSummary
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.findings.recorded import Recorded
from netprof.analysis.findings.waiting.open_waits import OpenWaitsOfHost
from netprof.analysis.hosts.host_streams import Passages
from netprof.analysis.inference.sources import InferredSummary
from netprof.analysis.tables.columns import Columns, Float64, Int64
from netprof.analysis.tables.intervals import Windows
from netprof.model import Host

WAITED_NAMES = tuple(f"{cause.name}_ns" for cause in WAIT_CAUSES)
"""The columns of `Waited` that are causes, in the order of WAIT_CAUSES."""


def _by_cause(kind: type[Columns]) -> type[Columns]:
    """Give a table a column for each cause of waiting."""
    kind.__annotations__.update(dict.fromkeys(WAITED_NAMES, Int64))
    return kind


@dataclass(frozen=True, eq=False)
@_by_cause
class Waited(Columns):
    """How long a process waited for what in an iteration of the process that has the most; ns.

    `window` is the number of that iteration; `late_for_ns` is for how long at most others waited because it was late.
    """

    pid: Int64
    window: Int64
    late_for_ns: Int64


@dataclass(frozen=True, eq=False)
class BoundedSteps(Columns):
    """The steps of processes that are only seen to launch, and what each waits in one at least and at most; ns.

    `exact` is 1 where a profile of the job tells it.
    """

    pid: Int64
    begin_ns: Int64
    end_ns: Int64
    least_ns: Int64
    most_ns: Int64
    exact: Int64


@dataclass(frozen=True, eq=False)
class Did(Columns):
    """What is known of a process's time in an iteration: as `doing.Spent`, NaN where nothing.

    `window` counts the rows of table `windows`.
    """

    pid: Int64
    window: Int64
    forward_ns: Float64
    backward_ns: Float64
    rest_ns: Float64
    running_ns: Float64
    cpu_wait_ns: Float64
    stopped_ns: Float64
    stolen_ns: Float64
    written_bytes: Float64
    collecting_ns: Float64
    throttled_ns: Float64
    in_file_ns: Float64
    in_pipe_ns: Float64
    profiled: Float64

    @property
    def amounts(self) -> Float64:
        """All of that; shape (len(doing.Spent), rows)."""
        return np.stack([getattr(self, name) for name in self.__dataclass_fields__ if name not in ("pid", "window")])


@dataclass(frozen=True, eq=False)
class CollectiveTimes(Columns):
    """The collectives that a process saw begin and end, as `Collectives`; ns, bytes.

    `another_way` is 1 where hardly any byte of one passed a wire that was watched, and `moved_ns` as `OnWire` has it,
    UNKNOWN where nothing moved.
    """

    pid: Int64
    group: Int64
    number: Int64
    ranks: Int64
    backend: Int64
    kind: Int64
    bytes: Int64
    posted_ns: Int64
    begin_ns: Int64
    end_ns: Int64
    another_way: Int64
    moved_ns: Int64
    root: Int64
    sequence: Int64


@dataclass(frozen=True, eq=False)
class TcpClocks(Columns):
    """For how long TCP's clocks of the host's main flows ran, as `ClockSamples`: put together in short bins; us."""

    begin_ns: Int64
    end_ns: Int64
    watched_ns: Int64
    busy_us: Int64
    receiver_us: Int64
    sender_us: Int64
    held_back_us: Int64
    full_us: Int64


@dataclass(frozen=True, eq=False)
class LinkSeconds(Columns):
    """The job's bytes on a link of the digest's `links` in one second from `begin_ns` on, headers included."""

    link: Int64
    begin_ns: Int64
    tx_bytes: Int64
    rx_bytes: Int64


OF_ITERATIONS = ("inferred", "failures", "dropped", "models", "accumulates", "forward_unseen", "only_launch")
"""What of `HostPart` is as `IterationsFinding` has it."""


@dataclass(frozen=True)
class HostPart:
    """What a digest says of its host beside the tables; `made` is in which making it was made.

    `ends` are the addresses and ports of the flows of table `passages`, `spans` what the sets of time of table `spans`
    are of, `rtt_ns` the longest round trip and the median one, and `ways` those of table `way_busy`. `told` says that
    marks tell iterations; they, what was `inferred` or dropped and `only_launch` are as `IterationsFinding` has it.

    `waits_known` says that it is known what the processes wait for, `bounded` that all are only seen to launch: then
    there are bounds for it, and iterations are the steps of table `steps`; `unbounded` has the processes without bounds
    and why, `on_gpu` those that compute on a GPU, `profiled` those with a profile. In `open_waits` the recording ends.
    """

    made: str
    host: Host
    span_ns: tuple[int, int]
    told_ranks: Mapping[int, int]
    ranks: tuple[RankSummary, ...]
    links: tuple[LinkSummary, ...]
    unbounded: Mapping[int, str]
    on_gpu: tuple[int, ...]
    profiled: tuple[int, ...]
    ends: Mapping[int, tuple[tuple[str, int], tuple[str, int]]]
    spans: tuple[SpanSet, ...]
    rtt_ns: tuple[int, int]
    ways: tuple[WayOut, ...]
    world_size: int | None
    told: bool
    inferred: InferredSummary | None
    failures: tuple[str, ...]
    dropped: Dropped
    stepped: tuple[int, ...]
    models: int
    accumulates: bool
    forward_unseen: bool
    recorded: Recorded
    enqueued: bool
    collectives_seen: bool
    nccl_is_used: bool
    stalled: str | None
    damage: tuple[str, ...]
    still_recording: bool
    waits_known: bool
    bounded: bool
    only_launch: bool
    open_waits: OpenWaitsOfHost | None = None


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of one host's digest, a file each; of the `passages` some, for clocks to be compared by.

    Where there are only bounds, `waiting` is what is waited at most, by the steps that are `windows`, `surely` what is
    at least, and `collectives` are the last ones of the steps, from when they may begin until they are surely done.
    """

    iterations: IterationTimes
    waiting: Waited
    surely: Waited
    steps: BoundedSteps
    windows: Windows
    did: Did
    collectives: CollectiveTimes
    link_seconds: LinkSeconds
    passages: Passages
    spans: Spans
    tcp_clocks: TcpClocks
    way_busy: WayBusy


@dataclass(frozen=True, eq=False)
class Digest:
    """The digest of one host."""

    host: HostPart
    tables: Tables
