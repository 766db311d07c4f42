"""The what-if answers as curves over link speed, around the point that a trace measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.section import Analysis
from netprof.analysis.whatif.answer import Answer, Curve, plot_series
from netprof.analysis.whatif.ask import Question, ask
from netprof.analysis.whatif.from_trace import from_trace
from netprof.errors import NetprofError

COMPRESSION = (1.0, 2.0, 4.0, 10.0)
_SLOWEST, _FASTEST, _SPEEDS = 0.1, 100.0, 61  # times the line rate


@dataclass(frozen=True)
class Curves:
    """Curves at the trace's own worker count: the measured transport's, and those of a link fully used.

    `measured` is empty where the trace cannot tell its own transport, and `reason` then says why. `answer` is the
    measured transport's, or else the ideal one's: its goals are those of the recorded line rate.
    """

    workers: int
    measured: tuple[Curve, ...]
    ideal: tuple[Curve, ...]
    answer: Answer
    reason: str


def whatif_curves(analysis: Analysis) -> Curves:
    """Replay the trace at link speeds from a tenth of its line rate to a hundred times it.

    Raises NetprofError where the trace holds nothing to replay.
    """
    schedule = from_trace(analysis)
    observed = schedule.observed
    workers = observed.workers if observed is not None else 2
    rate_bps = observed.line_rate_bps if observed is not None else None
    question = Question((workers,), _speeds(rate_bps), COMPRESSION, "observed", "ideal")
    ideal = ask(schedule, question)
    curves = plot_series(ideal.sweep)
    try:
        measured = ask(schedule, replace(question, transport="measured"))
    except NetprofError as error:
        return Curves(workers, (), curves, ideal, error.message)
    return Curves(workers, plot_series(measured.sweep), curves, measured, "")


def _speeds(rate_bps: float | None) -> tuple[float, ...]:
    """Return ascending link speeds in bits per second, the line rate itself among them."""
    if rate_bps is None:
        return tuple(np.geomspace(1e8, 4e11, _SPEEDS).tolist())
    speeds = np.geomspace(_SLOWEST * rate_bps, _FASTEST * rate_bps, _SPEEDS).tolist()
    return tuple(sorted({*speeds, rate_bps}))
