"""Iterations of a job that no framework mark tells about, from the rhythm of what it exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.inference.boundaries import (
    Boundaries,
    bursts_per_iteration,
    every,
    find_boundaries,
    parts_per_iteration,
    silences_before,
)
from netprof.analysis.inference.onsets import (
    BUSY_SHARES,
    Onsets,
    onsets_of_bins,
    onsets_of_collectives,
    onsets_of_waits,
)
from netprof.analysis.inference.recurrence import (
    FEWEST,
    Recurrence,
    choose,
    choose_about,
    find_recurrences,
    whole_pattern,
)
from netprof.analysis.piece import Piece
from netprof.analysis.tables.columns import UNKNOWN, Int64
from netprof.analysis.tables.intervals import Intervals
from netprof.analysis.wire.bins import Bins

LEAST_CONFIDENCE = 0.5
"""Below it, no period is reported: one would be wrong as often as right."""
SURE = 0.9
"""From this confidence on, no other way to look at the same job is tried."""
_PAUSE = (4.0, 8.0)  # deviations above the median: what is shorter holds no pause, what is longer is one
_LEAST_SPREAD = 0.05
_BLUR = 5.0  # of the confidence is lost for each part of an amount by which it is uncertain
_AS_IRREGULAR_AS_CHANCE = 0.8  # spread of the iterations' durations; events at random have 1.24, a jitter of 50 % 0.5


@dataclass(frozen=True, eq=False)
class InferredIterations:
    """Iterations as inferred: ns, ascending; an iteration runs from the onset of its communication to the next one's.

    `period_ns` is the mean without pauses (`period_of`). `source` says what was
    looked at. `confidence` (0 to 1) is how surely the number of iterations is right within 1 %: the product of

    - the share of boundaries that a silence marks,
    - how exact the recurrence is: the root of the share of silences that recur, less five times its tolerance,
    - the share of the traffic that repeats,
    - how clear it is that a burst is an iteration and not one of its equal buckets, or the reverse,
    - how little of it chance explains, and 1 - 2/n: of few iterations, edges and a pause are a large part.
    """

    source: str
    begin_ns: Int64
    end_ns: Int64
    period_ns: float
    confidence: float

    def __len__(self) -> int:
        return len(self.begin_ns)

    @property
    def duration_ns(self) -> Int64:
        """From one onset to the next."""
        return self.end_ns - self.begin_ns

    def within(self, piece: Piece) -> InferredIterations:
        """Return those that begin in a piece of the recording."""
        inside = piece.owns(self.begin_ns)
        return replace(self, begin_ns=self.begin_ns[inside], end_ns=self.end_ns[inside])


def in_one(parts: Sequence[InferredIterations]) -> InferredIterations:
    """Return the iterations of consecutive pieces of a recording: period and confidence are means over them."""
    weights = [len(part) for part in parts]
    return InferredIterations(
        parts[0].source,
        np.concatenate([part.begin_ns for part in parts]),
        np.concatenate([part.end_ns for part in parts]),
        float(np.average([part.period_ns for part in parts], weights=weights)),
        float(np.average([part.confidence for part in parts], weights=weights)),
    )


@dataclass(frozen=True)
class NoPeriod:
    """No iteration could be inferred from `source`, and why."""

    source: str
    reason: str


Inference = InferredIterations | NoPeriod


def infer_from_collectives(begin_ns: Int64, end_ns: Int64, sizes: Int64, source: str = "collectives") -> Inference:
    """Infer the iterations of one process from its collectives: when each ran, and its bytes (UNKNOWN: not known)."""
    return infer(onsets_of_collectives(begin_ns, end_ns, sizes), source)


def infer_from_launches(time_ns: Int64, sizes: Int64 | None = None, source: str = "launches") -> Inference:
    """Infer iterations from when one process launched its collectives, and their bytes where known."""
    known = np.full(len(time_ns), UNKNOWN) if sizes is None else sizes
    return infer(onsets_of_collectives(time_ns, time_ns, known), source)


def infer_from_waits(waits: Intervals, bins: Bins, source: str = "waiting") -> Inference:
    """Infer the iterations of one process from when it waits, and what it has moved each time that it begins to."""
    return infer(onsets_of_waits(waits, bins), source)


def infer_from_bins(bins: Bins, source: str = "bytes", about: float | None = None) -> Inference:
    """Infer iterations from the bytes that one process moved in one direction; `about` as `infer` takes it."""
    inferences = []
    for share in BUSY_SHARES:
        inferences.append(infer(onsets_of_bins(bins, share), source, about))
        if confidence_of(inferences[-1]) >= SURE:
            break
    return max(inferences, key=confidence_of)


def confidence_of(inferred: Inference) -> float:
    """Return the confidence of what was found, 0 where nothing was."""
    return inferred.confidence if isinstance(inferred, InferredIterations) else 0.0


def infer(onsets: Onsets, source: str, about: float | None = None) -> Inference:
    """Infer iterations from bursts: the amount after which silences recur, then the boundaries that amount apart.

    Where something else tells `about` what an iteration moves, in the units of the onsets, it is no other amount.
    """
    if len(onsets) <= FEWEST:
        return NoPeriod(source, f"only {len(onsets)} bursts between silences")
    recurrences = find_recurrences(onsets)
    recurrence = choose(recurrences) if about is None else choose_about(recurrences, about)
    if recurrence is None:
        return NoPeriod(source, "no amount repeats between the silences")
    if about is None:
        recurrence = whole_pattern(onsets, recurrence)
    boundaries, parts, sure = find_boundaries(onsets, recurrence), 1, 1.0
    if about is None:
        boundaries, parts, sure = _whole(onsets, boundaries)
    if boundaries.follows.sum() < FEWEST:
        return NoPeriod(source, f"only {int(boundaries.follows.sum())} whole repetitions")
    begin_ns, end_ns = spans(onsets, boundaries)
    duration_ns = end_ns - begin_ns
    if spread_of(duration_ns) > _AS_IRREGULAR_AS_CHANCE:
        return NoPeriod(source, "equal bursts, but as irregular in time as chance")
    confidence = sure * _confidence(onsets, boundaries, parts, recurrence)
    if confidence < LEAST_CONFIDENCE:
        return NoPeriod(source, f"the best candidate has a confidence of {confidence:.2f}")
    return InferredIterations(source, begin_ns, end_ns, period_of(duration_ns), confidence)


def _whole(onsets: Onsets, boundaries: Boundaries) -> tuple[Boundaries, int, float]:
    """Return where iterations begin that consist of equal parts, of how many, and how surely."""
    silence_ns = silences_before(onsets, boundaries)
    k, sure = bursts_per_iteration(silence_ns[1:])
    boundaries = every(k, boundaries, silence_ns)
    begin_ns, end_ns = spans(onsets, boundaries)
    parts, really = parts_per_iteration(end_ns - begin_ns)
    return every(parts, boundaries, silences_before(onsets, boundaries)), k * parts, sure * really


def spans(onsets: Onsets, boundaries: Boundaries) -> tuple[Int64, Int64]:
    """Return where the iterations between boundaries begin and end, ns."""
    time_ns = np.rint(onsets.time_at(boundaries.moved)).astype(np.int64)
    on_silence = boundaries.row >= 0
    time_ns[on_silence] = onsets.onset_ns[boundaries.row[on_silence]]
    whole = np.flatnonzero(boundaries.follows)
    return time_ns[whole - 1], time_ns[whole]


def _confidence(onsets: Onsets, boundaries: Boundaries, bursts: int, recurrence: Recurrence) -> float:
    """Return the confidence but for the doubt about equal buckets; see InferredIterations."""
    count = int(boundaries.follows.sum())
    on_silence = float((boundaries.row >= 0).mean())
    moved = float(onsets.moved[-1] - onsets.moved[0])
    repeated = min(1.0, count * bursts * recurrence.amount / moved)
    by_chance = float(np.exp(-recurrence.evidence / 10))
    exact = float(np.sqrt(min(recurrence.score, 1.0))) * (1 - _BLUR * recurrence.tolerance)
    return on_silence * repeated * exact * (1 - by_chance) * (1 - 2 / count)


def period_of(duration_ns: Int64) -> float:
    """Return the mean duration without pauses, ns.

    Iterations count fully up to four deviations above the median, less and less up to eight, not at all beyond. The
    deviation is `spread_of`, at least 5 % of the median. So a pause is what stands out from the job's own jitter, and
    all others count alike: their mean is the same from begin to begin and from onset to onset, unlike their median.
    """
    middle = float(np.median(duration_ns))
    deviations = (duration_ns / middle - 1) / max(spread_of(duration_ns), _LEAST_SPREAD)
    weight = np.interp(deviations, _PAUSE, (1.0, 0.0))
    return float((duration_ns * weight).sum() / weight.sum())


def spread_of(duration_ns: Int64) -> float:
    """Return the standard deviation over the median, from the 10th and 90th percentile: pauses are rarer than that.

    The longest is left out, so that one pause does not count even among ten iterations.
    """
    low, middle, high = np.percentile(np.sort(duration_ns)[:-1], [10, 50, 90])
    return float((high - low) / (2 * 1.2816 * middle)) if middle > 0 else np.inf
