"""Sets of time that a digest of one host alone keeps: what its ranks wait, and what explains the waiting of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from netprof.analysis.account.account import Sources, activities_of, links_of, on_ports, without_collective
from netprof.analysis.account.activity import activity
from netprof.analysis.account.bottlenecks import full_times
from netprof.analysis.account.group_times import LEAST_SILENCE_NS, recoveries
from netprof.analysis.declared import merged
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.columns import Columns, Int64
from netprof.analysis.tables.flow_table import Flows, LinkKey
from netprof.analysis.tables.intervals import Intervals, joined, merge, union
from netprof.schema import TRANSMIT


class What(IntEnum):
    """What is the case in a set of time: first of a process, then of a side of a link, of a flow, and of a process."""

    WAITS = 0
    """It does nothing but wait for communication."""
    HIDDEN = 1
    """It waits for something that is no collective that was seen."""
    ON_PORTS = 2
    """The RDMA ports that it uses move something."""
    UNPLACED = 3
    """Bytes of it passed at unknown moments."""
    STOPPED = 4
    """It is stopped."""
    SENDS = 5
    """Its payload moves, and began to by what it sends; gaps that are no silence are in it."""
    RECEIVES = 6
    """The same, but it began by what it receives."""
    FULL = 7
    """It is full of the job's bytes."""
    OTHERS = 8
    """It is full, but not of the job's bytes."""
    RECOVERS = 9
    """It recovers from loss."""
    RESENDS = 10
    """TCP says that it sends again what is needed; touching intervals stay apart, for each is between two samples."""
    UNSENT = 12
    """Its TCP holds back what it has to send."""
    UNMARKED = 13
    """It waits for bytes that no mark shows."""
    SURELY = 11
    """A process that is only seen to launch surely waits; `WAITS` is when it may."""


class SpanKey(NamedTuple):
    """What a set of time is of; of a link it is the place in the digest's list of them, once it is in a digest."""

    what: What
    pid: int = -1
    link: LinkKey | int = -1
    direction: int = -1
    flow: str = ""


@dataclass(frozen=True)
class SpanSet:
    """What a set of table `spans` is of, as `SpanKey`.

    Of a link that is full of others' bytes `own_ns` is for how long it serves the job's, and `others_ns` others'.
    """

    what: int
    pid: int
    link: int
    direction: int
    flow: str
    own_ns: float
    others_ns: float


@dataclass(frozen=True, eq=False)
class Spans(Columns):
    """The intervals of the digest's sets of time; `set` counts the list of them."""

    set: Int64
    begin_ns: Int64
    end_ns: Int64


@dataclass(frozen=True, eq=False)
class FoundSpans:
    """Sets of time by what they are of, and for how long links were busy with own and others' bytes while OTHERS."""

    times: Mapping[SpanKey, Intervals]
    busy: Mapping[SpanKey, tuple[float, float]]
    rtt_ns: tuple[int, int]
    """The longest and the median round trip of the flows, of each in its median; 0 where none is known."""


NO_SPANS = FoundSpans({}, {}, (0, 0))


def find_spans(evidence: Evidence) -> FoundSpans:
    """Return the sets of time of a recording of one host, or a piece of one."""
    sources, piece = evidence.account_sources, evidence.piece
    times, busy = dict(_of_processes(sources)), dict[SpanKey, tuple[float, float]]()
    waits = union(list(sources.waits.values()))
    used = links_of(np.unique(sources.collectives.pid).tolist() or sorted(sources.waits), sources.lanes)
    for side in sources.sides:
        if side.link in used:
            full = full_times(side, waits)
            times[SpanKey(What.FULL, link=side.link, direction=side.direction)] = full.own
            key = SpanKey(What.OTHERS, link=side.link, direction=side.direction)
            times[key] = full.others
            while_others = full.others & piece.time
            busy[key] = side.own.busy_in(while_others), side.others.busy_in(while_others)
    times |= _of_flows(sources)
    cut = {key: _of_piece(key, each, piece.time) for key, each in times.items()}
    trips = sources.rtt_ns[sources.rtt_ns > 0]
    rtt_ns = (int(trips.max()), int(np.median(trips))) if len(trips) else (0, 0)
    return FoundSpans({key: each for key, each in cut.items() if len(each)}, busy, rtt_ns)


