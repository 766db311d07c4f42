"""What a digest holds beyond findings, gathered from a recording or, of a long one, from each of its pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.account.account import activities_of, on_wire
from netprof.analysis.account.held_up import Windows
from netprof.analysis.digest.digest import WAITED_NAMES, BoundedSteps, CollectiveTimes, TcpClocks, Waited, WindowTimes
from netprof.analysis.digest.spans import NO_SPANS, FoundSpans, find_spans, merge_spans, with_surely
from netprof.analysis.digest.ways import NO_WAYS, FoundWays, find_ways, merge_ways
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.bounds.bounds import BOUNDS
from netprof.analysis.findings.bounds.bounds_evidence import at_least, at_most
from netprof.analysis.findings.stragglers.doing import NO_TIMES, AllTimes, TimesOfPieces, times_of_ranks
from netprof.analysis.findings.transport.transport_reason import main_samples
from netprof.analysis.findings.waiting.open_waits import OpenWaitsOfHost, open_waits_of_host
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.findings.waiting.waiting_by_iteration import WaitingByIteration, waiting_by_iteration
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import UNKNOWN, Columns, Int64, concatenate, empty
from netprof.analysis.tables.flow_table import LinkKey
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
    windows: WindowTimes
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
    empty(WindowTimes),
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
    surely, rows = empty(Waited), evidence.bounds.rows
    if len(least.iterations):
        surely = _rows(waiting_by_iteration(least.iterations, least.account.around))
    rows = rows.where(evidence.piece.owns(rows.begin_ns))
    steps = BoundedSteps(rows.pid, rows.begin_ns, rows.end_ns, rows.least_ns, rows.most_ns, rows.exact)
    found = _gather(most)
    spans = with_surely(found.spans, least.exposed_in_sight, evidence.piece.time)
    return replace(found, surely=surely, steps=steps, spans=spans)


def _gather(evidence: Evidence) -> Gathered:
    found = _NOTHING
    if len(evidence.iterations):
        table = waiting_by_iteration(evidence.iterations, evidence.account.around)
        found = replace(found, waited=_rows(table), windows=WindowTimes(table.begin_ns, table.end_ns))
    if len(evidence.hosts) > 1:
        return found
    windows = Windows(found.windows.begin_ns, found.windows.end_ns)
    pids = np.unique(found.waited.pid).tolist()
    return replace(
        found,
        times=times_of_ranks(evidence, pids, windows) if len(windows) else NO_TIMES,
        collectives=_collectives(evidence),
        seconds=_seconds(evidence),
        spans=find_spans(evidence),
        tcp_clocks=_tcp_clocks(evidence),
        ways=find_ways(evidence, windows.begin_ns, windows.end_ns),
        open_waits=open_waits_of_host(evidence),
    )


def _rows(table: WaitingByIteration) -> Waited:
    pids, count = len(table.pids), len(table)
    causes = {
        name: table.waited_ns[:, :, number].reshape(-1) for number, name in enumerate(WAITED_NAMES)
    }  # fmt: skip
    window = np.tile(np.arange(count), pids)
    return Waited(np.repeat(table.pids, count), window, **causes, late_for_ns=table.late_for_ns.reshape(-1))


def _collectives(evidence: Evidence) -> CollectiveTimes:
    every = evidence.collectives
    group = np.where(every.group == UNKNOWN, UNKNOWN, every.group & _OPAQUE)
    nothing = np.full(len(every), UNKNOWN)
    columns = {name: getattr(every, name, nothing) for name in CollectiveTimes.__dataclass_fields__}
    sources = replace(evidence.account_sources, collectives=every, members=evidence.members)
    seen = on_wire(sources, activities_of(sources))
    columns |= {"another_way": seen.another_way.astype(np.int64), "moved_ns": np.maximum(seen.moved_ns, UNKNOWN)}
    found = CollectiveTimes(**columns | {"group": group})
    return found if evidence.piece.is_all else found.where(evidence.piece.owns(found.begin_ns))


def _tcp_clocks(evidence: Evidence) -> TcpClocks:
    samples = main_samples(evidence)
    if samples is None:
        return empty(TcpClocks)
    found = samples.in_bins(_CLOCK_BIN_NS)
    clocks = np.rint(found.clocks).astype(np.int64)
    return TcpClocks(found.begin_ns, found.end_ns, found.watched_ns, *clocks).where(evidence.piece.owns(found.end_ns))


def _seconds(evidence: Evidence) -> dict[LinkKey, Seconds]:
    return {link: found for link in evidence.links.lanes.links if len(found := _of_link(evidence, link))}


def _of_link(evidence: Evidence, link: LinkKey) -> Seconds:
    amounts = []
    for way in (TRANSMIT, RECEIVE):
        bins = evidence.links.lanes.of_link(link, way)
        if bins is None:
            amounts.append((np.zeros(0, np.int64), np.zeros(0, np.int64)))
            continue
        own = np.flatnonzero(evidence.piece.owns(bins.begin_ns))
        amounts.append((bins.begin_ns[own] // _SECOND_NS, bins.wire_bytes[own].astype(np.int64)))
    second = np.unique(np.concatenate([each for each, _ in amounts]))
    tx, rx = (_added(second, *each) for each in amounts)
    return Seconds(second * _SECOND_NS, tx, rx)


def _added(second: Int64, own: Int64, amount: Int64) -> Int64:
    found = np.zeros(len(second), np.int64)
    np.add.at(found, np.searchsorted(second, own), amount)
    return found


def _merge(parts: Sequence[Gathered], whole: Analysis) -> Gathered:
    before, waited, surely = 0, [], []
    for part in parts:
        waited.append(replace(part.waited, window=part.waited.window + before))
        surely.append(replace(part.surely, window=part.surely.window + before))
        before += len(part.windows)
    links = dict.fromkeys(link for part in parts for link in part.seconds)
    return Gathered(
        concatenate(Waited, waited),
        concatenate(Waited, surely),
        concatenate(BoundedSteps, [part.steps for part in parts]),
        concatenate(WindowTimes, [part.windows for part in parts]),
        TimesOfPieces([part.times for part in parts], np.cumsum([0, *(len(part.windows) for part in parts)])),
        concatenate(CollectiveTimes, [part.collectives for part in parts]),
        {link: _in_one([part.seconds[link] for part in parts if link in part.seconds]) for link in links},
        merge_spans([part.spans for part in parts]),
        concatenate(TcpClocks, [part.tcp_clocks for part in parts]),
        merge_ways([part.ways for part in parts]),
        parts[-1].open_waits,
    )


def _in_one(parts: Sequence[Seconds]) -> Seconds:
    """Return the seconds of consecutive pieces; the one in which a piece ends is in two."""
    every = concatenate(Seconds, list(parts))
    second = np.unique(every.begin_ns)
    return Seconds(second, *(_added(second, every.begin_ns, each) for each in (every.tx_bytes, every.rx_bytes)))


GATHERED = Section("gathered", _conclude, ("marks", "wire", "flows"), merge=_merge)
"""What a digest holds beyond what a report says."""
