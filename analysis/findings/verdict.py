"""One sentence: is the network the bottleneck, and on what evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from netprof.analysis.events.typical import Durations
from netprof.analysis.findings.collectives import COLLECTIVES
from netprof.analysis.findings.iterations import ITERATIONS
from netprof.analysis.findings.links import LINKS, LinkSummary
from netprof.analysis.inference.sources import InferredSummary
from netprof.analysis.section import Analysis, Section

EXPOSED_MATTERS = 0.10
"""Exposed communication below this share of an iteration: the job is compute-bound."""
EXPOSED_RULES = 0.50
"""From this share on the job is communication-bound, between the two it is partly so."""
AT_LINE_RATE = 0.80
"""Utilization while gradients wait from which on the link itself is the limit."""
LINK_IDLE = 0.30
"""Share of the time that gradients wait in which the link is idle, from which on that is the first thing to fix."""
HARDLY_ANY = 0.05
"""Share of the bytes that the collectives need, below which what a link did says nothing of them."""


class Case(Enum):
    """What kind of verdict it is."""

    NO_DATA = "no_data"
    ITERATIONS_UNKNOWN = "iterations_unknown"
    NO_TRAFFIC = "no_traffic"
    COMPUTE_BOUND = "compute_bound"
    LINE_RATE_UNKNOWN = "line_rate_unknown"
    AT_LINE_RATE = "at_line_rate"
    LINK_IDLE = "link_idle"
    BELOW_LINE_RATE = "below_line_rate"


@dataclass(frozen=True)
class Verdict:
    """The case and its sentence, which names the numbers that it rests on; `link` is the one that it speaks of."""

    case: Case
    sentence: str
    link: LinkSummary | None = None


def judge(
    durations: Durations | None,
    links: Sequence[LinkSummary],
    inferred: InferredSummary | None = None,
    sent_share: float | None = None,
) -> Verdict:
    """Judge the job, and name the link that was busiest while gradients waited, or else over all.

    `sent_share` is what was seen to be sent of what the collectives need, None where that is unknown.
    """
    busy = [link for link in links if link.moved_bytes > 0]
    found = _judge(durations, busy, inferred, sent_share)
    busiest = max(busy, key=lambda link: (link.waiting_utilization or 0.0, link.moved_bytes), default=None)
    return replace(found, link=busiest)


def _judge(
    durations: Durations | None,
    busy: Sequence[LinkSummary],
    inferred: InferredSummary | None,
    sent_share: float | None,
) -> Verdict:
    """Judge by EXPOSED_MATTERS, then AT_LINE_RATE, then LINK_IDLE, on the link that is busiest while gradients wait."""
    if durations is None:
        return _without_iterations(busy, inferred)
    exposed = durations.exposed_share
    if exposed < EXPOSED_MATTERS:
        return Verdict(Case.COMPUTE_BOUND, _compute_bound(exposed, busy))
    bound = "communication-bound" if exposed >= EXPOSED_RULES else "partly communication-bound"
    evidence = f"{bound}: {percent(exposed)} of an iteration is exposed communication"
    waiting = [link for link in busy if link.outstanding_ns]
    if not waiting or (sent_share is not None and sent_share < HARDLY_ANY):
        amount = "hardly any" if waiting else "no"
        return Verdict(
            Case.NO_TRAFFIC,
            f"{evidence}, but {amount} traffic of its ranks was seen: it goes another way (shared memory, RDMA, "
            "another process), so nothing can be said about the link",
        )
    link = max(waiting, key=_bytes_waiting)
    usage, idle = link.waiting_utilization, link.waiting_idle_share
    if usage is None:
        return Verdict(Case.LINE_RATE_UNKNOWN, _rate_unknown(evidence, link, idle))
    if usage >= AT_LINE_RATE:
        return Verdict(
            Case.AT_LINE_RATE,
            f"{evidence} and {link.device} runs at {percent(usage)} of line rate meanwhile: a faster link or fewer "
            "bytes would help, not a better transport",
        )
    if idle is not None and idle >= LINK_IDLE:
        return Verdict(
            Case.LINK_IDLE,
            f"{evidence}, and {link.device} is idle {percent(idle)} of the time that gradients wait: latency, "
            "negotiation, copying or a late peer costs this time, not the link's speed",
        )
    return Verdict(
        Case.BELOW_LINE_RATE,
        f"{evidence}, and {link.device} runs at only {percent(usage)} of line rate while gradients wait (idle "
        f"{percent(idle)}): the transport does not fill the link; a better one would help before a faster link",
    )


def percent(share: float | None) -> str:
    """Return a share as a person writes it; two digits below one percent."""
    if share is None:
        return "unknown"
    return f"{share * 100:.0f} %" if share >= 0.01 or share == 0 else f"{share * 100:.2g} %"


def _bytes_waiting(link: LinkSummary) -> float:
    """Rank links by utilization while gradients wait; without line rates, by bytes."""
    usage = link.waiting_utilization
    return usage if usage is not None else (link.tx_bytes_outstanding or 0.0) * 1e-30


def _compute_bound(exposed: float, busy: Sequence[LinkSummary]) -> str:
    text = f"compute-bound: only {percent(exposed)} of an iteration is exposed communication"
    rated = [(max(link.utilization_tx or 0, link.utilization_rx or 0), link) for link in busy if link.line_rate_bps]
    if rated:
        usage, link = max(rated, key=lambda pair: pair[0])
        text += f" and {link.device} averages {percent(usage)} of line rate"
    return f"{text}: a faster network would gain at most those {percent(exposed)}"


def _rate_unknown(evidence: str, link: LinkSummary, idle: float | None) -> str:
    text = f"{evidence}, but the line rate of {link.device} is unknown (give it with --line-rate)"
    if idle is not None and idle >= LINK_IDLE:
        return f"{text}; no packet moves in {percent(idle)} of the time that gradients wait"
    return f"{text}, so whether the link is the limit cannot be said"


def _inferred(found: InferredSummary) -> str:
    return (
        f"{found.count} iterations of {found.period_s * 1e3:.3g} ms are inferred from {found.method} (confidence "
        f"{found.confidence:.2f}), their phases are unknown"
    )


def _without_iterations(busy: Sequence[LinkSummary], inferred: InferredSummary | None) -> Verdict:
    if not busy:
        return Verdict(Case.NO_DATA, "nothing to judge: neither iterations nor traffic of the job were seen")
    text = "iterations are unknown (no DDP marks)" if inferred is None else _inferred(inferred)
    link = max(busy, key=lambda link: max(link.utilization_tx or 0.0, link.utilization_rx or 0.0))
    known = [u for u in (link.utilization_tx, link.utilization_rx) if u is not None]
    if not known:
        return Verdict(
            Case.ITERATIONS_UNKNOWN,
            f"{text} and so is the line rate of {link.device}: only bytes per flow can be shown",
        )
    return Verdict(
        Case.ITERATIONS_UNKNOWN,
        f"{text}, so nothing can be said about what the job waits for; {link.device} averages {percent(max(known))} "
        "of line rate over the recording",
    )


def _conclude(analysis: Analysis) -> Verdict:
    found, links = analysis.of(ITERATIONS), analysis.of(LINKS)
    sent_share = analysis.of(COLLECTIVES).summary.payload_to_algorithm_ratio
    return judge(found.durations, links, found.inferred, sent_share)


def _document(verdict: Verdict) -> dict[str, Any]:
    return {"verdict": verdict.sentence, "verdict_case": verdict.case.value}


VERDICT = Section("verdict", _conclude, document=_document)
