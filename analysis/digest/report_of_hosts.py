"""The report of a job whose hosts were digested each alone: as of its traces, as far as digests tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.account.causes import TRANSPORT, WAIT_CAUSES
from netprof.analysis.account.episodes import MATTERS
from netprof.analysis.digest.blame import Names, blames_of, held_up, saves_ns, worst_rank
from netprof.analysis.digest.conclude import Asked, Sums, all_sums, ask_stragglers, with_doings
from netprof.analysis.digest.digest import HostPart
from netprof.analysis.digest.job_iterations import ApartConcluded
from netprof.analysis.digest.report import (
    DIGESTED,
    Digested,
    analysis_of,
    bounds_of_digests,
    hosts_of,
    recording_of,
    unasked,
)
from netprof.analysis.digest.slow_paths import BusyWays
from netprof.analysis.digest.waiting import Explained, OfRank
from netprof.analysis.events.nccl import Operations
from netprof.analysis.findings.blame import Blame
from netprof.analysis.findings.bounds import BOUNDS
from netprof.analysis.findings.bounds_finding import BoundsFinding
from netprof.analysis.findings.collectives import COLLECTIVES, CollectivesFinding, Counted, summarize_collectives
from netprof.analysis.findings.cpu_shortage import CPU_SHORTAGE, CpuShortages
from netprof.analysis.findings.doing import NO_TIMES
from netprof.analysis.findings.hang import HANG
from netprof.analysis.findings.hosts import HOSTS
from netprof.analysis.findings.iterations import ITERATIONS
from netprof.analysis.findings.link_summary import LinkSummary
from netprof.analysis.findings.links import LINKS
from netprof.analysis.findings.nccl import NCCL, NcclFinding
from netprof.analysis.findings.ranks import RANKS, RankSummary
from netprof.analysis.findings.recorded import RECORDED, Recorded
from netprof.analysis.findings.recording import RECORDING
from netprof.analysis.findings.scaling import SCALING
from netprof.analysis.findings.stall import STALLED_AT_END
from netprof.analysis.findings.stragglers import STRAGGLERS
from netprof.analysis.findings.stragglers_finding import StragglersFinding
from netprof.analysis.findings.stragglers_parts import StragglersParts
from netprof.analysis.findings.thread_time import THREAD_TIME
from netprof.analysis.findings.transport_reason import ClockSums, Reason, are_small, reason_of
from netprof.analysis.findings.verdict import VERDICT
from netprof.analysis.findings.waiting import WAITING, doings_of, longest_waits, waited_iteration, waiting_finding
from netprof.analysis.findings.waiting_finding import WaitingFinding, WaitingParts, WorstIteration
from netprof.analysis.form import Grid, Part
from netprof.analysis.hosts.clocks import at
from netprof.analysis.hosts.meta import meta_of_hosts
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import Int64, empty
from netprof.analysis.tables.flow_table import LOOPBACK
from netprof.model import Meta
from netprof.units import count, duration, share

_OF_EACH_HOST = "what links carry and what ranks send is of each host's own recording, not of the time that all have"
_OF_PORTS = Reason(
    "rdma",
    "what the RDMA ports report meanwhile, digests do not tell",
    "report the traces: they say what the ports report of congestion and loss",
    of_port=True,
)
_NAMED = 4
_BRIEF = 16


@dataclass(frozen=True)
class LastOne:
    """A rank that was surely the last to ask for a collective in `iterations` iterations.

    In those where that matters, `matters` in number, it came `late_ns` later than the last but one, all together.
    """

    rank: int | None
    host: str
    iterations: int
    matters: int
    late_ns: int


@dataclass(frozen=True)
class LastOnes:
    """Those that came last, the latest first; of `iterations` looked at, in `unsure` the clocks do not tell who."""

    ranks: tuple[LastOne, ...]
    iterations: int
    unsure: int


def _document(found: LastOnes) -> Mapping[str, Any]:
    return {
        "last_ones": {
            "iterations": found.iterations,
            "unsure": found.unsure,
            "ranks": [
                {
                    "rank": each.rank,
                    "host": each.host,
                    "iterations": each.iterations,
                    "matters": each.matters,
                    "late_s": each.late_ns / 1e9,
                }
                for each in found.ranks
            ],
        }
    }


def _parts(found: LastOnes) -> Sequence[Part]:
    if not found.ranks:
        return ()
    rows = [
        (
            f"rank {each.rank}" if each.rank is not None else "?",
            each.host,
            share(each.iterations / found.iterations),
            str(each.matters),
            duration(each.late_ns / 1e9),
        )
        for each in found.ranks[:_BRIEF]
    ]
    about = f"of {count(found.iterations, 'iteration')}; in {found.unsure} the clocks do not tell who"
    grid = Grid(("who", "host", "is the last in", "by much in", "late by, in all"), rows, frozenset({"host"}))
    return [Part("Last arrivals", about, [replace(grid, total=len(found.ranks))])]


def _no_digest(analysis: Analysis) -> LastOnes:
    raise KeyError("a trace is no digest")


LAST_ONES = Section("last ones", _no_digest, document=_document, parts=_parts)
"""Last arrivals to the collectives of the job, by digests that were made each alone."""

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
class ApartReport:
    """A job and what its ranks wait for.

    The `stragglers` do not say yet what a rank did, which is `asked` of the digests, but for the `unasked` ones that
    cost the least; `ran` is for how long TCP's clocks did while the transport was slow.
    """

    found: ApartConcluded
    explained: Explained
    lost_ns: int
    stragglers: StragglersFinding | None
    asked: tuple[Asked, ...]
    unasked: int
    ran: ClockSums | None = None

    @property
    def names(self) -> Names:
        """How everything is called."""
        return Names(self.found.hosts)


def conclude_waiting(found: ApartConcluded, explained: Explained, lost_ns: int, ways: BusyWays) -> ApartReport:
    """Return what follows from what the ranks wait for; for `lost_ns` anybody waited for loss to be made good."""
    if len(explained.pids) < 2 or found.world.bounded:
        return ApartReport(found, explained, lost_ns, None, (), 0)
    windows, names = found.world.windows, Names(found.hosts)
    held, called = held_up(explained, names, ways, found.world)
    stragglers, asked, unasked_ranks = ask_stragglers(StragglersParts(windows, held, NO_TIMES, called))
    return ApartReport(found, explained, lost_ns, stragglers, asked, unasked_ranks)


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


def with_answers(report: ApartReport, answers: Answers) -> ApartReport:
    """Return what follows with what the digests answered."""
    if answers.sums is None:
        return replace(report, ran=answers.ran)
    return replace(report, ran=answers.ran, stragglers=with_doings(report.stragglers, report.asked, answers.sums))


def report_apart(report: ApartReport, said: tuple[str, ...] = (), left_out: tuple[str, ...] = ()) -> Analysis:
    """Return the report of hosts that were digested each alone.

    `said` is what one must know of their recordings, `left_out` is as `Digested` has it.
    """
    found = report.found
    hosts = tuple(_at_middle(host, found.span_ns) for host in found.hosts.values())
    job = replace(found.jobs[0], recorded=_recorded(found), checks=(), damage=_damage(found))
    meta, ranks, links = _meta(found, said), _ranks(report), _links(hosts)
    nothing = Counted((), 0, 0, 0, 0)
    summary = summarize_collectives(ranks, links, job.world_size, 0, job.recorded.unpaired)
    enqueued = any(each.enqueued for each in found.jobs)
    findings: dict[Section[Any], Any] = {
        ITERATIONS: found.iterations,
        WAITING: _waiting(report),
        STRAGGLERS: report.stragglers,
        LAST_ONES: last_ones(found),
        HOSTS: hosts_of(hosts),
        RANKS: ranks,
        LINKS: links,
        BOUNDS: _bounds(report),
        NCCL: NcclFinding(
            empty(Operations),
            (),
            collectives_seen=any(each.collectives_seen for each in found.jobs),
            is_used=any(each.nccl_is_used for each in found.jobs),
        ),
        COLLECTIVES: CollectivesFinding(summary, nothing, found.iterations.count, None, enqueued),
        SCALING: found.scaling,
        RECORDED: job.recorded,
        RECORDING: replace(recording_of(job, meta, hosts), dropped=found.iterations.dropped),
        CPU_SHORTAGE: CpuShortages(()),
        HANG: None,
        THREAD_TIME: None,
        STALLED_AT_END: next((each.stalled for each in found.jobs if each.stalled is not None), None),
        DIGESTED: Digested(len(hosts), (), _not_told(report), left_out),
    }
    return analysis_of(_SECTIONS, findings, job, meta, hosts)


def _at_middle(part: HostPart, span_ns: tuple[int, int]) -> HostPart:
    """Return a host as a report has it: what its clock reads in the middle, and how much of its time is left out."""
    (begin, end), (first, last) = span_ns, part.span_ns
    clock, left_out_ns = at(part.host.clock, (begin + end) // 2), max(0, begin - first) + max(0, last - end)
    return replace(part, host=replace(part.host, clock=clock, left_out_ns=left_out_ns))


def _not_told(report: ApartReport) -> tuple[str, ...]:
    parts = [
        "what ranks wait for in communicators of a part of the job whose members on other hosts nothing tells, but for "
        "what each host's own links do: it is unseen"
    ]
    return (*(parts if report.explained.of_parts else ()), *_missing(report.found), *unasked(report.unasked))


def _missing(found: ApartConcluded) -> tuple[str, ...]:
    size = found.world.world_size
    here = {rank for host in found.hosts.values() for rank in host.told_ranks.values()}
    if size is None or len(here) >= size:
        return ()
    return (f"what {count(size - len(here), 'rank')} of {size} do, of which there is no digest",)


def _ranks(report: ApartReport) -> tuple[RankSummary, ...]:
    found = []
    for host in report.found.hosts.values():
        pid_of = {own: pid for pid, own in host.host.pids.items()}
        for each in host.ranks:
            pid = pid_of[each.summary.pid]
            found.append(_rank(each.summary, pid, host.host.name, report.explained.of_ranks.get(pid)))
    return tuple(sorted(found, key=lambda each: (each.rank is None, each.rank or 0, each.pid)))


def _rank(summary: RankSummary, pid: int, host: str, known: OfRank | None) -> RankSummary:
    """Return a process as its host's digest has it, but for what depends on the other hosts."""
    moved = replace(summary, pid=pid, own_pid=summary.pid, host=host)
    if known is None:
        return moved
    if known.bandwidths is None:
        return replace(moved, durations=known.durations)
    own = summary.bandwidths
    bandwidths = replace(
        known.bandwidths,
        wire_bytes=own.wire_bytes,
        payload_bytes=own.payload_bytes,
        algorithm_bytes=own.algorithm_bytes,
    )
    return replace(moved, durations=known.durations, bandwidths=bandwidths)


