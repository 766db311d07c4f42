"""The data of the page's other charts: anatomy, distributions, bandwidth against size, flows, what-if."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.declared import json_of
from netprof.analysis.events.phases import EXPOSED, PHASES, Phase
from netprof.analysis.findings.collectives.anatomy import Anatomy, anatomy
from netprof.analysis.findings.collectives.collectives import COLLECTIVES
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.findings.flows.flows import FLOWS
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.iterations.per_iteration import bandwidth_by_size, histogram, rows_of, slowest
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.findings.waiting.waiting_by_iteration import waiting_by_iteration
from netprof.errors import NetprofError
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from netprof.analysis import Analysis
    from netprof.analysis.events.iterations import IterationTimes
    from netprof.analysis.findings.collectives.ranks import RankSummary
    from netprof.analysis.tables.columns import Float64, Int64
    from netprof.analysis.tables.flow_table import LinkKey
    from netprof.analysis.whatif.answer import Curve
    from netprof.analysis.whatif.curves import Curves
    from netprof.views.html.tracks import Idle

_MOST_POINTS = 2000
_MOST_RANKS = 16  # ranks drawn one by one in the charts over iterations
_MOST_FLOWS = 24
SLOWEST = 8


def anatomies(analysis: Analysis, idle: Mapping[LinkKey, Idle]) -> list[dict[str, Any]]:
    """Return the anatomy of each rank's typical iteration; seconds."""
    documents = []
    for rank in _training(analysis):
        spans = idle.get(rank.link, {}) if rank.link else {}
        typical = anatomy(analysis.evidence, rank.pid, rank.link, spans)
        if typical is not None:
            documents.append(_anatomy(analysis, rank, typical))
    return documents


def _anatomy(analysis: Analysis, rank: RankSummary, typical: Anatomy) -> dict[str, Any]:
    profile = typical.profile
    link = next((link for link in analysis.of(LINKS) if link.key == rank.link), None)
    return {
        "label": rank.label,
        "launched": rank.only_launch,
        "iterations": typical.iterations,
        "ends": {name: dataclasses.asdict(getattr(typical, name)) for name in ("backward", "wait", "done", "end")},
        "buckets": [dataclasses.asdict(bucket) for bucket in typical.buckets],
        "link": safe_text(link.label, 60) if link else None,
        "rate_bps": link.line_rate_bps if link else None,
        "profile": None
        if profile is None
        else {
            "edges_s": _numbers(profile.edges_s),
            "tx_bps": [_numbers(row) for row in profile.tx_bps],
            "rx_bps": [_numbers(row) for row in profile.rx_bps],
            "idle": {cause: _numbers(share) for cause, share in profile.idle.items()},
        },
    }


def iterations(analysis: Analysis) -> list[dict[str, Any]]:
    """Return per rank the iterations over the run; of very many, evenly spread ones and the slowest."""
    runs = []
    for rank in _training(analysis):
        times = _times(analysis, rank)
        seconds, exposed_s = times.duration_ns / 1e9, _phase_s(times, rank, EXPOSED)
        runs.append(_run(analysis, rank.label, times.begin_ns.astype(np.int64), seconds, exposed_s))
    inferred = analysis.of(ITERATIONS).inferred
    if inferred is not None:  # only their begin and duration are known
        begin_ns, seconds = inferred.iterations.begin_ns, inferred.iterations.duration_ns / 1e9
        runs.append(_run(analysis, "inferred", begin_ns, seconds, np.full(len(seconds), np.nan)))
    return runs


def _times(analysis: Analysis, rank: RankSummary) -> IterationTimes:
    """Return all iterations of a rank, also those that are not drawn event by event."""
    times = analysis.of(ITERATIONS).times
    return times.where(times.pid == rank.pid)


def _phase_s(times: IterationTimes, rank: RankSummary, phase: Phase) -> Float64:
    """Return how long a phase took in each; unknown where only launches are seen."""
    ns = getattr(times, phase.length)
    return np.full(len(ns), np.nan) if rank.only_launch else np.asarray(ns / 1e9)


