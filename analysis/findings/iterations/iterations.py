"""Iterations: how many, how long, and where the time of a typical one goes; inferred where no mark tells of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from netprof.analysis.declared import json_of, plain
from netprof.analysis.definitions import INFERRED, ITERATION, PHASES, STEPS, Definition
from netprof.analysis.events import phases
from netprof.analysis.events.iterations import Dropped, IterationTimes
from netprof.analysis.events.typical import Durations, durations, is_ahead
from netprof.analysis.evidence import Evidence
from netprof.analysis.form import Bar, Cell, Grid, Pairs, Part
from netprof.analysis.inference.sources import (
    InferenceOutcome,
    InferredSummary,
    infer_iterations,
    merge_inferred,
)
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import concatenate_and_free
from netprof.units import duration, share

_STANDS_OUT = 0.02
"""By how much the exposed share of all time differs from the typical iteration's, before it is shown beside it."""
_EXPOSED = "exposed_communication_share=exposed_share exposed_communication_share_of_all_time=exposed_share_of_all_time"


@dataclass(frozen=True, eq=False)
class IterationsFinding:
    """The job's iterations.

    `times` are those of all ranks; `count` is that of the rank with the most, None where no process has marks that tell
    of any. `inferred` are iterations where none does: everything that rests on marks stays unknown then; `failures` say
    why there are none of those either. `stepped` are the processes whose iterations are told by optimizer steps, since
    they have no DDP marks. `models` is how many DDP models train in turn or at once in a process, 0 for one.
    `accumulates` says that some passes' gradients are not exchanged at once, `forward_unseen` that nothing tells where
    those begin. `only_launch` says that the marks are of launching alone: phases are unknown then.
    """

    count: int | None
    times: IterationTimes
    inferred: InferredSummary | None
    failures: tuple[str, ...]
    dropped: Dropped
    stepped: tuple[int, ...]
    models: int
    accumulates: bool
    forward_unseen: bool
    only_launch: bool = False

    @cached_property
    def durations(self) -> Durations | None:
        """How long they take, over those of all ranks together; None without any."""
        return durations(self.times)

    @property
    def source(self) -> str | None:
        """What tells the iterations."""
        if self.inferred is not None:
            return "inferred"
        if self.durations is None:
            return None
        return "optimizer steps" if self.stepped else "ddp"

    @cached_property
    def runs_ahead(self) -> bool:
        """Whether the host only launches iterations, many of them sooner than they are performed."""
        return self.only_launch and len(self.times) > 0 and is_ahead(self.times.duration_ns)

    @property
    def why_unknown(self) -> str:
        """Why there are no iterations with phases."""
        if self.inferred is not None:
            return "the iterations are inferred, and where their phases lie is not"
        if self.only_launch and self.durations is not None:
            return "GPUs compute the phases, and the host only launches them"
        return "no DDP marks were recorded" if self.count is None else "no whole iteration was recorded"


def named_phases(*, forward_known: bool) -> tuple[tuple[phases.Phase, str], ...]:
    """Return the phases that can be told apart, with their titles: a forward pass that is not seen is in the rest."""
    if forward_known:
        return tuple((phase, phase.title) for phase in phases.PHASES)
    return (
        (phases.BACKWARD, phases.BACKWARD.title),
        (phases.EXPOSED, phases.EXPOSED.title),
        (phases.REST, "rest + forward"),
    )


def durations_document(
    count: int | None,
    durations: Durations | None,
    dropped: Dropped,
    inferred: InferredSummary | None = None,
    *,
    forward_known: bool = True,
    phases_known: bool = True,
) -> dict[str, Any]:
    """Return the `iterations` part of the job or of a rank."""
    typical = durations.phases if durations else None
    known = {phase.name: getattr(typical, phase.name) if typical and phases_known else None for phase in phases.PHASES}
    return {
        "count": inferred.count if inferred else count,
        "inferred": inferred is not None,
        **json_of(inferred, "confidence period_s method"),
        **json_of(durations or inferred, "median_s mean_s p10_s p90_s min_s max_s"),
        "typical_s": typical.total if typical else None,
        **json_of(durations if phases_known else None, _EXPOSED),
        **plain(dropped),
        "phases_s": known if forward_known else known | {phases.FORWARD.name: None},
    }


