"""What a verdict is, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from netprof.analysis.account.causes import Cause
from netprof.analysis.findings.advice import Advice
from netprof.analysis.findings.bounds.bounds import BoundsFinding
from netprof.analysis.findings.iterations.iterations import IterationsFinding
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.findings.stragglers.how_often import HeldUpSteps
from netprof.analysis.findings.stragglers.stragglers import StragglersFinding
from netprof.analysis.findings.stragglers.thread_time import ThreadTime
from netprof.analysis.findings.verdict.step import Step
from netprof.analysis.findings.waiting.cause_words import CAUSE_WORDS, ProblemKind
from netprof.analysis.findings.waiting.waiting_finding import WaitingFinding
from netprof.units import percent

WARM = 10
"""Steps from which on a verdict stands."""


class Case(Enum):
    """What kind of verdict it is where no cause of waiting is given."""

    NO_DATA = "no_data"
    ITERATIONS_UNKNOWN = "iterations_unknown"
    TOO_LITTLE = "too_little"
    ALONE = "alone"
    ASLEEP = "asleep"
    COMPUTE_BOUND = "compute_bound"
    STALLED = "stalled"
    NOT_STARTED = "not_started"


_FAMILIES = {
    Case.NO_DATA: ProblemKind.UNKNOWN,
    Case.ITERATIONS_UNKNOWN: ProblemKind.UNKNOWN,
    Case.TOO_LITTLE: ProblemKind.UNKNOWN,
    Case.ALONE: ProblemKind.COMPUTE,
    Case.ASLEEP: ProblemKind.UNSEEN,
    Case.COMPUTE_BOUND: ProblemKind.COMPUTE,
    Case.STALLED: ProblemKind.STALLED,
    Case.NOT_STARTED: ProblemKind.STALLED,
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


def busiest(links: Sequence[LinkSummary]) -> LinkSummary | None:
    """Return the link that was busiest while gradients waited, or else over all; None without traffic."""
    busy = [link for link in links if link.moved_bytes > 0]
    return max(busy, key=lambda link: (link.waiting_utilization or 0.0, link.moved_bytes), default=None)


def usage(links: Sequence[LinkSummary]) -> str:
    """Say how busy the busiest link is in the mean; nothing where no line rate is known."""
    used = ((link.busier_utilization, link) for link in links if link.moved_bytes > 0)
    rated = [(usage, link) for usage, link in used if usage is not None]
    if not rated:
        return ""
    usage, link = max(rated, key=lambda pair: pair[0])
    return f"{link.name} averages {percent(usage)} of line rate"