def _links(hosts: Sequence[HostPart]) -> tuple[LinkSummary, ...]:
    found = [replace(each.summary, host=host.host.name) for host in hosts for each in host.links]
    return tuple(sorted(found, key=lambda each: (not each.ranks, each.ranks)))


def _waiting(report: ApartReport) -> WaitingFinding | None:
    found = report.found
    if found.world.bounded or not any(job.waits_known for job in found.jobs):
        return None
    return waiting_finding(_account(report, report.explained), doings_of(report.stragglers))


def _bounds(report: ApartReport) -> BoundsFinding | None:
    surely, explained = report.explained.surely, report.explained
    if surely is None:
        return None
    least, most = _account(report, surely), _account(report, explained)
    return bounds_of_digests(least, most, explained.counted, list(report.found.hosts.values()))


def _account(report: ApartReport, explained: Explained) -> WaitingParts:
    span_ns = report.found.span_ns
    return WaitingParts(
        by_rank=explained.by_rank,
        recorded_ns=span_ns[1] - span_ns[0],
        blames=blames_of(explained, report.names, report.lost_ns) | {TRANSPORT: Blame(reason=_reason(report))},
        saves_ns=saves_ns(explained),
        by_iteration_ns=explained.causes_ns.sum(axis=0),
        longest=_longest(report),
    )


