"""What a digest holds, gathered from a recording or, of a long one, from each of its pieces, and the digest of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.account.account import activities_of, on_wire
from netprof.analysis.declared import merged
from netprof.analysis.digest.digest import (
    OF_ITERATIONS,
    WAITED_NAMES,
    BoundedSteps,
    CollectiveTimes,
    Did,
    Digest,
    HostPart,
    LinkSeconds,
    Tables,
    TcpClocks,
    Waited,
)
from netprof.analysis.digest.spans import NO_SPANS, FoundSpans, as_table, find_spans, merge_spans, with_surely
from netprof.analysis.digest.ways import NO_WAYS, FoundWays, find_ways, merge_ways, ways_table
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.bounds.bounds import BOUNDS
from netprof.analysis.findings.bounds.bounds_evidence import at_least, at_most
from netprof.analysis.findings.collectives.collectives import COLLECTIVES
from netprof.analysis.findings.collectives.nccl import NCCL
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.recording.recording import RECORDING
from netprof.analysis.findings.stalls.stall import STALLED_AT_END
from netprof.analysis.findings.stragglers.doing import NO_TIMES, AllTimes, Spent, TimesOfPieces, times_of_ranks
from netprof.analysis.findings.transport.transport_reason import main_samples
from netprof.analysis.findings.waiting.open_waits import OpenWaitsOfHost, open_waits_of_host
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.findings.waiting.waiting_by_iteration import WaitingByIteration, waiting_by_iteration
from netprof.analysis.hosts.clocks import backwards
from netprof.analysis.hosts.host_streams import HostStreams
from netprof.analysis.hosts.moved import to_reference
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import UNKNOWN, Columns, Int64, concatenate, empty
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import Windows, row_at
from netprof.model import Host
from netprof.schema import RECEIVE, TRANSMIT

_SECOND_NS = 10**9
_CLOCK_BIN_NS = 20_000_000
"""About how often TCP is asked for its clocks."""
_OPAQUE = (1 << 62) - 1
"""What is kept of an address: enough to tell communicators of a process apart."""


@dataclass(frozen=True, eq=False)
class Seconds(Columns):
    """A link's bytes by second."""

    begin_ns: Int64
    tx_bytes: Int64
    rx_bytes: Int64


@dataclass(frozen=True, eq=False)
class Gathered:
    """What the processes waited for in each of the iterations `windows`, their collectives, and each link's bytes.

    Of several hosts only what processes wait for is kept, which no host knows alone.
    Of processes that are only seen to launch all is as if they waited as long as they may; `surely` is what they do
    wait, and `steps` are the iterations.
    """

    waited: Waited
    surely: Waited
    steps: BoundedSteps
    windows: Windows
    times: AllTimes
    collectives: CollectiveTimes
    seconds: Mapping[LinkKey, Seconds]
    spans: FoundSpans
    tcp_clocks: TcpClocks
    ways: FoundWays
    open_waits: OpenWaitsOfHost | None = None


_NOTHING = Gathered(
    empty(Waited),
    empty(Waited),
    empty(BoundedSteps),
    empty(Windows),
    NO_TIMES,
    empty(CollectiveTimes),
    {},
    NO_SPANS,
    empty(TcpClocks),
    NO_WAYS,
)


def _conclude(analysis: Analysis) -> Gathered:
    evidence = analysis.evidence
    if analysis.of(BOUNDS) is None or analysis.of(WAITING) is not None:
        return _gather(evidence)
    most = at_most(evidence)
    least = at_least(evidence, most)
    surely = empty(Waited)
    if len(least.iterations):
        surely = _rows(waiting_by_iteration(least))
    rows = evidence.bounds.rows
    rows = rows.where(evidence.piece.owns(rows.begin_ns))
    steps = BoundedSteps(rows.pid, rows.begin_ns, rows.end_ns, rows.least_ns, rows.most_ns, rows.exact)
    gathered = _gather(most)
    spans = with_surely(gathered.spans, least.exposed_in_sight, evidence.piece.time)
    return replace(gathered, surely=surely, steps=steps, spans=spans)


def _gather(evidence: Evidence) -> Gathered:
    gathered = _NOTHING
    if len(evidence.iterations):
        table = waiting_by_iteration(evidence)
        gathered = replace(gathered, waited=_rows(table), windows=Windows(table.begin_ns, table.end_ns))
    if len(evidence.hosts) > 1:
        return gathered
    windows = gathered.windows
    pids = np.unique(gathered.waited.pid).tolist()
    return replace(
        gathered,
        times=times_of_ranks(evidence, pids, windows) if len(windows) else NO_TIMES,
        collectives=_collectives(evidence),
        seconds={link: each for link in evidence.links.lanes.links if len(each := _of_link(evidence, link))},
        spans=find_spans(evidence),
        tcp_clocks=_tcp_clocks(evidence),
        ways=find_ways(evidence, windows.begin_ns, windows.end_ns),
        open_waits=open_waits_of_host(evidence),
    )


