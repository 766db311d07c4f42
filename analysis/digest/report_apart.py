"""The report of a job whose hosts were digested each alone: iterations, clocks, and who comes last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.account.episodes import MATTERS
from netprof.analysis.digest.apart import ApartConcluded
from netprof.analysis.digest.digest import HostPart
from netprof.analysis.digest.report import DIGESTED, Digested, analysis_of, hosts_of, recording_of
from netprof.analysis.findings.hosts import HOSTS
from netprof.analysis.findings.iterations import ITERATIONS
from netprof.analysis.findings.recorded import RECORDED, Recorded
from netprof.analysis.findings.recording import RECORDING
from netprof.analysis.findings.scaling import SCALING
from netprof.analysis.findings.verdict import EXPOSED_MATTERS, VERDICT, Case, Verdict, compute_bound
from netprof.analysis.form import Grid, Part
from netprof.analysis.section import Analysis, Section
from netprof.model import Losses, Meta
from netprof.units import count, duration, percent, share

_NOT_TOLD = (
    "what the ranks wait for: each host was digested alone, and whether a link of another host was full no single one "
    "tells. netprof digest of all traces in one go knows",
    "links, ranks and collectives: what each host's recorder saw of them is of its own time, not of the time that all "
    "have in common",
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
    return [Part("Who comes last", about, [replace(grid, total=len(found.ranks))])]


def _no_digest(analysis: Analysis) -> LastOnes:
    raise KeyError("a trace is no digest")


LAST_ONES = Section("last ones", _no_digest, document=_document, parts=_parts)
"""Who comes last to the collectives of the job, by digests that were made each alone."""

_SECTIONS: tuple[Section[Any], ...] = (VERDICT, ITERATIONS, LAST_ONES, HOSTS, SCALING, RECORDING, DIGESTED, RECORDED)


def report_apart(found: ApartConcluded, left_out: tuple[str, ...] = ()) -> Analysis:
    """Return the report of hosts that were digested each alone, `left_out` as `Digested` has it."""
    job = replace(found.jobs[0], recorded=_recorded(found), checks=(), damage=_damage(found))
    meta = _meta(found)
    findings: dict[Section[Any], Any] = {
        ITERATIONS: found.iterations,
        LAST_ONES: last_ones(found),
        HOSTS: hosts_of(found.hosts),
        SCALING: found.scaling,
        RECORDED: job.recorded,
        RECORDING: replace(recording_of(job, meta, found.hosts), dropped=found.iterations.dropped),
        DIGESTED: Digested(len(found.hosts), (), _NOT_TOLD, left_out),
        VERDICT: _verdict(found),
    }
    return analysis_of(_SECTIONS, findings, job, meta, found.hosts)


def last_ones(found: ApartConcluded) -> LastOnes:
    """Return who comes last how often."""
    arrived = found.arrivals
    sure = arrived.where(arrived.pid >= 0)
    matters = sure.late_ns >= MATTERS * found.iteration_ns[sure.iteration]
    names = _names(found.hosts)
    ranks = []
    for pid in np.unique(sure.pid).tolist():
        own = sure.pid == pid
        late_ns = int(sure.late_ns[own & matters].sum())
        rank, host = names.get(pid, (None, ""))
        ranks.append(LastOne(rank, host, int(own.sum()), int((own & matters).sum()), late_ns))
    ranks.sort(key=lambda each: (-each.late_ns, -each.iterations))
    return LastOnes(tuple(ranks), len(found.iteration_ns), len(arrived) - len(sure))


def _names(hosts: Sequence[HostPart]) -> dict[int, tuple[int | None, str]]:
    return {pid: (rank, host.host.name) for host in hosts for pid, rank in host.told_ranks.items()}


def _verdict(found: ApartConcluded) -> Verdict:
    times, last = found.iterations.durations, last_ones(found)
    if times is None:
        return Verdict(Case.ITERATIONS_UNKNOWN, "no whole iteration is in the time that all hosts recorded")
    exposed = times.exposed_share_of_all_time
    if exposed < EXPOSED_MATTERS:
        return Verdict(Case.COMPUTE_BOUND, compute_bound(exposed))
    said = (
        f"{percent(exposed)} of all time the ranks only wait; what for, digests that were made host by host do not tell"
    )
    worst = last.ranks[0] if last.ranks else None
    if worst is not None and worst.matters:
        name = f"rank {worst.rank} on {worst.host}" if worst.rank is not None else f"a process on {worst.host}"
        said += f", but {name} comes last by much in {count(worst.matters, 'iteration')} of {last.iterations}"
    return Verdict(Case.UNSEEN, said, "make one digest of all traces, or report the traces")


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
    return tuple(
        f"{host.host.name}: {said}" for host, job in zip(found.hosts, found.jobs, strict=True) for said in job.damage
    )


def _meta(found: ApartConcluded) -> Meta:
    """Return the description of the first host, of all hosts."""
    metas = [host.host.meta for host in found.hosts]
    names = [host.host.name for host in found.hosts]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    losses = Losses()
    for meta in metas:
        losses = losses + meta.losses
    return replace(
        metas[0],
        host=f"{count(len(names), 'host')}: {', '.join(names[:_NAMED])}{more}" if len(names) > 1 else names[0],
        targets=tuple(target for meta in metas for target in meta.targets),
        started_ns=found.span_ns[0],
        stopped_ns=found.span_ns[1],
        losses=losses,
        warnings=tuple(
            dict.fromkeys(f"{host.host.name}: {said}" for host in found.hosts for said in host.host.meta.warnings)
        ),
    )