def _reason(report: ApartReport) -> Reason:
    """Return why the transport does not fill its links, as `transport_reason` does."""
    hosts = report.found.hosts.values()
    links = [each.summary for host in hosts for each in host.links if each.summary.moved_bytes > 0]
    if any(link.period_ns for link in links):
        return _OF_PORTS
    rates = [link.line_rate_bps for link in links if link.line_rate_bps]
    trips = [host.rtt_ns[1] for host in hosts if host.rtt_ns[1]]
    return reason_of(
        report.ran,
        knows_rate=bool(rates),
        on_one_host=bool(links) and all(link.device == LOOPBACK for link in links),
        small=are_small(report.found.world.sizes, float(np.median(trips)) if trips else 0.0, min(rates, default=0.0)),
    )


def _longest(report: ApartReport) -> tuple[WorstIteration, ...]:
    causes_ns = report.explained.causes_ns
    return tuple(_iteration(row, causes_ns[:, row], report) for row in longest_waits(causes_ns.sum(axis=0)).tolist())


def _iteration(row: int, causes_ns: Int64, report: ApartReport) -> WorstIteration:
    windows = report.found.world.windows
    span_ns = int(windows.begin_ns[row]), int(windows.end_ns[row])
    cause = WAIT_CAUSES[int(np.argmax(causes_ns))]
    return waited_iteration(row, span_ns, causes_ns, worst_rank(report.explained, row, cause, report.names))