def _run(analysis: Analysis, label: str, begin_ns: Int64, seconds: Float64, exposed_s: Float64) -> dict[str, Any]:
    kept = _some(seconds)
    return {
        "label": label,
        "count": len(seconds),
        "number": (kept + 1).tolist(),
        "begin_us": _since_begin_us(analysis, begin_ns[kept]),
        "duration_s": _numbers(seconds[kept]),
        "exposed_s": _numbers(exposed_s[kept]),
    }


def _since_begin_us(analysis: Analysis, ns: Int64) -> list[float]:
    return [(at_ns - analysis.meta.started_ns) / 1e3 for at_ns in ns.tolist()]


def waiting(analysis: Analysis, drawn: Analysis) -> dict[str, Any] | None:
    """Return how long a rank waits in each iteration that is drawn, by cause; of many, some and the worst."""
    evidence = drawn.evidence
    if drawn.of(WAITING) is None:
        return None
    by_iteration = waiting_by_iteration(evidence)
    waits_s = by_iteration.mean_s
    kept = _some(waits_s.sum(axis=0))
    return {
        "number": (kept + 1 + _earlier(analysis, drawn)).tolist(),
        "count": len(by_iteration),
        "begin_us": _since_begin_us(analysis, by_iteration.begin_ns[kept]),
        "duration_s": _numbers((by_iteration.end_ns - by_iteration.begin_ns)[kept] / 1e9),
        "late_rank": [evidence.ranks.get(pid) for pid in by_iteration.latest_pid[kept].tolist()],
        "waits_s": {
            cause.name: _numbers(waits[kept]) for cause, waits in zip(WAIT_CAUSES, waits_s, strict=True) if waits.any()
        },
    }


def _earlier(analysis: Analysis, drawn: Analysis) -> int:
    """Return how many iterations of the process that has the most are before those that are drawn."""
    times, piece = analysis.of(ITERATIONS).times, drawn.evidence.piece
    pids, counts = np.unique(times.pid, return_counts=True)
    begin_ns = times.begin_ns[times.pid == pids[counts.argmax()]] if len(pids) else times.begin_ns
    return int((begin_ns.astype(np.int64) < piece.begin_ns).sum())


def distributions(analysis: Analysis, drawn: Analysis) -> dict[str, Any]:
    """Return histograms over iterations; seconds, and of those that are drawn `bus` in bits per second."""
    ranks = _training(analysis)
    times = [_times(analysis, rank) for rank in ranks]
    values = {
        "iteration": [each.duration_ns / 1e9 for each in times],
        "exposed": [_phase_s(each, rank, EXPOSED) for each, rank in zip(times, ranks, strict=True)],
        "bus": [rows_of(drawn.evidence, rank.pid).bus_bandwidth_bps for rank in ranks],
    }
    inferred = analysis.of(ITERATIONS).inferred
    if inferred is not None:
        values["iteration"].append(inferred.iterations.duration_ns / 1e9)
    return {
        name: {"edges": _numbers(counted.edges), "counts": counted.counts.tolist()}
        for name, ranks in values.items()
        if (counted := histogram(ranks)) is not None
    }


def reference_rank(analysis: Analysis) -> RankSummary | None:
    """Return the rank with the most iterations, the first of several; one whose phases are known, if there is."""

    def steps(rank: RankSummary) -> int:
        return rank.durations.count if rank.durations else 0

    return max(_training(analysis), key=lambda rank: (not rank.only_launch, steps(rank)), default=None)


def slowest_iterations(analysis: Analysis) -> list[dict[str, Any]]:
    """Return the longest iterations of the reference rank, with where they are on the tracks."""
    rank = reference_rank(analysis)
    if rank is None or rank.durations is None:
        return []
    times, piece = _times(analysis, rank), analysis.drawn.evidence.piece
    begin_ns, seconds = times.begin_ns.astype(np.int64), times.duration_ns / 1e9
    phases_s = {phase.name: _phase_s(times, rank, phase) for phase in PHASES}
    return [
        {
            "number": index + 1,
            "begin_us": (int(begin_ns[index]) - analysis.meta.started_ns) / 1e3,
            "is_drawn": bool(piece.owns(begin_ns[index])),
            "duration_s": float(seconds[index]),
            "over_median": float(seconds[index]) / rank.durations.median_s,
            "phases": {name: float(of_phase[index]) for name, of_phase in phases_s.items()},
        }
        for index in slowest(seconds, SLOWEST).tolist()
    ]


