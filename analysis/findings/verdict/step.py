"""A mean step, part by part: what every number of the verdict is a part of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.declared import json_of
from netprof.analysis.events.phases import BACKWARD, FORWARD, REST
from netprof.analysis.events.typical import durations
from netprof.analysis.findings.iterations.iterations import IterationsFinding
from netprof.analysis.findings.waiting.waiting_finding import CauseShare, WaitingFinding
from netprof.analysis.inference.sources import InferredSummary


@dataclass(frozen=True)
class StepPart:
    """A phase of computing, or waiting for one cause: its mean length, and how much shorter a step is without it.

    `who` is behind it, as far as one or several that are alike can be named.
    """

    name: str
    title: str
    seconds: float
    saves_s: float = 0.0
    cause: CauseShare | None = None
    who: str = ""


@dataclass(frozen=True)
class Step:
    """The mean step of all ranks; `parts` add up to `seconds`.

    `steps` were seen of the job, of `ranks` ranks; 0 where it is no step, but all of the time.
    """

    seconds: float
    steps: int
    ranks: int
    parts: tuple[StepPart, ...]

    def saves_s(self, each: CauseShare) -> float:
        """Return how much shorter a step is without a cause: nothing where not all ranks wait at once."""
        return sum(part.saves_s for part in self._of(each))

    def mean_s(self, each: CauseShare) -> float:
        """Return how long the mean rank waits in a step for one cause."""
        return sum(part.seconds for part in self._of(each))

    def _of(self, each: CauseShare) -> list[StepPart]:
        return [part for part in self.parts if part.cause is not None and part.name == each.cause.name]

    def naming(self, each: CauseShare, who: str, part: float) -> Step:
        """Return the step with the part of a cause that `who` is behind, and the rest of that cause as others'."""
        parts: list[StepPart] = []
        for one in self.parts:
            shares = ((who, part), ("others", 1.0 - part)) if one.cause is each else ((one.who, 1.0),)
            parts += [
                replace(one, seconds=one.seconds * share, saves_s=one.saves_s * share, who=name)
                for name, share in shares
                if share > 0.0
            ]
        return replace(self, parts=tuple(parts))

    def share(self, seconds: float) -> float:
        """Return a time as a share of the step."""
        return seconds / self.seconds if self.seconds else 0.0

    @property
    def waits_s(self) -> float:
        """How long the mean rank waits in a step."""
        return sum(part.seconds for part in self.parts if part.cause is not None)

    def document(self) -> dict[str, Any]:
        """Return it for JSON: parts in seconds and shares that add up to the step."""
        parts = [
            json_of(part, "name title seconds", share=self.share(part.seconds))
            | ({"saves_s": part.saves_s, "who": part.who or None} if part.cause is not None else {})
            for part in self.parts
        ]
        return json_of(self, "seconds steps ranks", parts=parts)


def mean_step(iterations: IterationsFinding, waiting: WaitingFinding | None) -> Step | None:
    """Return the mean step; None without whole iterations whose phases are known.

    The account of waiting is the same time as the phase in which communication is exposed, cut by cause; what it does
    not explain of a damaged recording counts as the rest.
    """
    times, ranks = iterations.times, [] if waiting is None else [each.pid for each in waiting.by_rank]
    known = np.isin(times.pid, ranks)  # of some ranks it may be unknown what they wait
    lengths = iterations.durations if known.all() else durations(times.where(known))
    if waiting is None or lengths is None or iterations.only_launch or not waiting.window_ns:
        return None
    steps = len(waiting.made_of.by_iteration_ns)
    each_s = 1e9 * lengths.count
    whole_s = waiting.window_ns / each_s
    forward_s, backward_s = lengths.all_time.forward, lengths.all_time.backward
    waits = sorted((_waits(each, each_s, steps) for each in waiting.causes), key=lambda part: -part.saves_s)
    rest_s = max(0.0, whole_s - forward_s - backward_s - sum(part.seconds for part in waits))
    unseen = iterations.forward_unseen or bool(iterations.stepped)
    forward = () if unseen else (StepPart(FORWARD.name, FORWARD.title, forward_s),)
    rest = REST.title if not unseen else "rest + forward"
    rest_s += forward_s if unseen else 0.0
    parts = (*forward, StepPart(BACKWARD.name, BACKWARD.title, backward_s), *waits, StepPart(REST.name, rest, rest_s))
    return Step(sum(part.seconds for part in parts), steps, len(waiting.by_rank), parts)


def step_of_all_time(inferred: InferredSummary | None, waiting: WaitingFinding) -> Step:
    """Return the mean step where only its period is known; without a period, all time as one step with a count of 0."""
    ranks = len(waiting.by_rank)
    span_s = waiting.window_ns / ranks / 1e9
    seconds, steps = (span_s, 0) if inferred is None else (inferred.period_s, inferred.count)
    count = span_s / seconds
    waits = [
        StepPart(each.cause.name, each.cause.title, each.ns / ranks / count / 1e9, each.saves_s / count, each)
        for each in waiting.causes
    ]
    waits.sort(key=lambda part: -part.saves_s)
    rest_s = max(0.0, seconds - sum(part.seconds for part in waits))
    return Step(seconds, steps, ranks, (*waits, StepPart(REST.name, REST.title, rest_s)))


def _waits(each: CauseShare, each_s: float, steps: int) -> StepPart:
    return StepPart(each.cause.name, each.cause.title, each.ns / each_s, each.saves_s / max(steps, 1), each)
