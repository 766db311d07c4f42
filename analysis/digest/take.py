"""The digest of one host: what was concluded from its recording, and what others need to explain their waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from netprof.analysis.digest.digest import Did, Digest, HostPart, LinkSeconds, Tables, Waited
from netprof.analysis.digest.gather import GATHERED, Gathered
from netprof.analysis.digest.passages import Sampled
from netprof.analysis.digest.spans import as_table
from netprof.analysis.digest.ways import ways_table
from netprof.analysis.findings.bounds.bounds import BOUNDS
from netprof.analysis.findings.collectives.collectives import COLLECTIVES
from netprof.analysis.findings.collectives.nccl import NCCL
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.recording.recording import RECORDING
from netprof.analysis.findings.stalls.stall import STALLED_AT_END
from netprof.analysis.findings.stragglers.doing import AllTimes, Of
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.hosts.clocks import backwards
from netprof.analysis.hosts.moved import to_reference
from netprof.analysis.section import Analysis
from netprof.analysis.tables.columns import concatenate
from netprof.analysis.tables.flow_table import LinkKey
from netprof.model import Host


def digest_of(analysis: Analysis, sampled: Sampled) -> Digest:
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
        inferred=iterations.inferred,
        failures=iterations.failures,
        dropped=iterations.dropped,
        stepped=tuple(iterations.stepped),
        models=iterations.models,
        accumulates=iterations.accumulates,
        forward_unseen=iterations.forward_unseen,
        recorded=recording.recorded,
        enqueued=analysis.of(COLLECTIVES).only_enqueued,
        collectives_seen=nccl.collectives_seen,
        nccl_is_used=nccl.is_used,
        stalled=analysis.of(STALLED_AT_END),
        damage=recording.damage,
        still_recording=recording.still_recording,
        waits_known=waiting is not None,
        bounded=bounds is not None,
        only_launch=iterations.only_launch,
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
        passages=sampled.passed,
        spans=spans,
        tcp_clocks=gathered.tcp_clocks,
        way_busy=way_busy,
    )
    return Digest(host, tables)


def with_waiting_of_job(digest: Digest, host: Host, gathered: Gathered) -> Digest:
    """Return the digest of a host of a job with what its processes waited for as all traces together tell.

    `host` is what that is in the job, `gathered` is of the job.
    """
    own, clock = digest.tables.windows, backwards(host.clock)
    begin_ns, end_ns = (to_reference(clock, each) for each in (gathered.windows.begin_ns, gathered.windows.end_ns))
    middle_ns = (begin_ns + end_ns) // 2
    place = np.searchsorted(own.begin_ns, middle_ns, "right") - 1
    place[(place < 0) | (middle_ns >= np.append(own.end_ns, 0)[place])] = -1

    def on_host(waited: Waited) -> Waited:
        found = waited.where(np.isin(waited.pid, list(host.pids)) & (place[waited.window] >= 0))
        pids = np.array([host.pids[pid] for pid in found.pid.tolist()], np.int64)
        return replace(found, pid=pids, window=place[found.window])

    tables = replace(digest.tables, waiting=on_host(gathered.waited), surely=on_host(gathered.surely))
    named = replace(digest.host, host=replace(digest.host.host, name=host.name, trace=host.trace))
    return Digest(named, tables)


def _slim(host: Host, wanted: set[int]) -> Host:
    """Return a host without counters, of which a machine has thousands, and with the processes that are `wanted`."""
    pids: Mapping[int, int] = {pid: own for pid, own in host.pids.items() if pid in wanted}
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
        parts.append(Did(np.full(ns.shape[1], pid), np.arange(ns.shape[1]), *(ns[of] for of in Of)))
    return concatenate(Did, parts)


def _link_seconds(gathered: Gathered, links: Sequence[LinkKey]) -> LinkSeconds:
    parts = []
    for number, link in enumerate(links):
        if (found := gathered.seconds.get(link)) is not None:
            parts.append(LinkSeconds(np.full(len(found), number), found.begin_ns, found.tx_bytes, found.rx_bytes))
    return concatenate(LinkSeconds, parts)
