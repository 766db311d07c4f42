"""The report of a job from the digests of its hosts: the sections that a trace has, as far as digests tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.bounds.bounded import Bounds
from netprof.analysis.digest.conclude import Concluded
from netprof.analysis.digest.digest import HostPart, JobPart
from netprof.analysis.events.nccl import Operations
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.bounds import BOUNDS
from netprof.analysis.findings.bounds_finding import BoundsFinding, CountedSteps
from netprof.analysis.findings.checks import CHECKS
from netprof.analysis.findings.collectives import COLLECTIVES, CollectivesFinding, summarize_collectives
from netprof.analysis.findings.cpu_shortage import CPU_SHORTAGE, CpuShortages
from netprof.analysis.findings.flow_properties import FLOW_PROPERTIES
from netprof.analysis.findings.hang import HANG
from netprof.analysis.findings.hosts import HOSTS, HostSummary
from netprof.analysis.findings.iterations import ITERATIONS
from netprof.analysis.findings.links import LINKS
from netprof.analysis.findings.nccl import NCCL, NcclFinding
from netprof.analysis.findings.ranks import RANKS
from netprof.analysis.findings.recorded import RECORDED
from netprof.analysis.findings.recording import RECORDING, RecordingFinding
from netprof.analysis.findings.scaling import SCALING
from netprof.analysis.findings.stall import STALLED_AT_END
from netprof.analysis.findings.stragglers import STRAGGLERS
from netprof.analysis.findings.thread_time import THREAD_TIME
from netprof.analysis.findings.verdict import VERDICT
from netprof.analysis.findings.waiting import WAITING, doings_of, waiting_finding
from netprof.analysis.findings.waiting_finding import NOTHING_WAITED, WaitingFinding, WaitingParts
from netprof.analysis.form import Pairs, Part
from netprof.analysis.hosts.meta import names_of_hosts
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import empty
from netprof.errors import TraceError
from netprof.model import Meta
from netprof.units import count

_NOT_TOLD = (
    "flows, the ways between ranks, queue pairs, GPUs and other counters, TCP's own totals, NCCL's and Horovod's "
    "operations, bounds for what some ranks wait for where others are seen to be done with it, and anything over time "
    "finer than an iteration"
)
_NAMED = 4


@dataclass(frozen=True)
class Digested:
    """From how many digests a report is, which hosts' are missing, and what it cannot say for other reasons.

    `left_out` says of each digest that was given and could not be used why, and `others` which hosts of the job were
    not asked for.
    """

    hosts: int
    missing: tuple[str, ...]
    not_told: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def _document(found: Digested) -> Mapping[str, Any]:
    not_told = [_NOT_TOLD, *found.not_told]
    document = {"missing": list(found.missing), "left_out": list(found.left_out), "not_told": not_told}
    return {"digest": {"hosts": found.hosts, **document}}


def _parts(found: Digested) -> Sequence[Part]:
    return [Part("Digest", bodies=[Pairs([("made from", count(found.hosts, "host's digest", "hosts' digests"))])])]


def _notes(found: Digested) -> Iterator[str]:
    yield f"this is the report of digests: {_NOT_TOLD} are only in the traces"
    if found.missing:
        yield (
            f"the digests of {_first(found.missing)} are missing: what is said of the job is said of the other hosts' "
            "ranks"
        )
    if found.others:
        yield f"not asked for were {_first(found.others)}: what is said of the job is said of the ranks that were"
    yield from (f"left out: {each}" for each in found.left_out[:_NAMED])
    if len(found.left_out) > _NAMED:
        yield f"left out are {len(found.left_out) - _NAMED} more digests that cannot be used"
    yield from (f"not told is {each}" for each in found.not_told)


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _no_digest(analysis: Analysis) -> Digested:
    raise KeyError("a trace is no digest")


DIGESTED = Section("digested", _no_digest, document=_document, parts=_parts, notes=_notes)
"""What the report is made from."""

_SECTIONS: tuple[Section[Any], ...] = (
    VERDICT,
    ITERATIONS,
    WAITING,
    BOUNDS,
    STRAGGLERS,
    HOSTS,
    RANKS,
    LINKS,
    COLLECTIVES,
    SCALING,
    FLOW_PROPERTIES,
    CHECKS,
    RECORDING,
    DIGESTED,
    RECORDED,
    STALLED_AT_END,
)


def report_of(found: Concluded, left_out: tuple[str, ...] = (), *, only_some: bool = False) -> Analysis:
    """Return the report of hosts that were digested together; `left_out` is as `Digested` has it.

    `only_some` says that not all hosts of the job were asked for.

    Raises TraceError where what they say is no report.
    """
    job = found.job
    number = {name: place for place, name in enumerate(job.hosts)}
    hosts = sorted(found.hosts, key=lambda each: number.get(each.host.name, len(number)))
    ranks = tuple(each.summary for each in sorted((r for h in hosts for r in h.ranks), key=lambda each: each.place))
    links = tuple(each.summary for each in sorted((x for h in hosts for x in h.links), key=lambda each: each.place))
    iterations, others = found.iterations.count, _missing(job, hosts)
    meta = replace(job.meta, host=names_of_hosts([each.host for each in hosts])) if others else job.meta
    findings: dict[Section[Any], Any] = {
        ITERATIONS: found.iterations,
        SCALING: found.scaling,
        STRAGGLERS: found.stragglers,
        WAITING: _waiting(found, hosts),
        HOSTS: hosts_of(hosts),
        RANKS: ranks,
        LINKS: links,
        BOUNDS: _bounds(found, hosts),
        NCCL: NcclFinding(empty(Operations), (), job.collectives_seen, job.nccl_is_used),
        COLLECTIVES: CollectivesFinding(
            summarize_collectives(ranks, links, job.world_size, job.counted.others, job.recorded.unpaired),
            job.counted,
            iterations,
            job.flow_properties,
            job.enqueued,
        ),
        FLOW_PROPERTIES: job.flow_properties,
        CHECKS: job.checks,
        RECORDED: job.recorded,
        RECORDING: recording_of(job, meta, hosts),
        CPU_SHORTAGE: CpuShortages(()),
        HANG: None,
        THREAD_TIME: None,
        STALLED_AT_END: job.stalled,
        DIGESTED: Digested(
            len(hosts), () if only_some else others, unasked(found.unasked), left_out, others if only_some else ()
        ),
    }
    return analysis_of(_SECTIONS, findings, job, meta, hosts)


def analysis_of(
    sections: Sequence[Section[Any]],
    findings: Mapping[Section[Any], Any],
    job: JobPart,
    meta: Meta,
    hosts: Sequence[HostPart],
) -> Analysis:
    """Return what digests tell, in some sections, as an analysis that views can draw."""
    evidence = Evidence(
        meta,
        _only_traces,
        _only_traces,
        known={"world_size": job.world_size, "ranks": {p: rank for h in hosts for p, rank in h.told_ranks.items()}},
        is_truncated=lambda: job.recorded.truncated,
        damage=lambda: job.damage,
    )
    evidence.hosts = tuple(each.host for each in hosts)
    evidence.still_recording = job.still_recording
    return Analysis(evidence, sections, findings)


def _only_traces(asked: object) -> Any:
    raise TraceError("a digest does not hold what is asked for", "report the traces that it was made from")


def hosts_of(hosts: Sequence[HostPart]) -> tuple[HostSummary, ...]:
    """Return what a report says of the hosts."""
    return tuple(HostSummary(each.host, tuple(sorted(each.told_ranks.values()))) for each in hosts)


def recording_of(job: JobPart, meta: Meta, hosts: Sequence[HostPart]) -> RecordingFinding:
    """Return what a report says of the recording; of TCP's own totals nothing is known."""
    return RecordingFinding(
        meta=meta,
        recorded=job.recorded,
        dropped=job.dropped,
        failed_checks=frozenset(check.name for check in job.checks if check.holds is False),
        damage=job.damage,
        still_recording=job.still_recording,
        reconciliation=None,
        hosts=tuple(each.host for each in hosts),
    )