def _rows(table: WaitingByIteration) -> Waited:
    pids, count = len(table.pids), len(table)
    causes = {name: table.waited_ns[:, :, number].reshape(-1) for number, name in enumerate(WAITED_NAMES)}
    window = np.tile(np.arange(count), pids)
    return Waited(np.repeat(table.pids, count), window, table.late_for_ns.reshape(-1), **causes)


def _collectives(evidence: Evidence) -> CollectiveTimes:
    every = evidence.collectives
    group = np.where(every.group == UNKNOWN, UNKNOWN, every.group & _OPAQUE)
    nothing = np.full(len(every), UNKNOWN)
    columns = {name: getattr(every, name, nothing) for name in CollectiveTimes.__dataclass_fields__}
    sources = replace(evidence.account_sources, collectives=every, members=evidence.members)
    seen = on_wire(sources, activities_of(sources))
    columns |= {"another_way": seen.another_way.astype(np.int64), "moved_ns": np.maximum(seen.moved_ns, UNKNOWN)}
    collectives = CollectiveTimes(**columns | {"group": group})
    return collectives if evidence.piece.is_all else collectives.where(evidence.piece.owns(collectives.begin_ns))


def _tcp_clocks(evidence: Evidence) -> TcpClocks:
    samples = main_samples(evidence)
    if samples is None:
        return empty(TcpClocks)
    binned = samples.in_bins(_CLOCK_BIN_NS)
    clocks = np.rint(binned.clocks).astype(np.int64)
    times = TcpClocks(binned.begin_ns, binned.end_ns, binned.watched_ns, *clocks)
    return times.where(evidence.piece.owns(binned.end_ns))


