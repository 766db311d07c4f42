"""The first sentence of the report: a family, who or what, how much of a step it costs, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from netprof.analysis.account.causes import HOST, LATE_RANK, TRANSPORT, UNSEEN, Cause
from netprof.analysis.account.held_up import Kind
from netprof.analysis.declared import json_of, plain
from netprof.analysis.events.exits import clock_time, went_on
from netprof.analysis.findings.advice import Advice
from netprof.analysis.findings.blame import ALONE, Blame
from netprof.analysis.findings.bounds.bounds import BOUNDS, BoundsFinding
from netprof.analysis.findings.collectives.nccl import NCCL
from netprof.analysis.findings.iterations.iterations import ITERATIONS, IterationsFinding
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.recorded import RECORDED
from netprof.analysis.findings.stalls.exits import EXITS, Ended
from netprof.analysis.findings.stalls.hang import HANG
from netprof.analysis.findings.stalls.stall import STALL, STALLED_AT_END, killed, next_steps
from netprof.analysis.findings.stalls.stall import headline as stall_headline
from netprof.analysis.findings.stragglers.cpu_shortage import CPU_SHORTAGE, CpuShortages
from netprof.analysis.findings.stragglers.how_often import HeldUpSteps, Pattern
from netprof.analysis.findings.stragglers.stragglers import STRAGGLERS, Straggler, StragglersFinding
from netprof.analysis.findings.stragglers.thread_time import THREAD_TIME, ThreadTime
from netprof.analysis.findings.verdict.step import Step, mean_step
from netprof.analysis.findings.waiting.cause_words import CAUSE_WORDS, CauseFacts, ProblemKind, fitted
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.findings.waiting.waiting_finding import CauseShare, WaitingFinding
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.flow_table import LinkKey
from netprof.units import count, duration, milliseconds, percent

EXPOSED_MATTERS = 0.10
"""Waiting below this share of all time: the job computes."""
ASLEEP_MATTERS = 0.50
"""From this share of time on in which threads neither compute nor communicate, a job is not said to compute."""
FEWEST = 5
"""Iterations of a rank, in a small part of the recording, of which nothing is concluded."""
SECOND_MATTERS = 0.20
"""Share of what the first cause costs from which on the second one is named too."""
WARM = 10
"""Steps from which on a verdict stands."""
_COMMON = 0.3
"""Share of the mean wait that removing one cause has to save, for causes to be compared by what they save."""
_LEAST_COST_S = 1e-4
_SLOWER = 1.5
"""How many times as fast all other links are from which on one is called slow."""


class Case(Enum):
    """What kind of verdict it is where no cause of waiting is given."""

    NO_DATA = "no_data"
    ITERATIONS_UNKNOWN = "iterations_unknown"
    TOO_LITTLE = "too_little"
    ALONE = "alone"
    ASLEEP = "asleep"
    COMPUTE_BOUND = "compute_bound"
    STALLED = "stalled"


_FAMILIES = {
    Case.NO_DATA: ProblemKind.UNKNOWN,
    Case.ITERATIONS_UNKNOWN: ProblemKind.UNKNOWN,
    Case.TOO_LITTLE: ProblemKind.UNKNOWN,
    Case.ALONE: ProblemKind.COMPUTE,
    Case.ASLEEP: ProblemKind.UNSEEN,
    Case.COMPUTE_BOUND: ProblemKind.COMPUTE,
    Case.STALLED: ProblemKind.STALLED,
}


@dataclass(frozen=True)
class Verdict:
    """What holds the job up, if anything: a headline of at most 78 columns, one sentence, and what to do next.

    `step` is what all its numbers are parts of; None where the phases of a step are not known. `steps` were seen, and
    `often` is in how many of them a rank held the others up. `link` was the busiest one while gradients waited, or else
    over all.
    """

    case: Case | Cause
    headline: str
    sentence: str
    next: tuple[Advice, ...] = ()
    step: Step | None = None
    steps: int = 0
    often: HeldUpSteps | None = None
    link: LinkSummary | None = None

    @property
    def family(self) -> ProblemKind:
        """What kind of problem it is."""
        return CAUSE_WORDS[self.case].family if isinstance(self.case, Cause) else _FAMILIES[self.case]

    @property
    def text(self) -> str:
        """The headline and its sentence in one."""
        return f"{self.headline}; {self.sentence}" if self.sentence else self.headline

    @property
    def is_warming_up(self) -> bool:
        """Whether fewer steps were seen than a verdict needs to stand."""
        return 0 < self.steps < WARM


@dataclass(frozen=True)
class Grounds:
    """What a verdict rests on: findings of other sections, and for how long was recorded, seconds."""

    iterations: IterationsFinding
    waiting: WaitingFinding | None
    links: Sequence[LinkSummary]
    stragglers: StragglersFinding | None = None
    bounds: BoundsFinding | None = None
    only_enqueues: bool = False
    recorded_s: float = 0.0
    time: ThreadTime | None = None


def judge(grounds: Grounds) -> Verdict:
    """Judge the job by the cause that costs most of a step."""
    waiting, bounds, iterations = grounds.waiting, grounds.bounds, grounds.iterations
    if waiting is None and bounds is not None and bounds.is_known:
        return _within_bounds(bounds, grounds)
    if waiting is None and (iterations.durations is None or not (iterations.only_launch or grounds.only_enqueues)):
        return _without_iterations(grounds)
    if waiting is None or grounds.only_enqueues:
        headline = "WAITING UNKNOWN: NCCL only enqueues collectives, the host does not see them"
        if not grounds.only_enqueues and (bounds is None or not bounds.on_gpu):
            headline = "WAITING UNKNOWN: no mark tells when a collective is done"
        profile = Advice("record a torch profile of some steps: --kineto 10")
        return Verdict(UNSEEN, headline, _usage(grounds.links), (profile,))
    step = mean_step(iterations, waiting)
    if waiting.exposed_share < EXPOSED_MATTERS or not waiting.causes or step is None:
        return _hardly_waits(waiting, grounds, step)
    return _of_causes(waiting, step, grounds)


def _of_causes(waiting: WaitingFinding, step: Step, grounds: Grounds) -> Verdict:
    costs = {each.cause: step.saves_s(each) for each in waiting.causes}
    apart = max(costs.values()) < _COMMON * step.waits_s
    if apart:  # each rank waits at another time: no cause alone makes steps shorter, so the longest one is named
        costs = {each.cause: step.mean_s(each) for each in waiting.causes}
    first, *others = sorted(waiting.causes, key=lambda each: (-costs[each.cause], -each.ns))
    facts_of = {each.cause: _facts(each, waiting, step.seconds, costs[each.cause], grounds) for each in waiting.causes}
    facts, words = facts_of[first.cause], CAUSE_WORDS[first.cause]
    for each in waiting.causes:
        step = step.naming(each, facts_of[each.cause].named, facts_of[each.cause].own_part)
    without_s = max(step.seconds - facts.costs_s * facts.own_part, 0.0)
    sentence = f"without that a step takes {milliseconds(without_s)} instead of {milliseconds(step.seconds)}"
    if apart:
        sentence = f"the mean rank waits {milliseconds(step.waits_s)} of a step of {milliseconds(step.seconds)}"
    next_steps = words.next(facts)
    for each in others[:1]:
        cost_s = costs[each.cause]
        if cost_s >= SECOND_MATTERS * facts.costs_s and cost_s > _LEAST_COST_S:
            sentence += f"; {each.cause.title} costs {milliseconds(cost_s)} of it"
            next_steps = next_steps + CAUSE_WORDS[each.cause].next(facts_of[each.cause])
    if first.cause is LATE_RANK and facts.often is not None and facts.often.sentence:
        sentence = f"{sentence}; {facts.often.sentence}"
    headline, link = fitted(words.headline(facts)), busiest(grounds.links)
    return Verdict(first.cause, headline, sentence, tuple(next_steps), step, step.steps, facts.often, link)


def _facts(each: CauseShare, waiting: WaitingFinding, step_s: float, costs_s: float, grounds: Grounds) -> CauseFacts:
    who = waiting.made_of.blames.get(each.cause, Blame())
    straggler, (own_bps, others_bps) = _straggler(each, who, grounds.stragglers), _rates(who, grounds.links)
    rates_bps = own_bps, min(others_bps, default=None)
    is_slower = len(who.ranks) == 1 and bool(own_bps) and min(others_bps, default=0.0) > _SLOWER * (own_bps or 0.0)
    return CauseFacts(
        each,
        who,
        step_s,
        costs_s,
        len(waiting.by_rank),
        doing=None if straggler is None else straggler.doing,
        often=_often(each, who, grounds.stragglers),
        pid=_pid(straggler, who, waiting),
        alone=who.alone or is_slower or (len(others_bps) > 0 and _holds_up(who, grounds.stragglers)),
        links=len(others_bps) + (who.link is not None),
        rates_bps=rates_bps,
    )


def _straggler(each: CauseShare, who: Blame, finding: StragglersFinding | None) -> Straggler | None:
    """Return the straggler that is behind a cause; None where that names none that surely holds the job up."""
    if finding is None or each.cause not in (LATE_RANK, HOST):
        return None
    alike = (one for one in finding.stragglers if one.kind is Kind.RANK and one.who.label == who.label)
    return next(alike, None)


def _often(each: CauseShare, who: Blame, finding: StragglersFinding | None) -> HeldUpSteps | None:
    """Return in how many steps the rank that is named held the others up, or each of those that are alike."""
    if finding is None or each.cause not in finding.often or not who.label:
        return None
    often = finding.often[each.cause]
    if who.part >= ALONE or len(who.ranks) < 2:
        steps = often.of((who.label,))
        straggler = _straggler(each, who, finding)
        return steps if straggler is None or steps is None else replace(steps, held_s=straggler.held_ns / 1e9)
    names = {f"rank {rank}" for rank in who.ranks}
    labels = [label for label in often.of_rank if label.partition(" on ")[0] in names]
    return often.of(labels) if each.cause is LATE_RANK else None


def _pid(straggler: Straggler | None, who: Blame, waiting: WaitingFinding) -> int | None:
    """Return the process behind a cause by its own host's number; None where several hosts may number others so."""
    if who.rank is None or " on " in who.label:
        return None
    if straggler is not None and straggler.who.pid is not None:
        return straggler.who.pid
    return next((rank.pid for rank in waiting.by_rank if rank.rank == who.rank), None)


