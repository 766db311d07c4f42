"""The report of a job from the digests of its hosts: the sections that a trace has, as far as digests tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.account.causes import LATE_RANK, TRANSPORT, WAIT_CAUSES
from netprof.analysis.account.episodes import MATTERS
from netprof.analysis.bounds.bounded import Bounds
from netprof.analysis.declared import added
from netprof.analysis.digest.asked_stragglers import MOST_ASKED, Asked, Sums, all_sums, ask_stragglers, with_doings
from netprof.analysis.digest.blames import JobNames, blames_of, held_up, saves_ns, worst_rank
from netprof.analysis.digest.digest import HostPart
from netprof.analysis.digest.explained_waiting import Explained, OfRank
from netprof.analysis.digest.job_iterations import JobIterations
from netprof.analysis.digest.last_ones import LAST_ONES, last_ones
from netprof.analysis.digest.made_from import DIGESTED, Digested
from netprof.analysis.digest.saved import without_tables
from netprof.analysis.digest.slow_paths import BusyWays
from netprof.analysis.events.nccl import Operations
from netprof.analysis.events.unfinished import LEAST_NS
from netprof.analysis.findings.blame import Blame
from netprof.analysis.findings.bounds.bounds import BOUNDS, BoundsFinding
from netprof.analysis.findings.collectives.collectives import (
    COLLECTIVES,
    CollectiveCounts,
    CollectivesFinding,
    summarize_collectives,
)
from netprof.analysis.findings.collectives.nccl import NCCL, NcclFinding
from netprof.analysis.findings.collectives.ranks import RANKS, RankSummary
from netprof.analysis.findings.collectives.scaling import SCALING
from netprof.analysis.findings.host.hosts import HOSTS, HostSummary
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.recorded import RECORDED, Recorded
from netprof.analysis.findings.recording.recording import RECORDING, RecordingFinding
from netprof.analysis.findings.stalls.hang import HANG
from netprof.analysis.findings.stalls.stall import STALLED_AT_END
from netprof.analysis.findings.stragglers.cpu_shortage import CPU_SHORTAGE, CpuShortages
from netprof.analysis.findings.stragglers.doing import NO_TIMES, Doing, what_it_did
from netprof.analysis.findings.stragglers.stragglers import STRAGGLERS, StragglersFinding, what_all_do
from netprof.analysis.findings.stragglers.stragglers_parts import StragglersParts
from netprof.analysis.findings.stragglers.thread_time import THREAD_TIME
from netprof.analysis.findings.transport.transport_reason import ClockSums, Reason, reason_of, trips_of
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.findings.waiting.open_waits import OpenWaits, OpenWaitsOfHost, open_waits_of_job
from netprof.analysis.findings.waiting.waiting import (
    WAITING,
    doings_of,
    longest_waits,
    waited_iteration,
    waiting_finding,
)
from netprof.analysis.findings.waiting.waiting_finding import (
    NOTHING_WAITED,
    WaitingFinding,
    WaitingParts,
    WorstIteration,
)
from netprof.analysis.hosts.clocks import at
from netprof.analysis.hosts.joined_meta import meta_of_hosts
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import Int64, empty
from netprof.analysis.tables.flow_table import LOOPBACK
from netprof.analysis.tables.intervals import Windows
from netprof.model import Meta
from netprof.units import count

_OF_EACH_HOST = "what links carry and what ranks send is of each host's own recording, not of the time that all have"
_OF_PORTS = Reason(
    "rdma",
    "what the RDMA ports report meanwhile, digests do not tell",
    "report the traces: they say what the ports report of congestion and loss",
    of_port=True,
)


_SECTIONS: tuple[Section[Any], ...] = (
    VERDICT,
    ITERATIONS,
    WAITING,
    BOUNDS,
    STRAGGLERS,
    LAST_ONES,
    HOSTS,
    RANKS,
    LINKS,
    COLLECTIVES,
    SCALING,
    RECORDING,
    DIGESTED,
    RECORDED,
    STALLED_AT_END,
)


@dataclass(frozen=True, eq=False)
class Late:
    """A rank for which others wait for `held_ns` in some iterations, `rows`, since it is late."""

    pid: int
    rows: Int64
    held_ns: int


@dataclass(frozen=True, eq=False)
class ReportParts:
    """A job and what its ranks wait for.

    The `stragglers` do not say yet what a rank did, which is `asked` of the digests, but for the `unasked` ones that
    cost the least; the same is asked of `late` ranks, and `all_do` is what they do. `ran` is for how long TCP's clocks
    did while the transport was slow.
    """

    job: JobIterations
    explained: Explained
    lost_ns: int
    stragglers: StragglersFinding | None
    asked: tuple[Asked, ...]
    unasked: int
    late: tuple[Late, ...] = ()
    all_do: Doing | None = None
    ran: ClockSums | None = None

    @property
    def questions(self) -> list[Int64]:
        """The iterations of which it is asked what ranks did in them."""
        return [*(each.rows for each in self.asked), *(each.rows for each in self.late)]

    @property
    def names(self) -> JobNames:
        """How everything is called."""
        return JobNames(self.job.hosts)


def conclude_waiting(job: JobIterations, explained: Explained, lost_ns: int, ways: BusyWays) -> ReportParts:
    """Return what follows from what the ranks wait for; for `lost_ns` anybody waited for loss to be made good."""
    if len(explained.pids) < 2 or job.world.bounded:
        return ReportParts(job, explained, lost_ns, None, (), 0)
    windows, names = job.world.windows, JobNames(job.hosts)
    held, called = held_up(explained, names, ways, job.world)
    stragglers, asked, unasked_ranks = ask_stragglers(StragglersParts(windows, held, NO_TIMES, called))
    late = _late(explained, windows, MOST_ASKED - len(asked))
    return ReportParts(job, explained, lost_ns, stragglers, asked, unasked_ranks, late)


@dataclass(frozen=True, eq=False)
class Answers:
    """What processes of some hosts did in the iterations that were asked about, and TCP's clocks while it was slow."""

    sums: Sums | None
    ran: ClockSums | None


