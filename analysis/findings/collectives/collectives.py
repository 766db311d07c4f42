"""The job's all-reduces, from the numbers of its ranks; and its collectives by kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.declared import added, json_of, plain, share_of
from netprof.analysis.definitions import BANDWIDTH, KINDS, WIRE_RATIO, Definition
from netprof.analysis.findings.collectives.collective_kinds import (
    KindSummary,
    kinds_part,
    merge_kinds,
    summarize_kinds,
    worth_a_part,
)
from netprof.analysis.findings.collectives.nccl import NCCL
from netprof.analysis.findings.collectives.ranks import RANKS, RankSummary
from netprof.analysis.findings.flows.flow_properties import FLOW_PROPERTIES, FlowProperties
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.recorded import RECORDED
from netprof.analysis.form import Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.flow_table import LOOPBACK
from netprof.schema import MarkKind
from netprof.units import duration, rate, ratio, share, size


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


@dataclass(frozen=True)
class CollectiveCounts:
    """All collectives, by kind.

    `others` are no all-reduces. `reduce_scatters_asked` are those that gloo ran as all-reduces, which is what `kinds`
    counts them as; of the process with the most. `unmatched_buckets` of `buckets` have no collective of their own.
    """

    kinds: tuple[KindSummary, ...]
    others: int
    reduce_scatters_asked: int
    buckets: int
    unmatched_buckets: int


@dataclass(frozen=True)
class CollectivesFinding:
    """The job's collectives: all-reduces in `summary`, all of them in `counted`.

    `iterations` are those of the rank with the most, `flows` the properties of the flows that carried them.
    `only_enqueued` says that NCCL was seen to enqueue.
    """

    summary: CollectiveSummary
    counted: CollectiveCounts
    iterations: int | None
    flows: FlowProperties | None
    only_enqueued: bool


def _conclude(analysis: Analysis) -> CollectivesFinding:
    evidence = analysis.evidence
    marks, collectives = evidence.marks, evidence.owned(evidence.together)
    asked = marks.where((marks.kind == MarkKind.REDUCE_SCATTER_ASKED) & evidence.piece.owns(marks.time_ns))
    _, asked_by = np.unique(asked.pid, return_counts=True)
    counted = CollectiveCounts(
        kinds=summarize_kinds(
            collectives, evidence.owned(evidence.posted), analysis.of(NCCL).operations, evidence.world_size
        ),
        others=len(collectives) - len(collectives.all_reduces()),
        reduce_scatters_asked=int(asked_by.max(initial=0)),
        buckets=len(evidence.buckets),
        unmatched_buckets=int((evidence.buckets.from_collective == 0).sum()),
    )
    return _finding(counted, analysis)


def _finding(counted: CollectiveCounts, analysis: Analysis) -> CollectivesFinding:
    return CollectivesFinding(
        summary=summarize_collectives(
            analysis.of(RANKS),
            analysis.of(LINKS),
            analysis.evidence.world_size,
            counted.others,
            analysis.of(RECORDED).unpaired,
        ),
        counted=counted,
        iterations=analysis.of(ITERATIONS).count,
        flows=analysis.of(FLOW_PROPERTIES),
        only_enqueued=bool(analysis.of(NCCL).processes),
    )


def _merge(parts: Sequence[CollectivesFinding], whole: Analysis) -> CollectivesFinding:
    every = [part.counted for part in parts]
    sums = added(every, "others reduce_scatters_asked buckets unmatched_buckets")
    return _finding(CollectiveCounts(merge_kinds([part.kinds for part in every]), **sums), whole)


def summarize_collectives(
    ranks: Sequence[RankSummary], links: Sequence[LinkSummary], world_size: int | None, other_count: int, unpaired: int
) -> CollectiveSummary:
    """Put the ranks' all-reduces together; the line rate is the lowest of the links that the ranks send over."""
    with_any = [rank for rank in ranks if rank.bandwidths.count]
    bandwidths = [rank.bandwidths for rank in with_any]
    most = max(bandwidths, key=lambda each: each.count, default=None)
    bus = _weighted([(each.bus_bandwidth_bps, each.running_ns) for each in bandwidths])
    return CollectiveSummary(
        world_size=world_size,
        count=most.count if most else 0,
        bytes=most.bytes if most else 0,
        running_ns=sum(each.running_ns for each in bandwidths) // len(bandwidths) if bandwidths else 0,
        algorithm_bandwidth_bps=_weighted([(each.algorithm_bandwidth_bps, each.running_ns) for each in bandwidths]),
        bus_bandwidth_bps=bus,
        median_algorithm_bandwidth_bps=_median([each.median_algorithm_bandwidth_bps for each in bandwidths]),
        median_bus_bandwidth_bps=_median([each.median_bus_bandwidth_bps for each in bandwidths]),
        line_rate_share=share_of(bus, _lowest_rate(with_any, links)),
        wire_to_algorithm_ratio=_sum_ratio([(each.wire_bytes, each.algorithm_bytes) for each in bandwidths]),
        payload_to_algorithm_ratio=_sum_ratio([(each.payload_bytes, each.algorithm_bytes) for each in bandwidths]),
        wire_bytes_per_iteration=_sum_ratio(
            [(r.bandwidths.wire_bytes, float(r.durations.count)) for r in with_any if r.durations]
        ),
        other_count=other_count,
        unpaired_marks=unpaired,
    )