def _rates(who: Blame, links: Sequence[LinkSummary]) -> tuple[float | None, list[float]]:
    """Return the line rate of the link that is named, and of the other ones that carry the job's bytes.

    What lies on one path with it is no other one.
    """
    named = [each for each in links if (each.device, each.ranks) == (who.link, who.ranks)]
    way = frozenset[LinkKey]().union(*(each.way for each in named))
    others = [each.line_rate_bps for each in links if each.moved_bytes > 0 and not each.way & way]
    return (named[0].line_rate_bps if named else None), [bps for bps in others if bps]


def _holds_up(who: Blame, finding: StragglersFinding | None) -> bool:
    """Say whether a link is one that surely holds the others up."""
    links = () if finding is None else (one.who for one in finding.stragglers if one.kind is Kind.LINK)
    return any((one.link, one.ranks) == (who.link, who.ranks) for one in links)


def busiest(links: Sequence[LinkSummary]) -> LinkSummary | None:
    """Return the link that was busiest while gradients waited, or else over all; None without traffic."""
    busy = [link for link in links if link.moved_bytes > 0]
    return max(busy, key=lambda link: (link.waiting_utilization or 0.0, link.moved_bytes), default=None)


def _within_bounds(finding: BoundsFinding, grounds: Grounds) -> Verdict:
    """Judge by both bounds; where they disagree, the headline says so."""
    low, high = finding.shares
    why = "NCCL only enqueues" if finding.on_gpu else "no mark tells when a collective is done"
    bounds = f"waiting is known within bounds: {why}"
    link = busiest(grounds.links)
    steps = max(finding.counted.of_pid.values(), default=0)
    if high < EXPOSED_MATTERS or not finding.most.causes:
        headline = f"COMPUTE: the job waits {finding.shares_text} of the time"
        return Verdict(Case.COMPUTE_BOUND, headline, bounds, steps=steps, link=link)
    exact = Advice("a torch profile of some steps gives exact times: --kineto 10, or report --with-kineto FILE")
    first = finding.sure_cause
    if low < EXPOSED_MATTERS or first is None:
        headline = f"WAITS {finding.shares_text} of the time: the bounds do not tell for what most"
        return Verdict(UNSEEN, headline, bounds, (exact,), None, steps, link=link)
    words, ranks = CAUSE_WORDS[first.cause], max(1, len(finding.most.by_rank))
    each_s = max(1, len(finding.most.made_of.by_iteration_ns)) * 1e9
    costs_s = first.saves_s * 1e9 / each_s or first.ns / ranks / each_s
    facts = _facts(first, finding.most, finding.most.window_ns / ranks / each_s, costs_s, grounds)
    sentence = f"at most: the job waits {finding.shares_text} of the time, and {bounds}"
    headline, advice = fitted(words.headline(facts)), (*words.next(facts), exact)
    return Verdict(first.cause, headline, sentence, advice, None, steps, facts.often, link)