def all_answers(parts: Sequence[Answers]) -> Answers:
    """Return the answers of all hosts."""
    sums = [part.sums for part in parts if part.sums is not None]
    ran = [part.ran for part in parts if part.ran is not None]
    return Answers(all_sums(sums) if sums else None, sum(ran, ClockSums()) if ran else None)


def with_answers(report: ReportParts, answers: Answers) -> ReportParts:
    """Return what follows with what the digests answered."""
    if answers.sums is None or report.stragglers is None:
        return replace(report, ran=answers.ran)
    return replace(
        report,
        ran=answers.ran,
        stragglers=with_doings(report.stragglers, report.asked, answers.sums),
        all_do=_done_while_late(report.late, answers.sums, len(report.asked)),
    )


def report_of(
    report: ReportParts,
    notes: tuple[str, ...] = (),
    left_out: tuple[str, ...] = (),
    absent: tuple[str, ...] = (),
    *,
    only_some: bool = False,
) -> Analysis:
    """Return the report of the hosts of a job.

    `notes` is what one must know of their recordings, `left_out` is as `Digested` has it. `absent` are hosts whose
    digests were made in one go with these, and are missing or, of `only_some`, not asked for.
    """
    job = report.job
    hosts = tuple(_at_middle(host, job.span_ns) for host in job.hosts.values())
    first, recorded = hosts[0], _recorded(hosts, job.span_ns)
    damage = tuple(f"{each.host.name}: {sentence}" for each in hosts for sentence in each.damage)
    meta, ranks, links = _meta(job, notes), _ranks(report), _links(hosts)
    nothing = CollectiveCounts((), 0, 0, 0, 0)
    summary = summarize_collectives(ranks, links, first.world_size, 0, recorded.unpaired)
    enqueued = any(each.enqueued for each in hosts)
    findings: dict[Section[Any], Any] = {
        ITERATIONS: job.iterations,
        WAITING: _waiting(report),
        STRAGGLERS: report.stragglers,
        LAST_ONES: last_ones(job),
        HOSTS: tuple(HostSummary(each.host, tuple(sorted(each.told_ranks.values()))) for each in hosts),
        RANKS: ranks,
        LINKS: links,
        BOUNDS: _bounds(report),
        NCCL: NcclFinding(
            empty(Operations),
            (),
            collectives_seen=any(each.collectives_seen for each in hosts),
            is_used=any(each.nccl_is_used for each in hosts),
        ),
        COLLECTIVES: CollectivesFinding(summary, nothing, job.iterations.count, None, enqueued),
        SCALING: job.scaling,
        RECORDED: recorded,
        RECORDING: RecordingFinding(
            meta=meta,
            recorded=recorded,
            dropped=job.iterations.dropped,
            failed_checks=frozenset(),
            damage=damage,
            still_recording=first.still_recording,
            reconciliation=None,
            hosts=tuple(each.host for each in hosts),
        ),
        CPU_SHORTAGE: CpuShortages(()),
        HANG: None,
        THREAD_TIME: None,
        STALLED_AT_END: next((each.stalled for each in hosts if each.stalled is not None), None),
        DIGESTED: Digested(
            len(hosts), () if only_some else absent, tuple(_not_told(report)), left_out, absent if only_some else ()
        ),
    }
    ranks_of = {pid: rank for host in hosts for pid, rank in host.told_ranks.items()}
    known = {"world_size": first.world_size, "ranks": ranks_of}
    evidence = without_tables(meta, known, truncated=recorded.truncated, damage=damage)
    evidence.hosts, evidence.still_recording = tuple(each.host for each in hosts), first.still_recording
    return Analysis(evidence, _SECTIONS, findings)