def unasked(ranks: int) -> tuple[str, ...]:
    """Say that it was not asked what some ranks do."""
    if not ranks:
        return ()
    return (f"of {ranks} ranks that hold the job up, those that cost the least, what they do meanwhile",)


def _missing(job: JobPart, hosts: Sequence[HostPart]) -> tuple[str, ...]:
    here = {each.host.name for each in hosts}
    return tuple(name for name in job.hosts if name not in here)


def _waiting(found: Concluded, hosts: Sequence[HostPart]) -> WaitingFinding | None:
    if not found.job.waits_known:
        return None
    return waiting_finding(_most(found, hosts), doings_of(found.stragglers))


def _most(found: Concluded, hosts: Sequence[HostPart]) -> WaitingParts:
    """Return what the ranks wait for; at most, where they are only seen to launch."""
    return WaitingParts(
        by_rank=tuple(each for host in hosts for each in host.waiting),
        recorded_ns=found.job.recorded.total_ns,
        blames={WAIT_CAUSES[number]: who for number, who in found.job.blames},
        saves_ns=found.waits.saves_ns,
        by_iteration_ns=found.waits.exposed_ns,
        longest=found.job.longest,
    )


def _bounds(found: Concluded, hosts: Sequence[HostPart]) -> BoundsFinding | None:
    if not found.job.bounded:
        return None
    least = WaitingParts(
        by_rank=tuple(each for host in hosts for each in host.surely),
        recorded_ns=found.job.recorded.total_ns,
        blames={},
        saves_ns=found.surely.saves_ns,
        by_iteration_ns=found.surely.exposed_ns,
        longest=(),
    )
    return bounds_of_digests(least, _most(found, hosts), found.counted, hosts)


def bounds_of_digests(
    least: WaitingParts, most: WaitingParts, counted: CountedSteps, hosts: Sequence[HostPart]
) -> BoundsFinding:
    """Return what the ranks of some hosts wait at least and at most."""
    known = len(counted) > 0
    return BoundsFinding(
        least=waiting_finding(least, {}) if known else NOTHING_WAITED,
        most=waiting_finding(most, {}) if known else NOTHING_WAITED,
        steps=empty(Bounds),
        counted=counted,
        reasons={pid: why for host in hosts for pid, why in host.unbounded.items()},
        on_gpu=frozenset(pid for host in hosts for pid in host.on_gpu),
        profiled=frozenset(pid for host in hosts for pid in host.profiled),
    )