def _of_link(evidence: Evidence, link: LinkKey) -> Seconds:
    parts = []
    for way in (TRANSMIT, RECEIVE):
        bins = evidence.links.lanes.of_link(link, way)
        if bins is not None:
            rows = np.flatnonzero(evidence.piece.owns(bins.begin_ns))
            amounts = np.zeros((2, len(rows)), np.int64)
            amounts[way] = bins.wire_bytes[rows]
            parts.append(Seconds(bins.begin_ns[rows] // _SECOND_NS * _SECOND_NS, *amounts))
    return _in_one(parts)


def _merge(parts: Sequence[Gathered], whole: Analysis) -> Gathered:
    before = np.cumsum([0, *(len(part.windows) for part in parts)])

    def numbered_on(tables: Sequence[Waited]) -> Waited:
        pairs = zip(tables, before[:-1], strict=True)
        return concatenate(Waited, [replace(table, window=table.window + windows) for table, windows in pairs])

    return Gathered(
        numbered_on([part.waited for part in parts]),
        numbered_on([part.surely for part in parts]),
        concatenate(BoundedSteps, [part.steps for part in parts]),
        concatenate(Windows, [part.windows for part in parts]),
        TimesOfPieces([part.times for part in parts], before),
        concatenate(CollectiveTimes, [part.collectives for part in parts]),
        merged([part.seconds for part in parts], _in_one),
        merge_spans([part.spans for part in parts]),
        concatenate(TcpClocks, [part.tcp_clocks for part in parts]),
        merge_ways([part.ways for part in parts]),
        parts[-1].open_waits,
    )


def _in_one(parts: Sequence[Seconds]) -> Seconds:
    """Return the seconds of both ways and of consecutive pieces; the one in which a piece ends is in two."""
    every = concatenate(Seconds, list(parts))
    second, row = np.unique(every.begin_ns, return_inverse=True)
    amounts = np.zeros((2, len(second)), np.int64)
    for amount, each in zip(amounts, (every.tx_bytes, every.rx_bytes), strict=True):
        np.add.at(amount, row.reshape(-1), each)
    return Seconds(second, *amounts)


GATHERED = Section("gathered", _conclude, ("marks", "wire", "flows"), merge=_merge)
"""What a digest holds beyond what a report says."""


def digest_of(analysis: Analysis, sampled: HostStreams) -> Digest:
    """Return the digest of a host, of whose recording GATHERED has to be concluded too.

    `sampled` is what is kept of its streams, by which its clock is compared with others'.
    """
    evidence, gathered, links = analysis.evidence, analysis.of(GATHERED), analysis.of(LINKS)
    iterations, recording, nccl = analysis.of(ITERATIONS), analysis.of(RECORDING), analysis.of(NCCL)
    waiting, bounds = analysis.of(WAITING), analysis.of(BOUNDS)
    bounds = bounds if waiting is None else None
    sets, spans = as_table(gathered.spans, [each.key for each in links])
    ways, way_busy = ways_table(gathered.ways)
    host = HostPart(
        made="0" * 16,
        host=_slim(evidence.hosts[0], {each.pid for each in analysis.of(RANKS)}),
        span_ns=_span(analysis),
        told_ranks=dict(evidence.ranks),
        ranks=tuple(analysis.of(RANKS)),
        links=tuple(links),
        unbounded={} if bounds is None else dict(bounds.reasons),
        on_gpu=() if bounds is None else tuple(sorted(bounds.on_gpu)),
        profiled=() if bounds is None else tuple(sorted(bounds.profiled)),
        ends=sampled.ends,
        spans=sets,
        rtt_ns=gathered.spans.rtt_ns,
        ways=ways,
        world_size=evidence.world_size,
        told=iterations.count is not None,
        stepped=tuple(iterations.stepped),
        **{name: getattr(iterations, name) for name in OF_ITERATIONS},
        recorded=recording.recorded,
        enqueued=analysis.of(COLLECTIVES).only_enqueued,
        collectives_seen=nccl.collectives_seen,
        nccl_is_used=nccl.is_used,
        stalled=analysis.of(STALLED_AT_END),
        damage=recording.damage,
        still_recording=recording.still_recording,
        waits_known=waiting is not None,
        bounded=bounds is not None,
        open_waits=gathered.open_waits,
    )
    tables = Tables(
        iterations=iterations.times,
        waiting=gathered.waited,
        surely=gathered.surely,
        steps=gathered.steps,
        windows=gathered.windows,
        did=_did(gathered.times),
        collectives=gathered.collectives,
        link_seconds=_link_seconds(gathered, [each.key for each in links]),
        passages=sampled.passages,
        spans=spans,
        tcp_clocks=gathered.tcp_clocks,
        way_busy=way_busy,
    )
    return Digest(host, tables)


def with_waiting_of_job(digest: Digest, host: Host, gathered: Gathered) -> Digest:
    """Return the digest of a host of a job with what its processes waited for as all traces together tell.

    `host` is what that is in the job, `gathered` is of the job.
    """
    windows, clock = digest.tables.windows, backwards(host.clock)
    begin_ns, end_ns = (to_reference(clock, each) for each in (gathered.windows.begin_ns, gathered.windows.end_ns))
    place = row_at(windows.begin_ns, windows.end_ns, (begin_ns + end_ns) // 2)

    def on_host(waited: Waited) -> Waited:
        rows = waited.where(np.isin(waited.pid, list(host.pids)) & (place[waited.window] >= 0))
        pids = np.array([host.pids[pid] for pid in rows.pid.tolist()], np.int64)
        return replace(rows, pid=pids, window=place[rows.window])

    tables = replace(digest.tables, waiting=on_host(gathered.waited), surely=on_host(gathered.surely))
    named = replace(digest.host, host=replace(digest.host.host, name=host.name, trace=host.trace))
    return Digest(named, tables)


def _slim(host: Host, wanted: set[int]) -> Host:
    """Return a host with only the processes that are `wanted`, and without counters: a machine has thousands."""
    pids: Mapping[int, int] = {pid: own_pid for pid, own_pid in host.pids.items() if pid in wanted}
    return replace(host, meta=replace(host.meta, series=()), pids=pids)


def _span(analysis: Analysis) -> tuple[int, int]:
    recording = analysis.evidence.recording
    if len(recording) == 0:
        return analysis.meta.started_ns, analysis.meta.started_ns
    return int(recording.begin_ns[0]), int(recording.end_ns[-1])


def _did(times: AllTimes) -> Did:
    parts = []
    for pid in times.pids:
        ns = times.of(pid).astype(np.float64)
        parts.append(Did(np.full(ns.shape[1], pid), np.arange(ns.shape[1]), *(ns[of] for of in Spent)))
    return concatenate(Did, parts)


def _link_seconds(gathered: Gathered, links: Sequence[LinkKey]) -> LinkSeconds:
    parts = []
    for number, link in enumerate(links):
        if (seconds := gathered.seconds.get(link)) is not None:
            place = np.full(len(seconds), number)
            parts.append(LinkSeconds(place, seconds.begin_ns, seconds.tx_bytes, seconds.rx_bytes))
    return concatenate(LinkSeconds, parts)