def _document(finding: CollectivesFinding) -> dict[str, Any]:
    document = plain(finding.summary)
    by_kind = [json_of(each, _OF_KIND) for each in finding.counted.kinds]
    about = {"running_s": document.pop("running_ns") / 1e9, "by_kind": by_kind}
    return {"world_size": document.pop("world_size"), "collectives": document | about}


_OF_KIND = "backend kind timing count bytes running_ns algorithm_bandwidth_bps bus_bandwidth_bps"


def _parts(finding: CollectivesFinding) -> Iterator[Part]:
    if finding.summary.count:
        yield Part("All-reduces", "of one rank", [Pairs(_all_reduces(finding))])
    else:
        enqueued = " (NCCL only enqueues: see below)" if finding.only_enqueued else ""
        yield Part("All-reduces", f"none with a known size were seen{enqueued}")
    if worth_a_part(finding.counted.kinds):
        yield kinds_part(finding.counted.kinds)


def _all_reduces(finding: CollectivesFinding) -> list[tuple[str, str]]:
    summary = finding.summary
    properties = None if finding.flows is None else finding.flows.by_iteration
    per_iteration = f"  ({size(summary.bytes / finding.iterations)} an iteration)" if finding.iterations else ""
    without = ratio(summary.payload_to_algorithm_ratio)
    rows = [
        ("seen", f"{summary.count}, {size(summary.bytes)}{per_iteration}"),
        ("running", duration(summary.running_ns / 1e9)),
        ("algorithm bw.", _bandwidth(summary.algorithm_bandwidth_bps, summary.median_algorithm_bandwidth_bps)),
        ("bus bandwidth", _bandwidth(summary.bus_bandwidth_bps, summary.median_bus_bandwidth_bps)),
        ("of line rate", share(summary.line_rate_share)),
        ("wire / algorithm", f"{ratio(summary.wire_to_algorithm_ratio)}  (payload alone {without})"),
    ]
    if properties is not None and properties.start_skew_s is not None:
        equality, completion = share(properties.size_equality), properties.completion
        rows.append(("start skew", duration(properties.start_skew_s)))
        rows.append(("flow sizes", f"the smallest is {equality} of the largest"))
        if completion is not None and completion <= 1:  # more: other collectives' bytes too
            rows.append(("flow time", f"{share(completion)} of the all-reduces' time, from first to last byte"))
    return rows


def _bandwidth(aggregate: float | None, single: float | None) -> str:
    return f"{rate(aggregate)}  (each alone, in the median: {rate(single)})"


def _notes(finding: CollectivesFinding) -> Iterator[str]:
    if finding.counted.reduce_scatters_asked:
        yield (
            f"{finding.counted.reduce_scatters_asked} reduce-scatters ran as all-reduces, which move twice the bytes: "
            "PyTorch has no other way with gloo"
        )
    if finding.summary.count and finding.summary.world_size is None:
        yield "the number of ranks is unknown: no bus bandwidth"
    if finding.counted.unmatched_buckets:
        yield (
            f"{finding.counted.unmatched_buckets} of {finding.counted.buckets} buckets have no collective of their "
            "own: they end when they are unpacked"
        )


def _definitions(finding: CollectivesFinding) -> Sequence[Definition]:
    definitions = [BANDWIDTH, WIRE_RATIO] if finding.summary.count else []
    return (*definitions, *([KINDS] if worth_a_part(finding.counted.kinds) else []))


def _lowest_rate(ranks: Sequence[RankSummary], links: Sequence[LinkSummary]) -> float | None:
    """Return the lowest line rate of the links that ranks send over; loopback limits nothing between hosts."""
    on_host = {(link.host, link.key): link for link in links}  # digests of several hosts number namespaces alike
    anywhere = {link.key: link for link in links}
    of_ranks = [on_host.get((rank.host or "", rank.link)) or anywhere.get(rank.link) for rank in ranks if rank.link]
    used = [link for link in of_ranks if link is not None]
    limits = [link for link in used if link.device != LOOPBACK] or used
    known = [link.path_rate_bps for link in limits if link.path_rate_bps and not link.rate_is_wrong]
    return min(known) if known and len(known) == len(limits) else None


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


COLLECTIVES = Section(
    "collectives",
    _conclude,
    ("marks", "wire", "flows"),
    _document,
    lambda finding: tuple(_parts(finding)),
    _notes,
    _definitions,
    merge=_merge,
)
