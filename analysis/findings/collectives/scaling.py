"""How much of the job's computing power its communication leaves (`definitions.SCALING`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.declared import json_of
from netprof.analysis.definitions import SCALING as DEFINITION
from netprof.analysis.events.split import Split, splits_of
from netprof.analysis.findings.iterations.iterations import ITERATIONS, IterationsFinding
from netprof.analysis.form import Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.errors import NetprofError
from netprof.units import count, duration, listed

_NAMED = 8


@dataclass(frozen=True)
class RanksInStep:
    """Ranks that keep step with each other: how long an iteration of theirs takes, and their scaling factor.

    `ranks` are their numbers, None where unknown.
    """

    ranks: tuple[int | None, ...]
    iteration_s: float
    factor: float
    straggler_share: float

    @property
    def name(self) -> str:
        """What to call them: by their numbers where all are known."""
        known = sorted(rank for rank in self.ranks if rank is not None)
        if len(known) < len(self.ranks):
            return count(len(self.ranks), "process", "processes")
        return f"rank{'s' if len(known) > 1 else ''} {listed(known, _NAMED)}"


@dataclass(frozen=True)
class Scaling:
    """The scaling factor as estimated from one trace, and as measured where `baseline_s` of one worker alone is given.

    `paces` are the sets of ranks that keep step, the slowest first: of most jobs there is one.
    """

    paces: tuple[RanksInStep, ...]
    measured: float | None = None
    baseline_s: float | None = None

    @property
    def estimate(self) -> float:
        """The mean over all ranks of the factor of those that they keep step with."""
        return self._mean([pace.factor for pace in self.paces])

    @property
    def straggler_share(self) -> float:
        """How much longer the rank with the most compute computes than the mean of those that keep step with it, over
        the iteration; the mean over all ranks.
        """
        return self._mean([pace.straggler_share for pace in self.paces])

    def _mean(self, values: Sequence[float]) -> float:
        return float(np.average(values, weights=[len(pace.ranks) for pace in self.paces]))

    @property
    def factor(self) -> float:
        """The measured one where there is one."""
        return self.estimate if self.measured is None else self.measured

    @property
    def basis(self) -> str:
        """What `factor` rests on."""
        return "single trace" if self.measured is None else "single-worker baseline"

    @property
    def text(self) -> str:
        """The factor, what it rests on, and the estimate beside it, for a person."""
        if self.measured is None:
            return f"{self.factor:.2f} (estimated)"
        one = duration(self.baseline_s)
        return f"{self.factor:.2f} (measured against one worker's {one}; {self.estimate:.2f} estimated from the trace)"


def scaling(finding: IterationsFinding, ranks: Mapping[int, int], baseline_s: float | None = None) -> Scaling | None:
    """Return the scaling factors; None without iterations, or where they are only seen to be launched.

    `ranks` are numbers by pid. `baseline_s` is how long an iteration takes one worker alone, in seconds, where that was
    measured: the factor is then the baseline over the typical iteration.
    """
    splits, typical_s = splits_of(finding.times), finding.durations.phases.total if finding.durations else None
    if finding.only_launch or not splits or not typical_s:
        return None
    measured = None if baseline_s is None else baseline_s / typical_s
    return Scaling(tuple(_in_step(split, ranks) for split in splits), measured, baseline_s)


def _in_step(split: Split, ranks: Mapping[int, int]) -> RanksInStep:
    numbers = tuple(ranks.get(pid) for pid in split.compute_s)
    return RanksInStep(numbers, split.iteration_s, split.scaling_factor, split.straggler_share)


def single_worker_s(analysis: Analysis, name: str) -> float:
    """Return the typical iteration of a recording of one worker alone, seconds. `name` is the trace's.

    Raises NetprofError where the recording is none of one worker, or tells of no iterations.
    """
    evidence, durations = analysis.evidence, analysis.of(ITERATIONS).durations
    hint = "record a run of one worker on the same batch, or give its iteration time in seconds"
    ranks = max(
        evidence.world_size or 1,
        len(np.unique(evidence.iterations.pid)),
        int(evidence.collectives.ranks.max(initial=1)),
    )
    if ranks > 1:
        raise NetprofError(f"the baseline {name} is a recording of {ranks} ranks, not of one worker alone", hint)
    if durations is None or not durations.phases.total:
        raise NetprofError(f"the baseline {name} tells of no whole iteration", hint)
    return durations.phases.total


def _document(finding: Scaling | None) -> dict[str, Any]:
    paces = finding and [json_of(each, "ranks iteration_s scaling_factor=factor") for each in finding.paces]
    return json_of(finding, _KEYS, paces=paces)


_KEYS = (
    "scaling_factor=factor scaling_basis=basis scaling_factor_estimate=estimate scaling_factor_measured=measured "
    "straggler_share=straggler_share"
)


def _notes(finding: Scaling | None) -> Iterator[str]:
    if finding is not None and (finding.measured or 0.0) > 1.0:
        yield (
            f"one worker alone takes {duration(finding.baseline_s)} for an iteration, which is longer than the job's: "
            "it is no baseline of the same work (batch, model), or that machine was slower"
        )
    if finding is None or len(finding.paces) < 2:
        return
    sets = "; ".join(f"{one.name} {duration(one.iteration_s)} ({one.factor:.2f})" for one in finding.paces[:_NAMED])
    more = f"; and {len(finding.paces) - _NAMED} more such sets" if len(finding.paces) > _NAMED else ""
    yield (
        f"not all ranks keep step with each other: an iteration takes {sets}{more}; in brackets their own scaling "
        "factor, of which the job's is the mean over all ranks"
    )


SCALING = Section(
    "scaling",
    lambda analysis: scaling(analysis.of(ITERATIONS), analysis.evidence.ranks, analysis.evidence.baseline_s),
    document=_document,
    parts=lambda finding: [Part("Scaling", "", [Pairs([("scaling factor", finding.text)])])] if finding else (),
    notes=_notes,
    definitions=lambda finding: (DEFINITION,) if finding else (),
)