def with_surely(spans: FoundSpans, times: Mapping[int, Intervals], piece: Intervals) -> FoundSpans:
    """Return sets of time with when processes surely wait that are only seen to launch."""
    sure = {SpanKey(What.SURELY, pid): each & piece for pid, each in times.items()}
    return replace(spans, times={**spans.times, **{key: each for key, each in sure.items() if len(each)}})


def _of_piece(key: SpanKey, times: Intervals, piece: Intervals) -> Intervals:
    """Return what of a set lies in a piece of a recording; what is between two samples is of where it ends."""
    if key.what is not What.RESENDS:
        return times & piece
    return times.where((times.end_ns > piece.begin_ns[0]) & (times.end_ns <= piece.end_ns[0]))


def _of_processes(sources: Sources) -> Iterator[tuple[SpanKey, Intervals]]:
    for what, times_of in (
        (What.WAITS, sources.waits),
        (What.HIDDEN, without_collective(sources)),
        (What.ON_PORTS, on_ports(sources)),
        (What.UNPLACED, sources.unplaced),
        (What.STOPPED, sources.stopped),
        (What.UNSENT, sources.unsent),
        (What.UNMARKED, sources.unmarked),
    ):
        yield from ((SpanKey(what, pid), times) for pid, times in times_of.items())
    for pid, found_activity in activities_of(sources).items():
        runs = joined(merge(found_activity.first_ns, found_activity.last_ns + 1), LEAST_SILENCE_NS)
        sent = activity(sources.lanes.by_packet(pid, TRANSMIT)).first_ns
        sends = np.isin(runs.begin_ns, sent)
        yield SpanKey(What.SENDS, pid), runs.where(sends)
        yield SpanKey(What.RECEIVES, pid), runs.where(~sends)


def _of_flows(sources: Sources) -> dict[SpanKey, Intervals]:
    resent = sources.resent.where(~sources.resends.needless(sources.resent.flow, sources.resent.first_ns))
    recovering = recoveries(resent.flow, resent.before_ns, resent.last_ns, sources.rtt_ns[resent.flow])
    times = {_flow_key(What.RECOVERS, row, sources.flows): each for row, each in recovering.items()}
    return times | {_flow_key(What.RESENDS, row, sources.flows): each for row, each in sources.resends.times().items()}


def _flow_key(what: What, row: int, flows: Flows) -> SpanKey:
    return SpanKey(what, int(flows.pid[row]), flow=flows.name(row))


def merge_spans(parts: Sequence[FoundSpans]) -> FoundSpans:
    """Return the sets of time of consecutive pieces as those of the whole."""
    busy: dict[SpanKey, tuple[float, float]] = {}
    for key, (own_ns, others_ns) in (item for part in parts for item in part.busy.items()):
        before = busy.get(key, (0.0, 0.0))
        busy[key] = before[0] + own_ns, before[1] + others_ns
    times = {key: _in_one(key, pieces) for key, pieces in merged([part.times for part in parts], list).items()}
    trips = [part.rtt_ns for part in parts if part.rtt_ns[0]]
    rtt_ns = (max(each for each, _ in trips), int(np.median([each for _, each in trips]))) if trips else (0, 0)
    return FoundSpans(times, busy, rtt_ns)


def _in_one(key: SpanKey, parts: Sequence[Intervals]) -> Intervals:
    if key.what is not What.RESENDS:
        return union(parts)
    return Intervals(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("begin_ns", "end_ns")))


def as_table(spans: FoundSpans, links: Sequence[LinkKey]) -> tuple[tuple[SpanSet, ...], Spans]:
    """Return what is written of sets of time; `links` is the digest's list."""
    place = {link: number for number, link in enumerate(links)}
    kept = [
        (key, times) for key, times in spans.times.items() if not isinstance(key.link, LinkKey) or key.link in place
    ]
    sets = tuple(
        SpanSet(
            int(key.what),
            key.pid,
            place[key.link] if isinstance(key.link, LinkKey) else -1,
            key.direction,
            key.flow,
            *spans.busy.get(key, (0.0, 0.0)),
        )
        for key, _ in kept
    )
    begin, end = (
        np.concatenate([np.zeros(0, np.int64), *(getattr(each, name) for _, each in kept)])
        for name in ("begin_ns", "end_ns")
    )
    return sets, Spans(np.repeat(np.arange(len(kept)), [len(each) for _, each in kept]), begin, end)
