"""Iterations of a job whose framework says nothing: which of its processes and sources to infer them from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from netprof.analysis.events.collectives import Collectives, find_collectives
from netprof.analysis.inference.infer import (
    SURE,
    Inference,
    InferredIterations,
    NoPeriod,
    in_one,
    infer_from_bins,
    infer_from_collectives,
    infer_from_launches,
    infer_from_waits,
)
from netprof.analysis.piece import Piece
from netprof.analysis.tables.columns import UNKNOWN, Int64
from netprof.analysis.tables.intervals import Intervals
from netprof.analysis.tables.marks import Marks
from netprof.analysis.wire.lanes import Lanes
from netprof.schema import ENQUEUED, RECEIVE, TRANSMIT
from netprof.units import milliseconds

LEAST_BYTES = 16_384
"""What an iteration moves at least: a store's keys, heartbeats and metrics are less, a model's gradients are more."""
_LEAST_BACK = 0.05
"""Share of what a process moves one way that goes the other way too: gradients go both ways, a download does not."""
_VERBS = ("sent", "received")
"""By direction."""
_ALIKE = 0.1
"""Periods that differ by less are the same."""
_MOST_PROCESSES = 4  # with the most of a kind; all ranks keep step
_MOST_MARKS = 1 << 21  # of one process; more would cost more time than they add certainty


@dataclass(frozen=True, eq=False)
class InferredSummary:
    """Iterations of one process as inferred (`definitions.INFERRED`), which all ranks of the job share; seconds.

    `method` says from what, `confidence` how surely their number is right within 1 % (0 to 1), `period_s` is the mean
    without pauses. Where the phases of an iteration lie cannot be inferred.
    """

    pid: int
    rank: int | None
    method: str
    confidence: float
    period_s: float
    count: int
    median_s: float
    mean_s: float
    p10_s: float
    p90_s: float
    min_s: float
    max_s: float
    iterations: InferredIterations


@dataclass(frozen=True, eq=False)
class InferenceOutcome:
    """The inferred iterations, or None and why: a sentence for each source that was tried."""

    summary: InferredSummary | None
    failures: tuple[str, ...] = ()

    def within(self, piece: Piece) -> InferenceOutcome:
        """Leave out the iterations that begin in other pieces of the recording."""
        if self.summary is None or piece.is_all:
            return self
        return InferenceOutcome(_summarize(self.summary.pid, self.summary.rank, self.summary.iterations.within(piece)))


def merge_inferred(parts: Sequence[InferredSummary]) -> InferredSummary | None:
    """Return what was inferred in consecutive pieces of a recording as one; of the process that most of it is of."""
    counts: Counter[int] = Counter()
    for part in parts:
        counts[part.pid] += part.count
    of_one = [part for part in parts if part.pid == max(counts, key=lambda pid: counts[pid])]
    return _summarize(of_one[0].pid, of_one[0].rank, in_one([part.iterations for part in of_one])) if of_one else None


def infer_iterations(
    marks: Marks,
    collectives: Collectives,
    lanes: Lanes,
    ranks: Mapping[int, int],
    waits: Mapping[int, Intervals] = MappingProxyType({}),
) -> InferenceOutcome:
    """Infer the job's iterations from its collectives, else their launches, their waiting or its bytes.

    The first that is SURE is taken. Where none is, all processes have to agree that have a period; of several periods
    that do, the longest one explains the beats of the others. `ranks` maps pids to ranks, `waits` is when processes
    wait of which no mark tells anything.
    """
    found: list[_Found] = []
    failures = []
    for kind, pid, inference in _attempts(marks, collectives, lanes, ranks, waits):
        if not isinstance(inference, InferredIterations):
            failures.append(f"{inference.source}: {inference.reason}")
            continue
        found.append(_Found(kind, pid, inference))
        if inference.confidence >= SURE:
            break
    agreed = _agreed(found)
    if not agreed:
        if found:
            periods = ", ".join(sorted({milliseconds(each.inferred.period_ns / 1e9) for each in found}))
            failures.insert(0, f"the processes' periods differ: {periods}")
        return InferenceOutcome(None, tuple(failures))
    best = max(agreed, key=lambda each: each.inferred.confidence)
    return InferenceOutcome(_summarize(best.pid, ranks.get(best.pid), best.inferred))


class _Found(NamedTuple):
    """An inferred period, its process, and the kind of source it comes from."""

    kind: str
    pid: int
    inferred: InferredIterations

    def is_alike(self, other: _Found) -> bool:
        """Tell whether both periods are the same."""
        return bool(abs(np.log(self.inferred.period_ns / other.inferred.period_ns)) < _ALIKE)

    def is_apart(self, other: _Found) -> bool:
        """Tell whether both rest on something else: what one process sends and another receives are the same bytes."""
        return self.pid != other.pid and {self.kind, other.kind} != set(_VERBS)


def _agreed(found: Sequence[_Found]) -> list[_Found]:
    """Return those of the longest period that another process confirms, or that none contradicts."""
    sure = [each for each in found if each.inferred.confidence >= SURE]
    apart = {each: [other for other in found if each.is_apart(other)] for each in found}
    confirmed = [each for each in found if any(map(each.is_alike, apart[each]))]
    kept = sure + confirmed or [each for each in found if not apart[each]]
    longest = max(kept, key=lambda each: each.inferred.period_ns, default=None)
    return [] if longest is None else [each for each in kept if each.is_alike(longest)]


def _attempts(
    marks: Marks,
    collectives: Collectives,
    lanes: Lanes,
    ranks: Mapping[int, int],
    waits: Mapping[int, Intervals],
) -> Iterator[tuple[str, int, Inference]]:
    """Yield what each source says of each process, the best evidence first; each is looked at only when asked for."""
    for pid in _most(collectives.pid):
        performed = collectives.where(collectives.rows_of(pid)[:_MOST_MARKS])
        source = f"collectives of {_name(pid, ranks)}"
        inference = infer_from_collectives(performed.begin_ns, performed.end_ns, performed.bytes, source)
        yield "performed", pid, _of_gradients(inference, _known(performed.bytes))
    posted = find_collectives(marks).posted
    for pid in _most(posted.pid):
        launched = posted.where(posted.rows_of(pid)[:_MOST_MARKS])
        source = f"collectives that {_name(pid, ranks)} posted"
        inference = infer_from_launches(launched.begin_ns, launched.bytes, source)
        yield "posted", pid, _of_gradients(inference, _known(launched.bytes))
    enqueued = marks.of(*ENQUEUED)
    for pid in _most(enqueued.pid):
        calls = enqueued.where(enqueued.rows_of(pid)[:_MOST_MARKS])
        source = f"collectives that {_name(pid, ranks)} enqueued"
        elements = np.where(calls.arg0 > 0, calls.arg0, UNKNOWN)
        yield "enqueued", pid, infer_from_launches(calls.time_ns, elements, source)
    for pid in sorted(waits, key=lambda pid: -waits[pid].total_ns)[:_MOST_PROCESSES]:
        for direction, verb in enumerate(_VERBS):
            whole = lanes.of_process(pid, direction)
            if whole is not None and (moved_bytes := _payload(lanes, pid, direction)):
                inference = infer_from_waits(waits[pid], whole, f"waiting of {_name(pid, ranks)}")
                yield f"waiting, {verb}", pid, _of_gradients(inference, moved_bytes)
    for direction, verb in enumerate(_VERBS):
        moved = {pid: _payload(lanes, pid, direction) for pid in sorted(lanes.pids)}
        for pid in sorted(moved, key=lambda pid: -moved[pid])[:_MOST_PROCESSES]:
            whole = lanes.of_process(pid, direction)
            if whole is not None and moved[pid]:
                source = f"bytes that {_name(pid, ranks)} {verb}"
                back = _payload(lanes, pid, RECEIVE if direction == TRANSMIT else TRANSMIT)
                if back < _LEAST_BACK * moved[pid]:
                    yield verb, pid, NoPeriod(source, "they go one way, as no gradients do")
                else:
                    yield verb, pid, _of_gradients(infer_from_bins(whole, source), moved[pid])


def _known(sizes: Int64) -> int | None:
    """Return the sum of sizes; None where one of them is not known."""
    return None if (sizes == UNKNOWN).any() else int(sizes.sum())


def _of_gradients(inference: Inference, moved_bytes: int | None) -> Inference:
    """Return what was inferred, if what moves in an iteration could be gradients, as far as that is known."""
    if not isinstance(inference, InferredIterations) or moved_bytes is None:
        return inference
    each_bytes = moved_bytes / len(inference)
    if each_bytes >= LEAST_BYTES:
        return inference
    return NoPeriod(inference.source, f"what recurs moves {each_bytes:.0f} bytes, less than gradients")


def _payload(lanes: Lanes, pid: int, direction: int) -> int:
    bins = lanes.of_process(pid, direction)
    return int(bins.payload_bytes.sum(dtype=np.int64)) if bins is not None else 0


def _most(pids: Int64) -> list[int]:
    """Return the processes with the most rows, at most _MOST_PROCESSES of them."""
    values, counts = np.unique(pids, return_counts=True)
    most: list[int] = values[np.argsort(-counts, kind="stable")][:_MOST_PROCESSES].tolist()
    return most


def _name(pid: int, ranks: Mapping[int, int]) -> str:
    return f"rank {ranks[pid]}" if pid in ranks else f"process {pid}"


def _summarize(pid: int, rank: int | None, inferred: InferredIterations) -> InferredSummary | None:
    if len(inferred) == 0:
        return None
    seconds = inferred.duration_ns / 1e9
    p10, median, p90 = np.percentile(seconds, [10, 50, 90])
    return InferredSummary(
        pid=pid,
        rank=rank,
        method=f"the period of the {inferred.source}",
        confidence=inferred.confidence,
        period_s=inferred.period_ns / 1e9,
        count=len(inferred),
        median_s=float(median),
        mean_s=float(seconds.mean()),
        p10_s=float(p10),
        p90_s=float(p90),
        min_s=float(seconds.min()),
        max_s=float(seconds.max()),
        iterations=inferred,
    )
