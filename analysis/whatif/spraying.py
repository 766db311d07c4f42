"""What splitting flows or spraying packets over equal-cost paths would bring, for the flows that were seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.evidence import Evidence
from netprof.analysis.section import Analysis
from netprof.analysis.tables.columns import Float64, Int64
from netprof.analysis.tables.flow_table import LOOPBACK
from netprof.analysis.whatif.ask import Question, ask
from netprof.analysis.whatif.equal_cost import check, expected_time, ideal, left_over, no_collision
from netprof.analysis.whatif.from_trace import from_trace
from netprof.analysis.whatif.schedule import GradientSchedule
from netprof.errors import NetprofError, TraceError
from netprof.schema import TRANSMIT

DATA_FLOW = 0.01
"""Share of the largest flow's bytes, below which a flow carries no gradients."""


@dataclass(frozen=True)
class Placing:
    """One way to put flows on paths.

    `load` is how long the flows take on average over how long they would at best, where the network is what limits
    them: as long as the fullest path does, and no less than a host does for its own flow. `no_collision` is the
    probability that no two flows (or parts) share a path; None where they are meant to. `exact` says that it is
    counted, not drawn. `iteration_s` is what an iteration would take, None: unknown.
    """

    how: str
    parts: int
    load: float
    no_collision: float | None
    exact: bool
    iteration_s: float | None = None


@dataclass(frozen=True)
class Spraying:
    """`flows` at once over `paths`; `smallest` over the largest one's bytes, and each way to place them.

    `left` flows do not go evenly into the paths, and would if split into `left_parts` each and placed, not hashed.
    """

    flows: int
    paths: int
    smallest: float
    left: int
    left_parts: int
    placings: tuple[Placing, ...]
    notes: tuple[str, ...] = ()


def flow_sizes(evidence: Evidence) -> Float64:
    """Return the bytes that each flow with gradients sent to another host. Raises TraceError without any.

    What goes the other way between the same two hosts is on the other direction of the same links: of the two, the way
    that has more counts.
    """
    flows, sent = evidence.fold.flows, evidence.fold.totals(TRANSMIT).payload_bytes
    leaves = flows.device != LOOPBACK
    rows = np.flatnonzero(np.asarray(leaves) & np.isin(flows.pid, list(evidence.workers) or np.unique(flows.pid)))
    ways: Counter[tuple[Any, Any]] = Counter()
    ends = [(flows.local_addr[row], flows.remote_addr[row]) for row in rows.tolist()]
    for end, row in zip(ends, rows.tolist(), strict=True):
        ways[end] += int(sent[row])
    fuller = [max((a, b), (b, a), key=lambda way: (ways[way], way)) == (a, b) for a, b in ends]
    sizes: Int64 = sent[rows[np.array(fuller, bool)]]
    sizes = sizes[sizes > 0]
    sizes = sizes[sizes >= DATA_FLOW * sizes.max()] if len(sizes) else sizes
    if len(sizes) == 0:
        raise TraceError("no flow of the job leaves its host, so none takes a path", "record the hosts of a job")
    return sizes.astype(np.float64)


def spraying(sizes: Float64, paths: int, splits: Sequence[int] = ()) -> Spraying:
    """Return how flows of some sizes fare over equal-cost paths: hashed, each split and hashed, placed, and sprayed.

    Raises UsageError.
    """
    for parts in (1, *splits):
        check(len(sizes), paths, parts)
    best = ideal(sizes, paths)
    placings = [_hashed(sizes, paths, parts, best) for parts in dict.fromkeys((1, *splits))]
    left, left_parts = left_over(len(sizes), paths)
    placings.append(Placing("packets sprayed", 1, 1.0, None, True))
    notes = (
        f"load is how long the flows take over the best possible: as long as the fullest path, and no less than a host "
        f"for its own flow; the flows are {len(sizes)} of this recording's hosts, all under way at once, and each path "
        "is as fast as a host's link",
    )
    smallest = float(sizes.min() / sizes.max())
    return Spraying(len(sizes), paths, smallest, left, left_parts, tuple(placings), notes)


def _hashed(sizes: Float64, paths: int, parts: int, best: float) -> Placing:
    taken, exact = expected_time(sizes, paths, parts)
    alone = no_collision(len(sizes) * parts, paths)
    how = "each flow hashed" if parts == 1 else f"each split in {parts}, hashed"
    return Placing(how, parts, max(1.0, taken / best), alone, exact)


def with_iterations(sprayed: Spraying, analysis: Analysis, line_rate_bps: float | None = None) -> Spraying:
    """Return the same with the iteration time that each placing gives, where the recording can be replayed.

    The recorded iterations are taken to be those of a network without collisions, and a path's load to slow all links
    down alike: a ring is as fast as its slowest connection.
    """
    try:
        schedule = from_trace(analysis, line_rate_bps=line_rate_bps)
        seconds = _iterations_s(schedule, sprayed)
    except NetprofError as error:
        return replace(sprayed, notes=(*sprayed.notes, f"no step time is predicted: {error}"))
    placings = tuple(replace(placing, iteration_s=seconds.get(placing.load)) for placing in sprayed.placings)
    return replace(sprayed, placings=placings)


def _iterations_s(schedule: GradientSchedule, sprayed: Spraying) -> dict[float, float]:
    observed = schedule.observed
    if observed is None or observed.line_rate_bps is None:
        raise NetprofError("the line rate is not known", "give --line-rate")
    loads = tuple(dict.fromkeys(placing.load for placing in sprayed.placings))
    rates = tuple(observed.line_rate_bps / load for load in loads)
    answer = ask(schedule, Question((observed.workers,), rates, (1.0,), "observed", "measured"))
    predicted = dict(zip(answer.sweep.points.bandwidth_bps.tolist(), answer.sweep.iteration_s.tolist(), strict=True))
    return {load: predicted[rate] for load, rate in zip(loads, rates, strict=True)}