def last_ones(found: ApartConcluded) -> LastOnes:
    """Return who comes last how often; where there are only launches, that is not known."""
    if found.world.bounded:
        return LastOnes((), 0, 0)
    arrived, windows = found.arrivals, found.world.windows
    iteration_ns = windows.end_ns - windows.begin_ns
    sure = arrived.where(arrived.pid >= 0)
    matters = sure.late_ns >= MATTERS * iteration_ns[sure.iteration]
    names = _names(found)
    ranks = []
    for pid in np.unique(sure.pid).tolist():
        own = sure.pid == pid
        late_ns = int(sure.late_ns[own & matters].sum())
        rank, host = names.get(pid, (None, ""))
        ranks.append(LastOne(rank, host, int(own.sum()), int((own & matters).sum()), late_ns))
    ranks.sort(key=lambda each: (-each.late_ns, -each.iterations))
    return LastOnes(tuple(ranks), len(windows), len(arrived) - len(sure))


def _names(found: ApartConcluded) -> dict[int, tuple[int | None, str]]:
    return {pid: (rank, host.host.name) for host in found.hosts.values() for pid, rank in host.told_ranks.items()}


def _recorded(found: ApartConcluded) -> Recorded:
    every = [job.recorded for job in found.jobs]
    return Recorded(
        total_ns=found.span_ns[1] - found.span_ns[0],
        unknown_bytes=sum(each.unknown_bytes for each in every),
        unpaired=sum(each.unpaired for each in every),
        wire_rows=sum(each.wire_rows for each in every),
        moved_bytes=sum(each.moved_bytes for each in every),
        lone_bytes={},
        truncated=any(each.truncated for each in every),
    )


def _damage(found: ApartConcluded) -> tuple[str, ...]:
    named = zip((host.host.name for host in found.hosts.values()), found.jobs, strict=True)
    return tuple(f"{name}: {said}" for name, job in named for said in job.damage)


def _meta(found: ApartConcluded, said: tuple[str, ...]) -> Meta:
    """Return the description of all hosts' recordings."""
    merged = meta_of_hosts([host.host for host in found.hosts.values()], found.span_ns)
    targets = tuple(target for host in found.hosts.values() for target in host.host.meta.targets)
    return replace(merged, targets=targets, warnings=(*said, _OF_EACH_HOST, *merged.warnings))
