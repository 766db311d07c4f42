"""The digests of a recording's hosts: what was concluded from it, cut by host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.account.held_up import Kind
from netprof.analysis.digest.digest import (
    Did,
    Digest,
    Held,
    HostPart,
    JobPart,
    LinkSeconds,
    Passed,
    PlacedLink,
    PlacedRank,
    Tables,
    Thing,
    WindowTimes,
)
from netprof.analysis.digest.gather import GATHERED, Gathered
from netprof.analysis.digest.passages import Sampled
from netprof.analysis.digest.spans import Spans, as_table
from netprof.analysis.digest.ways import ways_table
from netprof.analysis.findings.bounds import BOUNDS
from netprof.analysis.findings.checks import CHECKS
from netprof.analysis.findings.collectives import COLLECTIVES
from netprof.analysis.findings.doing import AllTimes, Of
from netprof.analysis.findings.flow_properties import FLOW_PROPERTIES
from netprof.analysis.findings.iterations import ITERATIONS
from netprof.analysis.findings.links import LINKS
from netprof.analysis.findings.nccl import NCCL
from netprof.analysis.findings.ranks import RANKS
from netprof.analysis.findings.recording import RECORDING
from netprof.analysis.findings.stall import STALLED_AT_END
from netprof.analysis.findings.stragglers import STRAGGLERS
from netprof.analysis.findings.stragglers_parts import StragglersParts
from netprof.analysis.findings.waiting import WAITING
from netprof.analysis.findings.waiting_finding import WaitingFinding
from netprof.analysis.section import Analysis
from netprof.analysis.tables.columns import concatenate, empty
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.wire.paths import PathKey
from netprof.model import Host, Meta


class _Owner:
    """Says on which host, by number, something of the job is; what is on none is on the first."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        several = len(hosts) > 1
        self._of_pid = {pid: number for number, host in enumerate(hosts) for pid in host.pids} if several else {}
        self._of_netns = {netns: number for number, host in enumerate(hosts) for netns in host.netns} if several else {}

    def of_pid(self, pid: int) -> int:
        return self._of_pid.get(pid, 0)

    def of_link(self, link: LinkKey) -> int:
        return self._of_netns.get(link.netns, 0)

    def of_key(self, key: object) -> int:
        if isinstance(key, LinkKey):
            return self.of_link(key)
        return self.of_pid(key.pid if isinstance(key, PathKey) else key if isinstance(key, int) else -1)


def digests_of(analysis: Analysis, made: str, sampled: Sampled | None = None) -> list[Digest]:
    """Return the digest of each host; `made` names this making. The analysis has to have concluded GATHERED too.

    `sampled` is what is kept of the streams of one host alone, whose clock is compared with others' later.
    """
    hosts, owner = analysis.evidence.hosts, _Owner(analysis.evidence.hosts)
    job = _job(analysis, made)
    return [
        _with_streams(Digest(job, replace(part, made=made), tables), sampled)
        for part, tables in (_of_host(number, analysis, owner) for number in range(len(hosts)))
    ]


def _with_streams(digest: Digest, sampled: Sampled | None) -> Digest:
    if sampled is None:
        return digest
    host, tables = replace(digest.host, ends=sampled.ends), replace(digest.tables, passages=sampled.passed)
    return replace(digest, host=host, tables=tables)


def _job(analysis: Analysis, made: str) -> JobPart:
    iterations, recording, waiting = analysis.of(ITERATIONS), analysis.of(RECORDING), analysis.of(WAITING)
    nccl, collectives, account = analysis.of(NCCL), analysis.of(COLLECTIVES), _account(analysis)
    blames = {} if account is None else account.made_of.blames
    return JobPart(
        made=made,
        hosts=tuple(host.name for host in analysis.evidence.hosts),
        meta=_slim(analysis.meta),
        world_size=analysis.evidence.world_size,
        told=iterations.count is not None,
        inferred=iterations.inferred,
        failures=iterations.failures,
        dropped=iterations.dropped,
        stepped=tuple(iterations.stepped),
        models=iterations.models,
        accumulates=iterations.accumulates,
        forward_unseen=iterations.forward_unseen,
        recorded=recording.recorded,
        counted=collectives.counted,
        flow_properties=analysis.of(FLOW_PROPERTIES),
        enqueued=collectives.only_enqueued,
        collectives_seen=nccl.collectives_seen,
        nccl_is_used=nccl.is_used,
        stalled=analysis.of(STALLED_AT_END),
        checks=analysis.of(CHECKS),
        damage=recording.damage,
        still_recording=recording.still_recording,
        blames=tuple((WAIT_CAUSES.index(cause), who) for cause, who in blames.items()),
        longest=() if account is None else account.made_of.longest,
        waits_known=waiting is not None,
        bounded=waiting is None and account is not None,
        only_launch=iterations.only_launch,
        stragglers_known=analysis.of(STRAGGLERS) is not None,
    )


def _account(analysis: Analysis) -> WaitingFinding | None:
    """Return what the ranks wait for; at most, where they are only seen to launch."""
    waiting, bounds = analysis.of(WAITING), analysis.of(BOUNDS)
    return bounds.most if waiting is None and bounds is not None else waiting


def _slim(meta: Meta) -> Meta:
    """Return a description without that of counters, of which a machine with many CPUs has thousands."""
    return replace(meta, series=())