def _hardly_waits(waiting: WaitingFinding, grounds: Grounds, step: Step | None) -> Verdict:
    """Judge a job that hardly waits for communication: that it computes needs to be seen."""
    times, ranks, link = grounds.iterations.times, len(waiting.by_rank), busiest(grounds.links)
    if grounds.iterations.durations is None:
        return _without_iterations(grounds)
    whole, steps = waiting.window_ns + waiting.unknown_ns, 0 if step is None else step.steps
    if len(times) < FEWEST * ranks and waiting.unknown_ns > whole / 2:
        seen = f"{len(times)} whole iterations of {ranks} processes"
        headline = f"TOO LITTLE SEEN: {count(steps, 'step')} in {percent(waiting.window_ns / whole)} of the time"
        longer = Advice("record for longer", "netprof attach --duration 60s PID")
        return Verdict(Case.TOO_LITTLE, headline, seen, (longer,), step, steps, link=link)
    if grounds.time is not None and grounds.time.asleep >= ASLEEP_MATTERS:
        asleep, mostly = percent(grounds.time.asleep), f"mostly {grounds.time.mostly}"
        headline = fitted(f"ASLEEP {asleep} of the time: threads are blocked, {mostly}")
        sentence = (
            f"neither communication nor computing: the job waits {percent(waiting.exposed_share)} of the time, its "
            f"threads are blocked elsewhere {asleep} of it, {mostly}"
        )
        look = Advice("look at data loading and other input", "py-spy dump --pid PID")
        return Verdict(Case.ASLEEP, headline, sentence, (look,), step, steps, link=link)
    return _compute(waiting.exposed_share, grounds, step)


