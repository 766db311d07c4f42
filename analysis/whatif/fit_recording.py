"""The transport of a trace: what its collectives took, kind by kind and group size by group size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netprof.analysis.whatif.fit import AlphaBeta, CollectiveSamples, fit_alpha_beta
from netprof.analysis.whatif.program import Program
from netprof.analysis.whatif.recording import Recording
from netprof.analysis.whatif.schedule import Observation
from netprof.analysis.whatif.transport import FittedTransport, FullLink, Spoken
from netprof.errors import NetprofError

_NO_FIT = "use --transport ideal for a link fully used"


def fitted_transport(observed: Observation, recording: Recording) -> tuple[FittedTransport, tuple[str, ...]]:
    """Fit the trace's own transport; also return what it had to assume.

    Raises NetprofError without a line rate, without timed collectives, or for a job of one worker.
    """
    if observed.workers < 2:
        raise NetprofError("this job has one worker: it exchanges nothing", "record a job of two or more ranks")
    if observed.line_rate_bps is None:
        raise NetprofError(
            "the link's line rate is unknown, so its part in the measured transport is too",
            "give it with --line-rate, or use --transport ideal",
        )
    wire = FullLink(overhead=1.0 if observed.overhead is None else observed.overhead)
    fits = fit_programs(recording.programs, wire, observed.line_rate_bps)
    found = FittedTransport(fits, observed.line_rate_bps, wire.overhead)
    notes: tuple[str, ...] = ()
    if observed.overhead is None:
        notes = ("no wire bytes were observed: a ring's are assumed",)
    if found.rest_s_per_byte(max(fits, key=lambda spoken: fits[spoken].total_bytes)) < 0:
        notes += ("the collectives ran faster than the line rate allows; the line rate is taken to be too low by that",)
    return found, notes


def fit_programs(programs: Sequence[Program], wire: FullLink, bandwidth_bps: float) -> dict[Spoken, AlphaBeta]:
    """Fit what was recorded on a link of `bandwidth_bps`, kind by kind and group size by group size.

    Raises NetprofError without a collective that moved anything.
    """
    samples: dict[Spoken, list[CollectiveSamples]] = {}
    for program in programs:
        for k in np.flatnonzero(program.bytes > 0).tolist():
            if program.own_s is not None:
                seconds = program.own_s[:, :, k].ravel()
                here = samples.setdefault(Spoken(int(program.kind[k]), int(program.ranks[k])), [])
                here.append(CollectiveSamples(np.full(len(seconds), program.bytes[k]), seconds))
    if not samples:
        raise NetprofError("no collective was timed, so there is no transport to fit", _NO_FIT)
    byte = np.ones(1)
    least = {spoken: wire.terms(np.array(spoken.kind), byte, np.array(spoken.ranks)).bits for spoken in samples}
    return {
        spoken: fit_alpha_beta(_together(parts), float(least[spoken].item()) / bandwidth_bps)
        for spoken, parts in samples.items()
    }


def _together(parts: Sequence[CollectiveSamples]) -> CollectiveSamples:
    sizes, seconds = (np.concatenate([getattr(part, name) for part in parts]) for name in ("bytes", "seconds"))
    return CollectiveSamples(sizes, seconds)