def _conclude(analysis: Analysis) -> IterationsFinding:
    evidence = analysis.evidence
    seen, times = evidence.found_iterations, evidence.iteration_times
    outcome = InferenceOutcome(None)
    if not evidence.is_recent and not seen.dropped:
        outcome = inferred_from(evidence)
    return IterationsFinding(
        count=most_iterations(times) if seen.dropped else None,
        times=times,
        inferred=outcome.summary,
        failures=outcome.failures,
        dropped=sum(evidence.dropped.values(), Dropped()),
        stepped=seen.stepped,
        models=max(seen.turns.values(), default=0),
        accumulates=bool(seen.accumulates),
        forward_unseen=bool(seen.forward_unseen),
        only_launch=len(times) > 0 and set(np.unique(times.pid).tolist()) <= evidence.only_launch,
    )


def inferred_from(evidence: Evidence) -> InferenceOutcome:
    """Return the iterations of the evidence's piece that nothing but the rhythm of the job tells."""
    known = (evidence.marks, evidence.collectives, evidence.links.lanes, evidence.ranks, evidence.unmarked)
    return infer_iterations(*known).within(evidence.piece)


def most_iterations(times: IterationTimes) -> int:
    """Return how many the process has that has the most."""
    _, counts = np.unique(times.pid, return_counts=True)
    return int(counts.max(initial=0))


def _merge(parts: Sequence[IterationsFinding], whole: Analysis) -> IterationsFinding:
    count = [len(part.times) for part in parts]
    times = concatenate_and_free(IterationTimes, [part.times for part in parts])
    is_marked = any(part.count is not None for part in parts)
    inferred = None if is_marked else merge_inferred([part.inferred for part in parts if part.inferred is not None])
    return IterationsFinding(
        count=most_iterations(times) if is_marked else None,
        times=times,
        inferred=inferred,
        failures=() if is_marked or inferred is not None else next((p.failures for p in parts if p.failures), ()),
        dropped=sum((part.dropped for part in parts), Dropped()),
        stepped=tuple(dict.fromkeys(pid for part in parts for pid in part.stepped)),
        models=max(part.models for part in parts),
        accumulates=any(part.accumulates for part in parts),
        forward_unseen=any(part.forward_unseen for part in parts),
        only_launch=len(times) > 0 and all(part.only_launch for part, rows in zip(parts, count, strict=True) if rows),
    )


def _document(finding: IterationsFinding) -> dict[str, Any]:
    document = durations_document(
        finding.count,
        finding.durations,
        finding.dropped,
        finding.inferred,
        forward_known=not finding.stepped,
        phases_known=not finding.only_launch,
    )
    return {"iterations": document | {"source": finding.source}}


def _parts(finding: IterationsFinding) -> Sequence[Part]:
    if finding.inferred is not None:
        return [_inferred(finding.inferred)]
    if finding.durations is None:
        why = "no DDP marks" if finding.count is None else "no whole one in the recording"
        return [Part("Iterations", f"unknown: {why}")]
    by_steps = ", told by the optimizer's steps" if finding.stepped else ""
    median = Pairs([("median", _spread(finding.durations))])
    if finding.only_launch:
        ahead = "  (about the GPUs' pace: the CPU runs ahead of them)" if finding.runs_ahead else ""
        rows = [("mean", f"{duration(finding.durations.mean_s)}{ahead}"), ("phases", f"unknown: {finding.why_unknown}")]
        return [Part("Iterations", f"{finding.count or 0} whole ones{by_steps}", [median, Pairs(rows)])]
    grid = _phase_grid(finding.durations, finding.stepped)
    return [Part("Iterations", f"{finding.count or 0} whole ones{by_steps}", [median, grid])]