def _compute(share: float, grounds: Grounds, step: Step | None) -> Verdict:
    headline = f"COMPUTE: the job waits {percent(share)} of the time"
    gains = f"a faster network would gain at most {milliseconds(step.waits_s)} of a step" if step is not None else ""
    sentence, steps = "; ".join(filter(None, (gains, _usage(grounds.links)))), 0 if step is None else step.steps
    profile = Advice("profile the computation, not the network", "py-spy top --pid PID")
    return Verdict(Case.COMPUTE_BOUND, headline, sentence, (profile,), step, steps, link=busiest(grounds.links))


def _usage(links: Sequence[LinkSummary]) -> str:
    """Say how busy the busiest link is in the mean; nothing where no line rate is known."""
    used = ((link.busier_utilization, link) for link in links if link.moved_bytes > 0)
    rated = [(usage, link) for usage, link in used if usage is not None]
    if not rated:
        return ""
    usage, link = max(rated, key=lambda pair: pair[0])
    return f"{link.name} averages {percent(usage)} of line rate"


def _without_iterations(grounds: Grounds) -> Verdict:
    busy = [link for link in grounds.links if link.moved_bytes > 0]
    seen = f"in {duration(grounds.recorded_s)}" if grounds.recorded_s else "in the recording"
    doctor = Advice("check that the processes train and that their framework can be read", "netprof doctor PID")
    if not busy and grounds.iterations.inferred is None:
        sentence = "nothing to judge: neither iterations nor traffic of the job were seen"
        headline = f"TOO LITTLE SEEN: neither a step nor a byte of the job {seen}"
        return Verdict(Case.NO_DATA, headline, sentence, (doctor,))
    inferred = grounds.iterations.inferred
    if inferred is None:
        headline, how = f"TOO LITTLE SEEN: no step ended {seen}", "iterations are unknown (no DDP marks)"
        if grounds.iterations.count:
            how = "no whole iteration was recorded"
    else:
        headline = f"TOO LITTLE SEEN: steps of {milliseconds(inferred.period_s)}, but no marks of their phases"
        how = (
            f"{inferred.count} iterations of {duration(inferred.period_s)} are inferred from {inferred.method} "
            f"(confidence {inferred.confidence:.2f}), their phases are unknown"
        )
    usage = _usage(busy) or "the line rate is unknown too: only bytes per flow can be shown"
    steps, link = 0 if inferred is None else inferred.count, busiest(grounds.links)
    return Verdict(Case.ITERATIONS_UNKNOWN, fitted(headline), f"{how}; {usage}", (doctor,), steps=steps, link=link)