def _at_middle(part: HostPart, span_ns: tuple[int, int]) -> HostPart:
    """Return a host as a report has it: what its clock reads in the middle, and how much of its time is left out."""
    (begin, end), (first, last) = span_ns, part.span_ns
    clock, left_out_ns = at(part.host.clock, (begin + end) // 2), max(0, begin - first) + max(0, last - end)
    return replace(part, host=replace(part.host, clock=clock, left_out_ns=left_out_ns))


def _not_told(report: ReportParts) -> Iterator[str]:
    if report.explained.of_parts:
        yield (
            "what ranks wait for in communicators of a part of the job whose members on other hosts nothing tells, but "
            "for what each host's own links do: it is unseen"
        )
    size = report.job.world.world_size
    here = {rank for host in report.job.hosts.values() for rank in host.told_ranks.values()}
    if size is not None and len(here) < size:
        yield f"what {count(size - len(here), 'rank')} of {size} do: their digests are missing"
    if report.unasked:
        yield f"of {report.unasked} ranks that hold the job up, those that cost the least, what they do meanwhile"


def _ranks(report: ReportParts) -> tuple[RankSummary, ...]:
    ranks = []
    for host in report.job.hosts.values():
        pid_of = {own_pid: pid for pid, own_pid in host.host.pids.items()}
        for each in host.ranks:
            pid = pid_of[each.pid]
            ranks.append(_rank(each, pid, host.host.name, report.explained.of_ranks.get(pid)))
    return tuple(sorted(ranks, key=lambda each: (each.rank is None, each.rank or 0, each.pid)))


def _rank(summary: RankSummary, pid: int, host: str, known: OfRank | None) -> RankSummary:
    """Return a process as its host's digest has it, but for what depends on the other hosts."""
    moved = replace(summary, pid=pid, own_pid=summary.pid, host=host)
    if known is None:
        return moved
    if known.bandwidths is None:
        return replace(moved, durations=known.durations)
    counted = summary.bandwidths
    bandwidths = replace(
        known.bandwidths,
        wire_bytes=counted.wire_bytes,
        payload_bytes=counted.payload_bytes,
        algorithm_bytes=counted.algorithm_bytes,
    )
    return replace(moved, durations=known.durations, bandwidths=bandwidths)


def _links(hosts: Sequence[HostPart]) -> tuple[LinkSummary, ...]:
    links = [replace(each, host=host.host.name) for host in hosts for each in host.links]
    return tuple(sorted(links, key=lambda each: (not each.ranks, each.ranks)))


def _waiting(report: ReportParts) -> WaitingFinding | None:
    job = report.job
    if job.world.bounded or not any(host.waits_known for host in job.hosts.values()):
        return None
    return waiting_finding(_account(report, report.explained), doings_of(report.stragglers))


def _bounds(report: ReportParts) -> BoundsFinding | None:
    explained, hosts = report.explained, report.job.hosts.values()
    if explained.surely is None:
        return None
    least = most = NOTHING_WAITED
    if len(explained.counted):
        least, most = (waiting_finding(_account(report, each), {}) for each in (explained.surely, explained))
    return BoundsFinding(
        least=least,
        most=most,
        steps=empty(Bounds),
        counted=explained.counted,
        reasons={pid: why for host in hosts for pid, why in host.unbounded.items()},
        on_gpu=frozenset(pid for host in hosts for pid in host.on_gpu),
        profiled=frozenset(pid for host in hosts for pid in host.profiled),
    )


def _account(report: ReportParts, explained: Explained) -> WaitingParts:
    span_ns = report.job.span_ns
    blames = blames_of(explained, report.names, report.lost_ns) | {TRANSPORT: Blame(reason=_reason(report))}
    if LATE_RANK in blames and report.all_do is not None:
        blames[LATE_RANK] = replace(blames[LATE_RANK], doing=report.all_do.name)
    parts = WaitingParts(
        by_rank=explained.by_rank,
        recorded_ns=span_ns[1] - span_ns[0],
        blames=blames,
        saves_ns=saves_ns(explained),
        by_iteration_ns=explained.causes_ns.sum(axis=0),
        longest=_longest(report),
    )
    hosts = report.job.hosts.values()
    ends = [host.open_waits for host in hosts if host.open_waits is not None]
    unseen = {pid for host in hosts if span_ns[1] - host.span_ns[1] > LEAST_NS for pid in host.host.pids}
    unclosed = open_waits_of_job(ends, [each.pid for each in parts.by_rank], unseen)
    return parts if unclosed is None else _with_open_waits(parts, unclosed, ends, report.names)


def _with_open_waits(
    parts: WaitingParts, unclosed: OpenWaits, ends: Sequence[OpenWaitsOfHost], names: JobNames
) -> WaitingParts:
    """Return the account with the waits in which the recordings end, and who is behind those if they are most of it."""
    blames = dict(parts.blames)
    if unclosed.total_ns > sum(each.exposed_ns for each in parts.by_rank):
        if unclosed.culprit is not None:
            who = names.process(unclosed.culprit)
            blames[unclosed.cause] = Blame(who.label, rank=who.rank)
        elif flow := next((each for each in ends if each.flow), None):
            blames[unclosed.cause] = Blame(flow.flow, flow=flow.flow, detail=flow.happened, advice=flow.advice)
    spared = (unclosed.spared_ns(cause, len(parts.by_rank)) for cause in WAIT_CAUSES)
    return replace(
        parts,
        by_rank=tuple(unclosed.added_to(each) for each in parts.by_rank),
        blames=blames,
        saves_ns=tuple(a + b for a, b in zip(parts.saves_ns, spared, strict=True)),
        unclosed_ns=unclosed.total_ns,
    )


def _done_while_late(late: Sequence[Late], sums: Sums, first: int) -> Doing | None:
    """Return what late ranks do, if nearly all do the same; the answers about them begin at the `first` one."""
    amounts: dict[str, int] = {}
    for number, each in enumerate(late, first):
        doing = what_it_did(sums.of(number), each.pid, each.rows)
        name = "" if doing is None else doing.name
        amounts[name] = amounts.get(name, 0) + each.held_ns
    return what_all_do(amounts)


def _late(explained: Explained, windows: Windows, most: int) -> tuple[Late, ...]:
    """Return those that others wait for the longest since they are late, and in which iterations that matters."""
    behind, late = explained.behind, []
    behind = behind.where(behind.cause == WAIT_CAUSES.index(LATE_RANK))
    behind = behind.where(behind.most_ns >= MATTERS * (windows.end_ns - windows.begin_ns)[behind.window])
    for pid in np.unique(behind.thing).tolist():
        rows = behind.where(behind.thing == pid)
        late.append(Late(pid, rows.window, int(rows.most_ns.sum())))
    return tuple(sorted(late, key=lambda each: -each.held_ns)[:most])


def _reason(report: ReportParts) -> Reason:
    """Return why the transport does not fill its links, as `transport_reason` does."""
    hosts = report.job.hosts.values()
    links = [each for host in hosts for each in host.links if each.moved_bytes > 0]
    if any(link.period_ns for link in links):
        return _OF_PORTS
    rates = [link.line_rate_bps for link in links if link.line_rate_bps]
    trips = [host.rtt_ns[1] for host in hosts if host.rtt_ns[1]]
    return reason_of(
        report.ran,
        knows_rate=bool(rates),
        on_one_host=bool(links) and all(link.device == LOOPBACK for link in links),
        trips=trips_of(report.job.world.sizes, float(np.median(trips)) if trips else 0.0, min(rates, default=0.0)),
        ranks=report.job.world.world_size or 0,
    )


def _longest(report: ReportParts) -> tuple[WorstIteration, ...]:
    windows, iterations = report.job.world.windows, []
    for row in longest_waits(report.explained.causes_ns.sum(axis=0)).tolist():
        span_ns, causes_ns = (int(windows.begin_ns[row]), int(windows.end_ns[row])), report.explained.causes_ns[:, row]
        rank = worst_rank(report.explained, row, WAIT_CAUSES[int(np.argmax(causes_ns))], report.names)
        iterations.append(waited_iteration(row, span_ns, causes_ns, rank))
    return tuple(iterations)


def _recorded(hosts: Sequence[HostPart], span_ns: tuple[int, int]) -> Recorded:
    every = [host.recorded for host in hosts]
    return Recorded(
        total_ns=span_ns[1] - span_ns[0],
        lone_bytes={},
        truncated=any(each.truncated for each in every),
        **added(every, "unknown_bytes unpaired wire_rows moved_bytes"),
    )


def _meta(job: JobIterations, notes: tuple[str, ...]) -> Meta:
    """Return the description of all hosts' recordings."""
    merged = meta_of_hosts([host.host for host in job.hosts.values()], job.span_ns)
    targets = tuple(target for host in job.hosts.values() for target in host.host.meta.targets)
    return replace(merged, targets=targets, warnings=(*notes, _OF_EACH_HOST, *merged.warnings))
