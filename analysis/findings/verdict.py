"""The first sentence of the report: what the job waits for most, and what to do about it, read off the account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from netprof.analysis.account.causes import (
    HOST,
    LATE_RANK,
    LINK_FULL,
    LOSS,
    OTHER_TRAFFIC,
    TRANSPORT,
    UNSEEN,
)
from netprof.analysis.findings.bounds import BOUNDS
from netprof.analysis.findings.bounds_finding import BoundsFinding
from netprof.analysis.findings.cpu_shortage import CPU_SHORTAGE, CpuShortages
from netprof.analysis.findings.hang import HANG
from netprof.analysis.findings.iterations import ITERATIONS, IterationsFinding
from netprof.analysis.findings.link_summary import LinkSummary
from netprof.analysis.findings.links import LINKS
from netprof.analysis.findings.nccl import NCCL
from netprof.analysis.findings.stall import STALLED_AT_END
from netprof.analysis.findings.thread_time import THREAD_TIME, ThreadTime
from netprof.analysis.findings.waiting import WAITING
from netprof.analysis.findings.waiting_finding import CauseShare, WaitingFinding
from netprof.analysis.inference.sources import InferredSummary
from netprof.analysis.section import Analysis, Section
from netprof.units import duration, percent

EXPOSED_MATTERS = 0.10
"""Exposed communication below this share of all time: the job is compute-bound."""
EXPOSED_RULES = 0.50
"""From this share on the job is communication-bound, between the two it is partly so."""
ASLEEP_MATTERS = 0.50
"""From this share of time on in which threads neither compute nor communicate, a job is not called compute-bound."""
FEWEST = 5
"""Iterations of a rank, in a small part of the recording, of which nothing is concluded."""
SECOND_MATTERS = 0.20
"""Share of the waiting from which on the second cause is named too."""


class Case(Enum):
    """What kind of verdict it is: a cause of waiting, or why none is given."""

    NO_DATA = "no_data"
    ITERATIONS_UNKNOWN = "iterations_unknown"
    TOO_LITTLE = "too_little"
    ALONE = "alone"
    ASLEEP = "asleep"
    COMPUTE_BOUND = "compute_bound"
    STALLED = "stalled"
    LATE_RANK = LATE_RANK.name
    LINK_FULL = LINK_FULL.name
    OTHER_TRAFFIC = OTHER_TRAFFIC.name
    LOSS = LOSS.name
    TRANSPORT = TRANSPORT.name
    HOST = HOST.name
    UNSEEN = UNSEEN.name


@dataclass(frozen=True)
class Verdict:
    """The case and its sentence, which names the numbers that it rests on, and what to do next ("": nothing).

    `link` is the one that was busiest while gradients waited, or else over all; None without traffic.
    """

    case: Case
    sentence: str
    advice: str = ""
    link: LinkSummary | None = None

    @property
    def text(self) -> str:
        """All of it in one sentence."""
        return f"{self.sentence}: {self.advice}" if self.advice else self.sentence


def judge(
    iterations: IterationsFinding,
    waiting: WaitingFinding | None,
    links: Sequence[LinkSummary],
    *,
    only_enqueues: bool = False,
    bounds: BoundsFinding | None = None,
    time: ThreadTime | None = None,
) -> Verdict:
    """Judge the job by the largest cause of its waiting.

    `only_enqueues` says that the job's collectives run where the host does not see them (NCCL), and `bounds` what is
    known of the waiting all the same. `time` is where the time of its threads goes, as the kernel sees it.
    """
    busy = [link for link in links if link.moved_bytes > 0]
    busiest = max(busy, key=lambda link: (link.waiting_utilization or 0.0, link.moved_bytes), default=None)
    if waiting is None and bounds is not None and bounds.is_known:
        return replace(_within_bounds(bounds, busy), link=busiest)
    if waiting is None and (not only_enqueues or iterations.durations is None):
        return replace(_without_iterations(busy, iterations.inferred), link=busiest)
    if waiting is None or only_enqueues:
        return Verdict(Case.UNSEEN, _on_gpus(busy), link=busiest)
    if waiting.exposed_share < EXPOSED_MATTERS or not waiting.causes:
        return replace(_hardly_waits(iterations, waiting, busy, time), link=busiest)
    first, *others = waiting.causes
    bound = "communication-bound" if waiting.exposed_share >= EXPOSED_RULES else "partly communication-bound"
    waits = f"{percent(waiting.exposed_share)} of all time the job only waits"
    sentence = f"{bound}: {waits}; {first.sentence}{_gain(first, waiting)}"
    if others and others[0].share >= SECOND_MATTERS:
        sentence += f"; {others[0].sentence}"
    return Verdict(Case(first.cause.name), sentence, first.advice, busiest)


def _hardly_waits(
    iterations: IterationsFinding, waiting: WaitingFinding, busy: Sequence[LinkSummary], time: ThreadTime | None
) -> Verdict:
    """Judge a job that hardly waits for communication: that it computes needs to be seen."""
    if iterations.durations is None:
        return _without_iterations(busy, iterations.inferred)
    whole = waiting.window_ns + waiting.unknown_ns
    if len(iterations.times) < FEWEST * len(waiting.by_rank) and waiting.unknown_ns > whole / 2:
        seen = f"{len(iterations.times)} whole iterations of {len(waiting.by_rank)} processes"
        return Verdict(Case.TOO_LITTLE, f"too little seen: {seen}, in {percent(waiting.window_ns / whole)} of the time")
    if time is not None and time.asleep >= ASLEEP_MATTERS:
        waits = f"{percent(waiting.exposed_share)} of all time the job only waits for communication"
        return Verdict(
            Case.ASLEEP,
            f"neither communication nor computing: {waits}, and {percent(time.asleep)} its training threads are "
            f"blocked elsewhere, mostly {time.mostly}",
            "look at data loading and other input",
        )
    return Verdict(Case.COMPUTE_BOUND, compute_bound(waiting.exposed_share, busy))


def _within_bounds(found: BoundsFinding, busy: Sequence[LinkSummary]) -> Verdict:
    """Judge by what both bounds say; where they disagree, that is said."""
    low, high = found.shares
    why = "NCCL only enqueues" if found.on_gpu else "no mark tells when a collective is done"
    waits = f"{found.said} of all time the job waits for communication (bounds: {why})"
    if high < EXPOSED_MATTERS or not found.most.causes:
        usage = _busiest_usage(busy)
        return Verdict(Case.COMPUTE_BOUND, f"compute-bound: {waits}{f', and {usage}' if usage else ''}")
    if low < EXPOSED_MATTERS:
        return Verdict(Case.UNSEEN, f"perhaps communication-bound: {waits}")
    bound = "communication-bound" if low >= EXPOSED_RULES else "at least partly communication-bound"
    first = found.sure_cause
    if first is None:
        return Verdict(Case.UNSEEN, f"{bound}: {waits}; for what most of all, the bounds do not tell")
    return Verdict(Case(first.cause.name), f"{bound}: {waits}; of that at most, {first.sentence}", first.advice)


def _gain(cause: CauseShare, waiting: WaitingFinding) -> str:
    """Say what the job would gain without the cause."""
    longest_ns = max(rank.window_ns for rank in waiting.by_rank)
    return f" (without that, at most {percent(cause.saves_s * 1e9 / longest_ns)} less time)" if longest_ns else ""


def compute_bound(exposed: float, busy: Sequence[LinkSummary] = ()) -> str:
    """Say that a job hardly waits: `exposed` is the share of all time in which it does."""
    text = f"compute-bound: only {percent(exposed)} of all time the job only waits for communication"
    if usage := _busiest_usage(busy):
        text += f", and {usage}"
    return f"{text}: a faster network would gain at most those {percent(exposed)}"


def _on_gpus(busy: Sequence[LinkSummary]) -> str:
    text = "the collectives run on GPUs: NCCL only enqueues them, so what the ranks wait for is not seen from the host"
    return f"{text}; {usage}" if (usage := _busiest_usage(busy)) else text


def _busiest_usage(busy: Sequence[LinkSummary]) -> str:
    """Say how busy the busiest link is in the mean; nothing where no line rate is known."""
    rated = [(max(link.utilization_tx or 0, link.utilization_rx or 0), link) for link in busy if link.line_rate_bps]
    if not rated:
        return ""
    usage, link = max(rated, key=lambda pair: pair[0])
    return f"{link.name} averages {percent(usage)} of line rate"


def _inferred(found: InferredSummary) -> str:
    return (
        f"{found.count} iterations of {duration(found.period_s)} are inferred from {found.method} (confidence "
        f"{found.confidence:.2f}), their phases are unknown"
    )


def _without_iterations(busy: Sequence[LinkSummary], inferred: InferredSummary | None) -> Verdict:
    if not busy and inferred is not None:
        return Verdict(Case.ITERATIONS_UNKNOWN, f"{_inferred(inferred)}, and no traffic of the job was seen")
    if not busy:
        return Verdict(Case.NO_DATA, "nothing to judge: neither iterations nor traffic of the job were seen")
    text = "iterations are unknown (no DDP marks)" if inferred is None else _inferred(inferred)
    link = max(busy, key=lambda link: max(link.utilization_tx or 0.0, link.utilization_rx or 0.0))
    known = [u for u in (link.utilization_tx, link.utilization_rx) if u is not None]
    if not known:
        return Verdict(
            Case.ITERATIONS_UNKNOWN,
            f"{text} and so is the line rate of {link.name}: only bytes per flow can be shown",
        )
    return Verdict(
        Case.ITERATIONS_UNKNOWN,
        f"{text}, so nothing can be said about what the job waits for; {link.name} averages {percent(max(known))} "
        "of line rate over the recording",
    )


def _conclude(analysis: Analysis) -> Verdict:
    found = judge(
        analysis.of(ITERATIONS),
        analysis.of(WAITING),
        analysis.of(LINKS),
        only_enqueues=analysis.of(NCCL).only_enqueues,
        bounds=analysis.of(BOUNDS),
        time=analysis.of(THREAD_TIME),
    )
    if analysis.evidence.world_size == 1 and found.case is not Case.NO_DATA:
        return Verdict(Case.ALONE, "one rank alone: it has nothing to communicate", link=found.link)
    found = _with_shortage(found, analysis.of(CPU_SHORTAGE), analysis.of(WAITING))
    hang = analysis.of(HANG)
    if analysis.meta.stalled:
        return Verdict(Case.STALLED, f"stalled: {analysis.meta.stalled}", "look at what that rank does", found.link)
    if hang is not None:
        return Verdict(Case.STALLED, hang.sentence, hang.advice, found.link)
    sentence = analysis.of(STALLED_AT_END)
    if sentence is None:
        return found
    return replace(found, case=Case.STALLED, sentence=f"{sentence} (when the recording ended)", advice="")


def _with_shortage(found: Verdict, short: CpuShortages, waiting: WaitingFinding | None) -> Verdict:
    """Say that CPUs are short, where that is behind what the job waits for."""
    if not short.sentence or waiting is None or not waiting.causes:
        return found
    first = waiting.causes[0]
    late = found.case is Case.LATE_RANK and short.explains(first.doing, first.rank)
    busy = found.case is Case.HOST or (found.case is Case.TRANSPORT and first.by_hosts)
    if not late and not busy:
        return found
    return replace(found, sentence=f"{found.sentence}; {short.sentence}", advice=short.advice)


def _document(verdict: Verdict) -> dict[str, Any]:
    return {"verdict": verdict.text, "verdict_case": verdict.case.value}


VERDICT = Section("verdict", _conclude, document=_document)