def _conclude(analysis: Analysis) -> Verdict:
    verdict = judge(
        Grounds(
            analysis.of(ITERATIONS),
            analysis.of(WAITING),
            analysis.of(LINKS),
            analysis.of(STRAGGLERS),
            analysis.of(BOUNDS),
            analysis.of(NCCL).only_enqueues,
            analysis.of(RECORDED).total_ns / 1e9,
            analysis.of(THREAD_TIME),
        )
    )
    times = analysis.of(ITERATIONS).times
    alone = analysis.evidence.world_size == 1 and len(np.unique(times.pid)) < 2  # WORLD_SIZE may count nodes
    if alone and verdict.case is not Case.NO_DATA:
        headline = "COMPUTE: one rank alone, it has nothing to communicate"
        return Verdict(Case.ALONE, headline, "", step=verdict.step, link=verdict.link)
    verdict = _with_shortage(verdict, analysis.of(CPU_SHORTAGE), analysis.of(WAITING))
    hang, sentence = analysis.of(HANG), analysis.of(STALLED_AT_END)
    why = analysis.meta.stalled
    if why and (hang is not None or sentence is not None or not any(link.moved_bytes for link in analysis.of(LINKS))):
        look = (Advice("look at what that rank does", "py-spy dump --pid PID"),)
        return _of_a_stall(verdict, f"STALLED: {why}", why, look)
    if hang is not None:
        return _of_a_stall(verdict, hang.headline, hang.sentence, (Advice(hang.advice),))
    if sentence is not None:
        return _stalled(verdict, sentence, analysis)
    ended = analysis.of(EXITS).ended if EXITS in analysis.sections else ()
    crashes = (each for each in ended if each.exit.is_crash)
    crash = next((each for each in crashes if not went_on(each.exit.time_ns, times.pid, times.begin_ns)), None)
    return verdict if crash is None else _killed(verdict, crash)


def _with_shortage(verdict: Verdict, short: CpuShortages, waiting: WaitingFinding | None) -> Verdict:
    """Say that CPUs are short, where that is behind what the job waits for."""
    if not short.sentence or waiting is None:
        return verdict
    first = next((each for each in waiting.causes if each.cause.name == verdict.case.value), None)
    if first is None:
        return verdict
    late = verdict.case is LATE_RANK and short.explains(first.doing, first.rank)
    busy = verdict.case is HOST or (verdict.case is TRANSPORT and first.by_hosts)
    if not late and not busy:
        return verdict
    sentence = f"{verdict.sentence}; {short.sentence}"
    return replace(verdict, sentence=sentence, next=(Advice(short.advice), *verdict.next))


def _stalled(verdict: Verdict, sentence: str, analysis: Analysis) -> Verdict:
    """Return the verdict on a job that stands still when its recording ends; of digests only its sentence is known."""
    stall, evidence = analysis.of(STALL) if STALL in analysis.sections else None, analysis.evidence
    if stall is None:
        return _of_a_stall(verdict, f"STALLED when the recording ended: {sentence.partition(': ')[2]}", sentence, ())
    headline = stall_headline(stall, evidence.ranks, clock_time(analysis.meta, stall.since_ns), evidence.host_of)
    return _of_a_stall(verdict, headline, sentence, next_steps(stall, evidence.ranks, evidence.host_of))


def _killed(verdict: Verdict, crash: Ended) -> Verdict:
    """Return the verdict on a job of which a rank was killed: nothing else about it matters as much."""
    headline = f"STALLED since {crash.at}: {crash.name} {crash.exit.ending}"
    return _of_a_stall(verdict, headline, f"until then: {verdict.headline}", (killed(crash.name),))


def _of_a_stall(verdict: Verdict, headline: str, sentence: str, steps: tuple[Advice, ...]) -> Verdict:
    return replace(verdict, case=Case.STALLED, headline=fitted(headline), sentence=sentence, next=steps)


def _seen(verdict: Verdict) -> dict[str, Any]:
    often = verdict.often
    pattern = None if often is None else often.pattern
    late_steps = None if often is None else dict(often.of_rank)
    about = {"once": pattern is Pattern.ONCE, "pattern": plain(pattern), "late_steps": late_steps}
    return json_of(verdict, "steps warming_up=is_warming_up", **about)


def _document(verdict: Verdict) -> dict[str, Any]:
    return json_of(
        verdict,
        "verdict=text family headline sentence",
        verdict_case=verdict.case.value,
        next=[{"text": each.text, "command": each.command or None} for each in verdict.next],
        seen=_seen(verdict),
        step=None if verdict.step is None else verdict.step.document(),
    )


VERDICT = Section("verdict", _conclude, document=_document)
