"""The first sentence of the report: a family, who or what, how much of a step it costs, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from netprof.analysis.account.causes import HOST, LATE_RANK, TRANSPORT, UNSEEN
from netprof.analysis.declared import json_of, plain
from netprof.analysis.events.exits import clock_time, went_on
from netprof.analysis.findings.advice import Advice
from netprof.analysis.findings.bounds.bounds import BOUNDS, BoundsFinding
from netprof.analysis.findings.collectives.nccl import NCCL
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.recorded import RECORDED
from netprof.analysis.findings.stalls.exits import EXITS
from netprof.analysis.findings.stalls.hang import HANG
from netprof.analysis.findings.stalls.stall import STALL, STALLED_AT_END, next_steps
from netprof.analysis.findings.stalls.stall import headline as stall_headline
from netprof.analysis.findings.stalls.stopped import STOPPED, of_ended
from netprof.analysis.findings.start_up import START_UP, Obstacle
from netprof.analysis.findings.stragglers.cpu_shortage import CPU_SHORTAGE, CpuShortages
from netprof.analysis.findings.stragglers.how_often import Pattern
from netprof.analysis.findings.stragglers.stragglers import STRAGGLERS
from netprof.analysis.findings.stragglers.thread_time import THREAD_TIME
from netprof.analysis.findings.verdict.cause_facts import cause_facts
from netprof.analysis.findings.verdict.grounds import Case, Grounds, Verdict, busiest, usage
from netprof.analysis.findings.verdict.step import Step, mean_step, step_of_all_time
from netprof.analysis.findings.verdict.without_account import how_steps_are_known, without_account
from netprof.analysis.findings.waiting.cause_words import CAUSE_WORDS, fitted
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.findings.waiting.waiting_finding import WaitingFinding
from netprof.analysis.section import Analysis, Section
from netprof.units import count, milliseconds, percent

EXPOSED_MATTERS = 0.10
"""Waiting below this share of all time: the job computes."""
ASLEEP_MATTERS = 0.50
"""From this share of time on in which threads neither compute nor communicate, a job is not said to compute."""
FEWEST = 5
"""Iterations of a rank, in a small part of the recording, of which nothing is concluded."""
SECOND_MATTERS = 0.20
"""Share of what the first cause costs from which on the second one is named too."""
_COMMON = 0.3
"""Share of the mean wait that removing one cause has to save, for causes to be compared by what they save."""
_LEAST_COST_S = 1e-4
_OBSTACLES = 3


def judge(grounds: Grounds) -> Verdict:
    """Judge the job by the cause that costs most of a step."""
    waiting, bounds, iterations = grounds.waiting, grounds.bounds, grounds.iterations
    if waiting is None and bounds is not None and bounds.is_known:
        return _within_bounds(bounds, grounds)
    if waiting is None and (iterations.durations is None or not (iterations.only_launch or grounds.only_enqueues)):
        return without_account(grounds)
    if waiting is None or grounds.only_enqueues:
        headline = "WAITING UNKNOWN: NCCL only enqueues collectives, the host does not see them"
        if not grounds.only_enqueues and (bounds is None or not bounds.on_gpu):
            headline = "WAITING UNKNOWN: no mark tells when a collective is done"
        profile = Advice("record a torch profile of some steps: --kineto 10")
        return Verdict(UNSEEN, headline, usage(grounds.links), (profile,))
    if iterations.durations is None:
        return _without_steps(waiting, grounds)
    step = mean_step(iterations, waiting)
    if waiting.exposed_share < EXPOSED_MATTERS or not waiting.causes or step is None:
        return _hardly_waits(waiting, grounds, step)
    return _of_causes(waiting, step, grounds)


def _without_steps(waiting: WaitingFinding, grounds: Grounds) -> Verdict:
    """Judge a job by the account of all its time: no mark tells of steps, or none was whole."""
    if waiting.exposed_share < EXPOSED_MATTERS or not waiting.causes:
        return without_account(grounds)
    step = step_of_all_time(grounds.iterations.inferred, waiting)
    verdict = _of_causes(waiting, step, grounds)
    sentence = f"{verdict.sentence}; {how_steps_are_known(grounds.iterations)}"
    return replace(verdict, sentence=sentence, step=verdict.step if step.steps else None)


def _of_causes(waiting: WaitingFinding, step: Step, grounds: Grounds) -> Verdict:
    costs = {each.cause: step.saves_s(each) for each in waiting.causes}
    apart = max(costs.values()) < _COMMON * step.waits_s
    if apart:  # each rank waits at another time: no cause alone makes steps shorter, so the longest one is named
        costs = {each.cause: step.mean_s(each) for each in waiting.causes}
    first, *others = sorted(waiting.causes, key=lambda each: (-costs[each.cause], -each.ns))
    facts_of = {each.cause: cause_facts(each, waiting, step, costs[each.cause], grounds) for each in waiting.causes}
    facts, words = facts_of[first.cause], CAUSE_WORDS[first.cause]
    for each in waiting.causes:
        step = step.naming(each, facts_of[each.cause].named, facts_of[each.cause].own_part)
    without_s = max(step.seconds - facts.costs_s * facts.own_part, 0.0)
    sentence = f"without that a step takes {milliseconds(without_s)} instead of {milliseconds(step.seconds)}"
    if apart:
        sentence = f"the mean rank waits {milliseconds(step.waits_s)} of a step of {milliseconds(step.seconds)}"
    if not step.steps:
        sentence = f"the mean process waits {percent(step.share(step.waits_s))} of the time"
    next_steps = words.next(facts)
    for each in others[:1]:
        cost_s = costs[each.cause]
        if cost_s >= SECOND_MATTERS * facts.costs_s and cost_s > _LEAST_COST_S:
            cost = milliseconds(cost_s) if step.steps else percent(step.share(cost_s))
            sentence += f"; {each.cause.title} costs {cost} of it"
            next_steps = next_steps + CAUSE_WORDS[each.cause].next(facts_of[each.cause])
    if first.cause is LATE_RANK and facts.often is not None and facts.often.sentence:
        sentence = f"{sentence}; {facts.often.sentence}"
    headline, link = fitted(words.headline(facts)), busiest(grounds.links)
    return Verdict(first.cause, headline, sentence, tuple(next_steps), step, step.steps, facts.often, link)


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
    mean = Step(finding.most.window_ns / ranks / each_s, steps, ranks, ())
    facts = cause_facts(first, finding.most, mean, costs_s, grounds)
    sentence = f"at most: the job waits {finding.shares_text} of the time, and {bounds}"
    headline, advice = fitted(words.headline(facts)), (*words.next(facts), exact)
    return Verdict(first.cause, headline, sentence, advice, None, steps, facts.often, link)


def _hardly_waits(waiting: WaitingFinding, grounds: Grounds, step: Step | None) -> Verdict:
    """Judge a job that hardly waits for communication: that it computes needs to be seen."""
    times, ranks, link = grounds.iterations.times, len(waiting.by_rank), busiest(grounds.links)
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
    sentence, steps = "; ".join(filter(None, (gains, usage(grounds.links)))), 0 if step is None else step.steps
    profile = Advice("profile the computation, not the network", "py-spy top --pid PID")
    return Verdict(Case.COMPUTE_BOUND, headline, sentence, (profile,), step, steps, link=busiest(grounds.links))


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
    ended = analysis.of(EXITS).ended if EXITS in analysis.sections else ()
    stopped = analysis.of(STOPPED) if STOPPED in analysis.sections else of_ended(ended)
    if stopped is not None and not went_on(stopped.exit.time_ns, times.pid, times.begin_ns):
        until = sentence or f"until then: {verdict.headline}"
        return _of_a_stall(verdict, stopped.headline, f"{stopped.sentence}; {until}", stopped.next)
    obstacles = analysis.of(START_UP) if START_UP in analysis.sections and not verdict.steps else ()
    if obstacles:
        return _not_started(verdict, obstacles)
    if hang is not None:
        return _of_a_stall(verdict, hang.headline, hang.sentence, (Advice(hang.advice),))
    if sentence is not None:
        return _stalled(verdict, sentence, analysis)
    return verdict


def _not_started(verdict: Verdict, obstacles: Sequence[Obstacle]) -> Verdict:
    """Return the verdict on a job that has not come to its first step, and something keeps it from there."""
    sentence = "; ".join(dict.fromkeys(each.sentence for each in obstacles[:_OBSTACLES]))
    advice = tuple(dict.fromkeys(each.advice for each in obstacles))
    headline = fitted(obstacles[0].headline)
    return replace(verdict, case=Case.NOT_STARTED, headline=headline, sentence=sentence, next=advice, step=None)


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
