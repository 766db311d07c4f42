"""The ranks' numbers put together into the job's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.iterations import Dropped
from netprof.analysis.findings.links import LinkSummary
from netprof.analysis.findings.ranks import RankSummary


@dataclass(frozen=True)
class CollectiveSummary:
    """The job's all-reduces (`definitions.BANDWIDTH`); bits per second, bytes.

    Every rank takes part in an all-reduce, so `count` and `bytes` are those of the rank that recorded the most.
    Bandwidths and ratios are over all ranks. None: unknown, because there was no all-reduce, or for the bus
    bandwidths, share and ratios, because the number of ranks (or the line rate) is unknown. `other_count` are
    collectives of another or an unknown kind, `unpaired_marks` begins and ends without a partner.
    """

    world_size: int | None
    count: int
    bytes: int
    running_ns: int
    algorithm_bandwidth_bps: float | None
    bus_bandwidth_bps: float | None
    median_algorithm_bandwidth_bps: float | None
    median_bus_bandwidth_bps: float | None
    line_rate_share: float | None
    wire_to_algorithm_ratio: float | None
    payload_to_algorithm_ratio: float | None
    wire_bytes_per_iteration: float | None
    other_count: int
    unpaired_marks: int


def summarize_collectives(
    ranks: Sequence[RankSummary], links: Sequence[LinkSummary], world_size: int | None, other: int, unpaired: int
) -> CollectiveSummary:
    """Put the ranks' all-reduces together; the line rate is the lowest of the links that the ranks send over."""
    with_any = [rank for rank in ranks if rank.bandwidths.count]
    most = max((rank.bandwidths for rank in with_any), key=lambda b: b.count, default=None)
    running_ns = sum(rank.bandwidths.running_ns for rank in with_any)
    bus = _weighted([(r.bandwidths.bus_bandwidth_bps, r.bandwidths.running_ns) for r in with_any])
    return CollectiveSummary(
        world_size=world_size,
        count=most.count if most else 0,
        bytes=most.bytes if most else 0,
        running_ns=running_ns // len(with_any) if with_any else 0,
        algorithm_bandwidth_bps=_weighted(
            [(r.bandwidths.algorithm_bandwidth_bps, r.bandwidths.running_ns) for r in with_any]
        ),
        bus_bandwidth_bps=bus,
        median_algorithm_bandwidth_bps=_median([r.bandwidths.median_algorithm_bandwidth_bps for r in with_any]),
        median_bus_bandwidth_bps=_median([r.bandwidths.median_bus_bandwidth_bps for r in with_any]),
        line_rate_share=_share(bus, _lowest_rate(with_any, links)),
        wire_to_algorithm_ratio=_sum_ratio([(r.bandwidths.wire_bytes, r.bandwidths.algorithm_bytes) for r in with_any]),
        payload_to_algorithm_ratio=_sum_ratio(
            [(r.bandwidths.payload_bytes, r.bandwidths.algorithm_bytes) for r in with_any]
        ),
        wire_bytes_per_iteration=_sum_ratio(
            [(r.bandwidths.wire_bytes, float(r.durations.count)) for r in with_any if r.durations]
        ),
        other_count=other,
        unpaired_marks=unpaired,
    )


def dropped_in_all(ranks: Sequence[RankSummary]) -> Dropped:
    """Return the dropped steps of all processes together."""
    return Dropped(sum(r.dropped.incomplete for r in ranks), sum(r.dropped.damaged for r in ranks))


def _lowest_rate(ranks: Sequence[RankSummary], links: Sequence[LinkSummary]) -> float | None:
    """Return the lowest line rate of the links that ranks send over; loopback limits nothing between hosts."""
    used = {rank.link for rank in ranks if rank.link is not None}
    used = {link for link in used if link.device != "lo"} or used
    rates = [link.line_rate_bps for link in links if (link.netns, link.device) in used]
    known = [rate for rate in rates if rate]
    return min(known) if known and len(known) == len(rates) else None


def _weighted(values: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _sum_ratio(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    known = [(part, whole) for part, whole in pairs if part is not None and whole]
    return sum(part for part, _ in known) / sum(whole for _, whole in known) if known else None


def _share(value: float | None, whole: float | None) -> float | None:
    return value / whole if value is not None and whole else None
