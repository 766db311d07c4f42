"""From a schedule and a question to the answer: choose the models, replay, conclude."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from netprof.analysis.whatif.answer import Answer, goals, iteration_at
from netprof.analysis.whatif.conclude import Standpoint, conclude
from netprof.analysis.whatif.costs import AddTable, CostModel, MeasuredCost, RingCost, WireRatio, ring_factor
from netprof.analysis.whatif.fit import AlphaBeta, fit_alpha_beta
from netprof.analysis.whatif.fusion import FusionSettings, fuse
from netprof.analysis.whatif.replay import Points, grid
from netprof.analysis.whatif.schedule import GradientSchedule, Observation
from netprof.analysis.whatif.sweep import Baselines, Replay, baselines, check_points, sweep
from netprof.errors import NetprofError, UsageError

TRANSPORTS = ("measured", "ideal")


@dataclass(frozen=True)
class Question:
    """What is asked: the grid, and which models; times in seconds, baselines None where not measured."""

    workers: tuple[int, ...]
    bandwidth_bps: tuple[float, ...]
    compression: tuple[float, ...]
    policy: str
    transport: str
    settings: FusionSettings = field(default_factory=FusionSettings)
    add: AddTable | None = None
    codec_s_per_byte: float = 0.0
    workers_per_host: int = 1
    baseline_worker_s: float | None = None
    baseline_host_s: float | None = None

    def points(self) -> Points:
        """Return the grid, checked. Raises UsageError."""
        axes = (self.workers, self.bandwidth_bps, self.compression)
        points = grid(*(np.array(axis, dtype=np.float64) for axis in axes))
        check_points(points)
        return points


def ask(schedule: GradientSchedule, question: Question) -> Answer:
    """Answer a question. Raises NetprofError or UsageError where the schedule cannot answer it."""
    points = question.points()
    buckets = fuse(schedule, question.policy, question.settings)
    cost, fit, notes = _transport(schedule, question)
    replay = Replay(buckets, cost, schedule.compute_s, schedule.last_ready_s, question.codec_s_per_byte)
    base = baselines(
        replay, question.workers_per_host, worker_s=question.baseline_worker_s, host_s=question.baseline_host_s
    )
    result = sweep(replay, points, base)
    reached = goals(replay, points, base)
    standpoint = _standpoint(schedule, question, replay, base)
    wire = _wire(schedule.observed)
    return Answer(
        sweep=result,
        goals=reached,
        base=base,
        policy=question.policy,
        transport=question.transport,
        wire_source="observed" if wire is not None else "algorithm",
        conclusion=conclude(standpoint, replay, base),
        observed=schedule.observed,
        measured_model_s=standpoint.model_s if standpoint.observed is not None else None,
        full_use_s=standpoint.full_use_s if standpoint.observed is not None else None,
        fit=fit,
        notes=schedule.notes + (schedule.gradient_notes if question.policy != "observed" else ()) + notes,
    )


def _transport(schedule: GradientSchedule, question: Question) -> tuple[CostModel, AlphaBeta | None, tuple[str, ...]]:
    observed = schedule.observed
    if question.transport == "ideal":
        return _ideal(schedule, question), None, ()
    if question.transport != "measured":
        raise UsageError(f"'{question.transport}' is not a transport", f"choose one of {', '.join(TRANSPORTS)}")
    if observed is None:
        raise UsageError("a log holds no measured transport", "use --transport ideal")
    return measured_cost(observed)


def measured_cost(observed: Observation) -> tuple[MeasuredCost, AlphaBeta, tuple[str, ...]]:
    """Fit the trace's own transport; also return the fit and what it had to assume.

    Raises NetprofError without a line rate, without timed collectives, or for a job of one worker.
    """
    if observed.workers < 2:
        raise NetprofError("this job has one worker: it exchanges nothing", "record a job of two or more ranks")
    if observed.line_rate_bps is None:
        raise NetprofError(
            "the link's line rate is unknown, so its part in the measured transport is too",
            "give it with --line-rate, or use --transport ideal",
        )
    fit = fit_alpha_beta(observed.collectives)
    wire = _wire(observed)
    notes: tuple[str, ...] = ()
    if wire is None:
        wire = WireRatio(float(ring_factor(np.array([observed.workers], float))[0]), observed.workers)
        notes = ("no wire bytes were observed: a ring's are assumed",)
    rest = fit.seconds_per_byte - 8.0 * wire.wire_bytes_per_byte / observed.line_rate_bps
    if rest < 0:
        notes += ("the collectives ran faster than the line rate allows; the line rate is taken to be too low by that",)
    return MeasuredCost(fit.latency_s, rest, wire, observed.tail_s), fit, notes


def _ideal(schedule: GradientSchedule, question: Question) -> RingCost:
    return RingCost(question.add, _wire(schedule.observed))


def _wire(observed: Observation | None) -> WireRatio | None:
    if observed is None or observed.wire_bytes_per_byte is None:
        return None
    return WireRatio(observed.wire_bytes_per_byte, observed.workers)


def _standpoint(schedule: GradientSchedule, question: Question, replay: Replay, base: Baselines) -> Standpoint:
    """Choose the point that the conclusion speaks about: the measured one, else the hardest one asked for."""
    observed = schedule.observed
    if observed is None or observed.line_rate_bps is None or observed.workers < 2:
        workers, bandwidth = max(question.workers), min(question.bandwidth_bps)
        return Standpoint(workers, bandwidth, iteration_at(replay, workers, bandwidth))
    full = Replay(replay.buckets, _ideal(schedule, question), replay.compute_s, replay.last_ready_s)
    at = (observed.workers, observed.line_rate_bps)
    del base
    return Standpoint(*at, iteration_at(replay, *at), iteration_at(full, *at), observed)
