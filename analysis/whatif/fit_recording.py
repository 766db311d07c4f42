"""The transport of a trace: what its collectives took, kind by kind and group size by group size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import numpy as np

from netprof.analysis.tables.columns import Float64, concatenate
from netprof.analysis.whatif.fit import NO_FIT, AlphaBeta, CollectiveSamples, fit_alpha_beta
from netprof.analysis.whatif.program import Program
from netprof.analysis.whatif.recorded_steps import RecordedSteps
from netprof.analysis.whatif.schedule import Observation
from netprof.analysis.whatif.transports import GLOO_TURNS, FittedTransport, FullLink, Spoken
from netprof.errors import NetprofError


class Excess(Enum):
    """What collectives take beyond the bytes that pass their links, by what it goes with.

    LINKS: for how much longer links are full goes with their rate (turns, a shaper), the rest is the hosts'. HOSTS: all
    of it is the hosts' time, who fill a link all the same while they serve it late. ALL: all of it goes with the rate.
    """

    LINKS = "links"
    HOSTS = "hosts"
    ALL = "all"


def fitted_transport(
    observed: Observation, recording: RecordedSteps, excess: Excess = Excess.LINKS
) -> tuple[FittedTransport, tuple[str, ...]]:
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
    turns = dict(GLOO_TURNS if recording.by_gloo else {})
    if excess is not Excess.HOSTS:
        turns |= _turns(recording.programs, wire, observed.line_rate_bps)
    fits = fit_programs(recording.programs, wire, observed.line_rate_bps, turns)
    if excess is Excess.ALL:
        fits = {spoken: fit.through_origin() for spoken, fit in fits.items()}
        turns |= {
            spoken: max(fit.seconds_per_byte * observed.line_rate_bps / bits - 1.0, 0.0)
            for spoken, fit in fits.items()
            if (bits := _bits(wire, spoken, 1.0)) > 0
        }
    transport = FittedTransport(fits, observed.line_rate_bps, wire.overhead, turns)
    notes: tuple[str, ...] = ()
    if observed.overhead is None:
        notes = ("no wire bytes were observed: a ring's are assumed",)
    if transport.rest_s_per_byte(max(fits, key=lambda spoken: fits[spoken].total_bytes)) < 0:
        notes += ("the collectives ran faster than the line rate allows; the line rate is taken to be too low by that",)
    return transport, notes


def fit_programs(
    programs: Sequence[Program], wire: FullLink, bandwidth_bps: float, turns: Mapping[Spoken, float]
) -> dict[Spoken, AlphaBeta]:
    """Fit what was recorded on a link of `bandwidth_bps`, kind by kind and group size by group size.

    `turns` is as in `FittedTransport`. Raises NetprofError without a collective that moved anything.
    """
    samples: dict[Spoken, list[CollectiveSamples]] = {}
    for program in programs:
        for k in np.flatnonzero(program.bytes > 0).tolist():
            if program.own_s is not None:
                seconds = program.own_s[:, :, k].ravel()
                here = samples.setdefault(Spoken(int(program.kind[k]), int(program.ranks[k])), [])
                here.append(CollectiveSamples(np.full(len(seconds), program.bytes[k]), seconds))
    if not samples:
        raise NetprofError("no collective was timed, so there is no transport to fit", NO_FIT)
    return {
        spoken: fit_alpha_beta(
            concatenate(CollectiveSamples, parts),
            (1 + turns.get(spoken, 0.0)) * _bits(wire, spoken, 1.0) / bandwidth_bps,
        )
        for spoken, parts in samples.items()
    }


def _turns(programs: Sequence[Program], wire: FullLink, bandwidth_bps: float) -> dict[Spoken, float]:
    """Return for how much longer than the wire bytes need links are full, of each kind and group size.

    Each of N links in its turn would make it N-1; what is beyond that are the bytes of others.
    """
    sums: dict[Spoken, Float64] = {}
    for program in programs:
        if program.full_s is None:
            continue
        for k in np.flatnonzero(program.bytes > 0).tolist():
            spoken = Spoken(int(program.kind[k]), int(program.ranks[k]))
            full_s = program.full_s[:, :, k]
            wire_s = full_s.size * _bits(wire, spoken, float(program.bytes[k])) / bandwidth_bps
            sums[spoken] = sums.get(spoken, np.zeros(2)) + np.array([full_s.sum(), wire_s])
    return {
        spoken: min(max(float(full_s / wire_s) - 1.0, 0.0), spoken.ranks - 1.0)
        for spoken, (full_s, wire_s) in sums.items()
        if wire_s > 0
    }


def _bits(wire: FullLink, spoken: Spoken, size_bytes: float) -> float:
    return float(wire.terms(np.array(spoken.kind), np.array(size_bytes), np.array(spoken.ranks)).bits)