def bandwidths(analysis: Analysis, drawn: Analysis) -> dict[str, Any]:
    """Return bandwidth against size per rank, with the aggregate and the line rate beside it.

    It is the bus bandwidth, or the algorithm bandwidth where the number of ranks is unknown (then without line rate).
    """
    together = analysis.of(COLLECTIVES).summary
    bus = together.bus_bandwidth_bps is not None
    ranks = []
    for rank in [rank for rank in analysis.of(RANKS) if rank.bandwidths.count][:_MOST_RANKS]:
        table = bandwidth_by_size(drawn.evidence.together, rank.pid, drawn.evidence.world_size)
        columns = {field.name: _numbers(getattr(table, field.name)) for field in dataclasses.fields(table)}
        ranks.append({"label": rank.label, **columns})
    used = {rank.link for rank in analysis.of(RANKS) if rank.bandwidths.count}
    rates = [link.line_rate_bps for link in analysis.of(LINKS) if link.key in used and link.line_rate_bps]
    return {
        "ranks": ranks,
        "aggregate_bps": together.bus_bandwidth_bps if bus else together.algorithm_bandwidth_bps,
        "rate_bps": min(rates, default=None) if bus else None,
    }


def flows(analysis: Analysis) -> list[dict[str, Any]]:
    """Return the largest flows' bytes each way."""
    keys = "rank tx_bytes=tx.wire_bytes rx_bytes=rx.wire_bytes retransmitted_bytes=tx.retransmitted_bytes"
    return [
        {"label": safe_text(f"{flow.local} → {flow.remote}", 100), "device": safe_text(flow.device, 60)}
        | json_of(flow, keys)
        for flow in analysis.of(FLOWS)[:_MOST_FLOWS]
    ]


def whatif(analysis: Analysis) -> tuple[dict[str, Any] | None, Curves | None, str]:
    """Return the curves for the chart, the answer for the text, and why there is none where there is none."""
    from netprof.analysis.whatif.curves import whatif_curves

    try:
        curves = whatif_curves(analysis)
    except NetprofError as error:
        return None, None, error.message
    observed = curves.answer.observed
    return (
        {
            "workers": curves.workers,
            "measured": [_series(series) for series in curves.measured],
            "ideal": [_series(series) for series in curves.ideal],
            "rate_bps": observed.line_rate_bps if observed else None,
            "iteration_s": observed.iteration_s if observed else None,
            "scaling_factor": curves.answer.base.worker_s / observed.iteration_s if observed else None,
        },
        curves,
        curves.reason,
    )


def _series(series: Curve) -> dict[str, Any]:
    names = ("scaling_factor", "iteration_s", "iteration_low_s", "iteration_high_s")
    return json_of(series, "compression bandwidth_bps") | {name: _numbers(getattr(series, name)) for name in names}


def _training(analysis: Analysis) -> list[RankSummary]:
    return [rank for rank in analysis.of(RANKS) if rank.durations is not None][:_MOST_RANKS]


def _some(seconds: Float64) -> Int64:
    """Return which of many iterations to draw: evenly spread ones and the longest."""
    if len(seconds) <= _MOST_POINTS:
        return np.arange(len(seconds))
    spread = np.linspace(0, len(seconds) - 1, _MOST_POINTS).astype(np.int64)
    return np.union1d(spread, np.argsort(-seconds, kind="stable")[:SLOWEST])


def _numbers(values: Any) -> list[float | int | None]:
    """Return plain numbers, None for what is not finite, floats to seven digits."""
    return [_number(value) for value in (values.tolist() if isinstance(values, np.ndarray) else values)]


def _number(value: float | int) -> float | int | None:
    if isinstance(value, int):
        return value
    return float(f"{value:.7g}") if math.isfinite(value) else None