def _of_host(number: int, analysis: Analysis, owner: _Owner) -> tuple[HostPart, Tables]:
    evidence, stragglers, account = analysis.evidence, analysis.of(STRAGGLERS), _account(analysis)
    bounds = analysis.of(BOUNDS) if analysis.of(WAITING) is None else None
    host, gathered = evidence.hosts[number], analysis.of(GATHERED)
    placed = [(place, key) for place, key in enumerate(_keys(stragglers.made_of))] if stragglers is not None else []
    own = [(place, key) for place, key in placed if owner.of_key(key[1]) == number]
    links = [(place, each) for place, each in enumerate(analysis.of(LINKS)) if owner.of_link(each.key) == number]
    pids = {each.pid for each in analysis.of(RANKS) if owner.of_pid(each.pid) == number}
    spans = as_table(gathered.spans, [each.key for _, each in links])
    part = HostPart(
        made="",
        host=replace(host, meta=_slim(host.meta), pids=_known(host.pids, pids)),
        span_ns=_span(analysis),
        told_ranks={pid: rank for pid, rank in evidence.ranks.items() if owner.of_pid(pid) == number},
        ranks=tuple(PlacedRank(place, each) for place, each in enumerate(analysis.of(RANKS)) if each.pid in pids),
        links=tuple(PlacedLink(place, each) for place, each in links),
        waiting=() if account is None else tuple(w for w in account.by_rank if owner.of_pid(w.pid) == number),
        surely=() if bounds is None else tuple(w for w in bounds.least.by_rank if owner.of_pid(w.pid) == number),
        unbounded={} if bounds is None else {p: why for p, why in bounds.reasons.items() if owner.of_pid(p) == number},
        on_gpu=() if bounds is None else tuple(p for p in sorted(bounds.on_gpu) if owner.of_pid(p) == number),
        profiled=() if bounds is None else tuple(p for p in sorted(bounds.profiled) if owner.of_pid(p) == number),
        things=() if stragglers is None else tuple(_thing(place, *key, stragglers.made_of) for place, key in own),
        ends={},
        spans=spans[0],
        rtt_ns=gathered.spans.rtt_ns,
        ways=ways_table(gathered.ways)[0],
    )
    return part, _tables(
        gathered, analysis, owner, number, [place for place, _ in own], [each.key for _, each in links], spans[1]
    )


def _known(pids: Mapping[int, int], wanted: set[int]) -> dict[int, int]:
    """Return the numbers of processes that a report names: a trace has thousands of threads."""
    return {pid: own for pid, own in pids.items() if pid in wanted}


def _span(analysis: Analysis) -> tuple[int, int]:
    recording = analysis.evidence.recording
    if len(recording) == 0:
        return analysis.meta.started_ns, analysis.meta.started_ns
    return int(recording.begin_ns[0]), int(recording.end_ns[-1])


def _keys(parts: StragglersParts) -> list[tuple[Kind, object]]:
    return [(held.kind, key) for held in parts.held for key in held.keys]


def _thing(place: int, kind: Kind, key: object, parts: StragglersParts) -> Thing:
    return Thing(place, int(kind), key if isinstance(key, int) else -1, parts.names[kind, key])


def _tables(
    gathered: Gathered,
    analysis: Analysis,
    owner: _Owner,
    number: int,
    places: Sequence[int],
    links: Sequence[LinkKey],
    spans: Spans,
) -> Tables:
    times, stragglers = analysis.of(ITERATIONS).times, analysis.of(STRAGGLERS)
    pids = np.unique(np.concatenate([times.pid, gathered.waited.pid, gathered.collectives.pid])).tolist()
    own = np.array([pid for pid in pids if owner.of_pid(pid) == number], np.int64)
    parts = None if stragglers is None else stragglers.made_of
    return Tables(
        iterations=times.where(np.isin(times.pid, own)),
        waiting=gathered.waited.where(np.isin(gathered.waited.pid, own)),
        surely=gathered.surely.where(np.isin(gathered.surely.pid, own)),
        steps=gathered.steps.where(np.isin(gathered.steps.pid, own)),
        windows=gathered.windows,
        held=empty(Held) if parts is None else _held(parts, places),
        held_windows=empty(WindowTimes) if parts is None else WindowTimes(parts.windows.begin_ns, parts.windows.end_ns),
        did=_did(gathered.times if parts is None or gathered.times.pids else parts.times, own),
        collectives=gathered.collectives.where(np.isin(gathered.collectives.pid, own)),
        link_seconds=_link_seconds(gathered, links),
        passages=empty(Passed),
        spans=spans,
        tcp_clocks=gathered.tcp_clocks,
        way_busy=ways_table(gathered.ways)[1],
    )


def _held(parts: StragglersParts, places: Sequence[int]) -> Held:
    """Return what the others waited for, a row where it is anything; `thing` counts those of this host."""
    ns = np.concatenate([each.ns for each in parts.held])[np.array(places, np.int64)]
    thing, window = np.nonzero(ns.sum(axis=1))
    return Held(thing, window, ns[thing, 0, window], ns[thing, 1, window])


def _did(times: AllTimes, own: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Did:
    parts = []
    for pid in [pid for pid in times.pids if pid in set(own.tolist())]:
        ns = times.of(pid).astype(np.float64)
        parts.append(Did(np.full(ns.shape[1], pid), np.arange(ns.shape[1]), *(ns[of] for of in Of)))
    return concatenate(Did, parts)


def _link_seconds(gathered: Gathered, links: Sequence[LinkKey]) -> LinkSeconds:
    parts = []
    for number, link in enumerate(links):
        if (found := gathered.seconds.get(link)) is not None:
            parts.append(LinkSeconds(np.full(len(found), number), found.begin_ns, found.tx_bytes, found.rx_bytes))
    return concatenate(LinkSeconds, parts)