def _phase_grid(durations: Durations, stepped: Sequence[int]) -> Grid:
    rows: list[Sequence[Cell]] = []
    before, total = 0.0, durations.phases.total
    over_all = abs(durations.exposed_share_of_all_time - durations.exposed_share) > _STANDS_OUT
    for phase in phases.PHASES:
        seconds = getattr(durations.phases, phase.name)
        part = seconds / total if total else 0.0
        title = "exposed comm." if phase is phases.EXPOSED else phase.title
        all_time = [share(getattr(durations.all_time, phase.name) / durations.all_time.total)] if over_all else []
        rows.append((title, duration(seconds), share(part), *all_time, Bar(before, part, phase.name)))
        before += part
    if stepped:  # where the forward pass begins is unknown
        rows = [*rows[1:-1], ("rest + forward", *rows[-1][1:])]
    headings = ("phase", "typical", "share", *(["of all time"] if over_all else []), "")
    return Grid(headings, rows, left=frozenset({""}), optional=("",))


def _inferred(inferred: InferredSummary) -> Part:
    rows = [
        ("median", _spread(inferred)),
        ("period", f"{duration(inferred.period_s)}  (mean without pauses)"),
        ("inferred from", inferred.method),
        ("phases", "unknown: nothing but the rhythm was seen"),
    ]
    return Part("Iterations", f"{inferred.count} inferred ones, confidence {inferred.confidence:.2f}", [Pairs(rows)])


def _spread(durations: Durations | InferredSummary) -> str:
    spread = f"p10 {duration(durations.p10_s)}, p90 {duration(durations.p90_s)}, max {duration(durations.max_s)}"
    return f"{duration(durations.median_s)}  ({spread})"


def _notes(finding: IterationsFinding) -> Iterator[str]:
    if finding.models:
        yield (
            f"{finding.models} DDP models train in one process: an iteration is a step of the job, with the passes of "
            "all of them"
        )
    if finding.forward_unseen:
        yield (
            "gradients are accumulated, and this trace does not tell where those forward passes begin: the first of an "
            "iteration counts as rest of the one before, the others as backward"
        )
    elif finding.accumulates:
        yield (
            "gradients are accumulated: nothing tells where such a backward pass ends, so what follows it (loading the "
            "next batch) counts as backward until the next pass begins"
        )
    if finding.runs_ahead and finding.durations is not None:
        yield (
            "the host launches iterations ahead of its GPUs, and waits for them now and then: the mean of "
            f"{duration(finding.durations.mean_s)} is about the job's pace, not the median or what single ones take"
        )
    if finding.dropped.damaged:
        yield f"{finding.dropped.damaged} iterations miss marks in the middle and are left out"
    if finding.inferred is not None:
        yield (
            f"no mark tells of iterations: they are inferred from {finding.inferred.method}, with a confidence of "
            f"{finding.inferred.confidence:.2f}; where their phases lie is unknown"
        )
    elif finding.failures:
        more = f" (and {len(finding.failures) - 1} more)" if len(finding.failures) > 1 else ""
        yield f"no mark tells of iterations, and no period was found: {finding.failures[0]}{more}"
    if finding.stepped:
        yield (
            "no DDP: iterations go from one backward pass after an optimizer step to the next; the forward pass is not "
            "seen, it is part of the rest, as are optimizer and data"
        )


def _definitions(finding: IterationsFinding) -> Sequence[Definition]:
    if finding.inferred is not None:
        return (INFERRED,)
    return (STEPS if finding.stepped else ITERATION, PHASES) if finding.durations is not None else ()


ITERATIONS = Section(
    "iterations", _conclude, ("marks", "wire", "flows"), _document, _parts, _notes, _definitions, merge=_merge
)
