"""How fast the all-reduces were, and what they cost on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.declared import added, share_of
from netprof.analysis.events.collectives import Collectives, group_sizes
from netprof.analysis.events.factors import bus_factor, sent_per_byte
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.spread import Spread, spread_of, sum_of
from netprof.analysis.tables.columns import UNKNOWN, Bool, Float64, concatenate
from netprof.analysis.tables.intervals import Intervals, merge, row_at
from netprof.analysis.wire.bins import Bins
from netprof.schema import CollectiveKind

_EVEN = (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL, CollectiveKind.BARRIER)
"""Of what has a root, and of gathers, a rank may send more than another one."""


@dataclass(frozen=True)
class Bandwidths:
    """The all-reduces of one rank (`definitions.BANDWIDTH`), inside whole iterations where those are known.

    Bandwidths are bits per second. `algorithm_bandwidth_bps` and `bus_bandwidth_bps` are the aggregates over
    `running_ns`, in which any all-reduce runs; the medians are of single ones. None: no all-reduce, or for the bus
    bandwidths and ratios, the number of ranks is unknown. `bus_factor` is bus over algorithm bandwidth and `each_bps`
    the spread of single ones' algorithm bandwidths. `even` says that every rank sends the same for each of them.
    """

    count: int
    bytes: int
    running_ns: int
    algorithm_bandwidth_bps: float | None
    bus_bandwidth_bps: float | None
    median_algorithm_bandwidth_bps: float | None
    median_bus_bandwidth_bps: float | None
    wire_bytes: float | None
    payload_bytes: float | None
    algorithm_bytes: float | None
    bus_factor: float | None
    each_bps: Spread
    even: bool = True

    @property
    def wire_to_algorithm_ratio(self) -> float | None:
        """`definitions.WIRE_RATIO`."""
        return share_of(self.wire_bytes, self.algorithm_bytes)

    @property
    def payload_to_algorithm_ratio(self) -> float | None:
        """As `definitions.WIRE_RATIO`, of new stream bytes alone: without packet headers and retransmissions."""
        return share_of(self.payload_bytes, self.algorithm_bytes)


def algorithm_bandwidths_bps(collectives: Collectives) -> Float64:
    """Return S/t of every sized collective in bits per second; infinite for one that took no time."""
    with np.errstate(divide="ignore"):
        return np.asarray(collectives.bytes * 8e9 / collectives.duration_ns)


def rank_bandwidths(
    collectives: Collectives,
    iterations: Iterations | Intervals,
    world_size: int | None,
    sent: Bins | None,
    posted: Collectives | None = None,
) -> Bandwidths:
    """Summarise one rank: its collectives and whole iterations, and all that its flows transmitted.

    Wire bytes are taken over the whole iterations, not only while a collective runs: the end of a collective on one
    rank only says that its last bytes are in the socket buffer. `posted` are collectives without an end: they count
    only for what has to be sent.
    """
    if len(iterations):
        collectives = collectives.where(_inside(collectives, iterations))
        posted = None if posted is None else posted.where(_inside(posted, iterations))
    everything = collectives if posted is None else concatenate(Collectives, [collectives, posted])
    reduces = collectives.all_reduces()
    reduces = reduces.where(reduces.ranks != 1)
    factor = _bus_factor(reduces, world_size)
    size = int(reduces.bytes.sum())
    running_ns = merge(reduces.begin_ns, reduces.end_ns).total_ns
    single = algorithm_bandwidths_bps(reduces)
    single = single[np.isfinite(single)]
    median = float(np.median(single)) if len(single) else None
    window = merge(iterations.begin_ns, iterations.end_ns)
    sent = sent if len(window) else None
    return Bandwidths(
        count=len(reduces),
        **_speeds(size, running_ns, median, factor),
        wire_bytes=sent.wire_bytes_in(window) if sent is not None else None,
        payload_bytes=sent.payload_bytes_in(window) if sent is not None else None,
        algorithm_bytes=_needed(everything, world_size) if len(window) else None,
        each_bps=spread_of(single),
        even=bool(np.isin(everything.kind, _EVEN).all()),
    )


def merge_bandwidths(parts: Sequence[Bandwidths]) -> Bandwidths:
    """Return one rank's numbers over consecutive pieces of a recording; medians are within 0.1 % (`Spread`)."""
    sums = added(parts, "count bytes running_ns")
    factors = {part.bus_factor for part in parts if part.count}
    factor = factors.pop() if len(factors) == 1 else None
    each_bps = sum_of([part.each_bps for part in parts])
    names = ("wire_bytes", "payload_bytes", "algorithm_bytes")
    moved: dict[str, Any] = {name: _sum([getattr(part, name) for part in parts]) for name in names}
    return Bandwidths(
        count=sums["count"],
        **_speeds(sums["bytes"], sums["running_ns"], each_bps.quantile(0.5), factor),
        **moved,
        each_bps=each_bps,
        even=all(part.even for part in parts),
    )


def _speeds(size: int, running_ns: int, median_bps: float | None, factor: float | None) -> dict[str, Any]:
    """Return the aggregate over the time in which any all-reduce runs and the median of single ones, both ways."""
    aggregate_bps = size * 8e9 / running_ns if running_ns else None
    return {
        "bytes": size,
        "running_ns": running_ns,
        "algorithm_bandwidth_bps": aggregate_bps,
        "bus_bandwidth_bps": _times(aggregate_bps, factor),
        "median_algorithm_bandwidth_bps": median_bps,
        "median_bus_bandwidth_bps": _times(median_bps, factor),
        "bus_factor": factor,
    }


def _sum(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _bus_factor(reduces: Collectives, world_size: int | None) -> float | None:
    """Return bus over algorithm bandwidth, where all groups have as many ranks."""
    ranks = np.unique(group_sizes(reduces, world_size))
    return bus_factor(CollectiveKind.ALL_REDUCE, int(ranks[0])) if len(ranks) == 1 else None


def _needed(collectives: Collectives, world_size: int | None) -> float | None:
    """Return what a rank has to send for all of its collectives (`definitions.WIRE_RATIO`); None: a size is unknown.

    Of what has a root, that is the mean of the ranks: n-1 of them have to get (or give) the buffer, whoever sends it.
    Of what is of no known kind, nothing.
    """
    if world_size is None or world_size < 2:
        return None
    sends = collectives.where(~np.isin(collectives.kind, [UNKNOWN, CollectiveKind.RECEIVE]))
    if (sends.bytes == UNKNOWN).any():
        return None
    return float((sends.bytes * sent_per_byte(sends.kind, group_sizes(sends, world_size))).sum())


def _inside(collectives: Collectives, iterations: Iterations | Intervals) -> Bool:
    return np.asarray(row_at(iterations.begin_ns, iterations.end_ns, collectives.begin_ns) != UNKNOWN)


def _times(value: float | None, factor: float | None) -> float | None:
    return None if value is None or factor is None else value * factor
