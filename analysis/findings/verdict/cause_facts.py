"""What the words of a cause are made from: who is behind it, how fast its link is, in how many steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from netprof.analysis.account.causes import HOST, LATE_RANK
from netprof.analysis.account.held_up import Kind
from netprof.analysis.findings.blame import ALONE, Blame
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.findings.stragglers.how_often import HeldUpSteps
from netprof.analysis.findings.stragglers.stragglers import BY_NAME, Straggler, StragglersFinding
from netprof.analysis.findings.verdict.grounds import Grounds
from netprof.analysis.findings.verdict.step import Step
from netprof.analysis.findings.waiting.cause_words import CauseFacts
from netprof.analysis.findings.waiting.waiting_finding import CauseShare, WaitingFinding
from netprof.analysis.tables.flow_table import LinkKey

_SLOWER = 1.5
"""How many times as fast all other links are from which on one is called slow."""


def cause_facts(each: CauseShare, waiting: WaitingFinding, step: Step, costs_s: float, grounds: Grounds) -> CauseFacts:
    """Return what is known of one cause, which costs `costs_s` of a mean step."""
    who = waiting.made_of.blames.get(each.cause, Blame())
    straggler, (own_bps, others_bps) = _straggler(each, who, grounds.stragglers), _rates(who, grounds.links)
    rates_bps = own_bps, min(others_bps, default=None)
    is_slower = len(who.ranks) == 1 and bool(own_bps) and min(others_bps, default=0.0) > _SLOWER * (own_bps or 0.0)
    doing = None if straggler is None else straggler.doing
    if grounds.iterations.durations is None:
        doing = BY_NAME.get(each.doing or "")
    return CauseFacts(
        each,
        who,
        step.seconds,
        costs_s,
        len(waiting.by_rank),
        doing=doing,
        often=_often(each, who, grounds.stragglers),
        pid=_pid(straggler, who, waiting),
        alone=who.alone or is_slower or (len(others_bps) > 0 and holds_up(who, grounds.stragglers)),
        links=len(others_bps) + (who.link is not None),
        rates_bps=rates_bps,
        has_steps=step.steps > 0,
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


def holds_up(who: Blame, finding: StragglersFinding | None) -> bool:
    """Say whether a link is one that surely holds the others up."""
    links = () if finding is None else (one.who for one in finding.stragglers if one.kind is Kind.LINK)
    return any((one.link, one.ranks) == (who.link, who.ranks) for one in links)
