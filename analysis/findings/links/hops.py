"""What is on the path below a flow's device, in both directions: for a report on that device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.links.link_summary import HopSummary
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.path_table import PathOverTime
from netprof.model import LineRate
from netprof.schema import RECEIVE, HopKind


def hops_below(evidence: Evidence, link: LinkKey) -> tuple[HopSummary, ...]:
    """Return the devices that what a device sends and receives was last seen to pass, each once a direction."""
    hops: dict[tuple[int, LinkKey | str, int], HopSummary] = {}
    for way, path in evidence.path_table.of_link(link):
        for hop in _hops(evidence, way, path):
            key = LinkKey(hop.netns, hop.device) if hop.device else hop.about
            hops.setdefault((way, key, hop.direction), hop)
    return tuple(sorted(hops.values(), key=lambda hop: hop.way))


def _hops(evidence: Evidence, way: int, path: PathOverTime) -> Iterator[HopSummary]:
    lanes = evidence.links.lanes
    for passage in path.below[-1]:
        link, past = passage.link, evidence.pasts.get(passage.link)
        rate = LineRate(None, "unknown")
        if past is not None:
            last = past.changes[-1]
            rate = LineRate(last.line_rate_bps, last.line_rate_source)
            if passage.direction == RECEIVE:
                rate = LineRate(last.receive_rate_bps, last.receive_rate_source)
        on_path = any(use.way == passage.direction for use in lanes.uses_of(link))
        about = path.abouts[-1][passage]
        yield HopSummary(
            way, link.netns, link.device, passage.direction, passage.kind, about, on_path, rate.bps, rate.source
        )
    if path.unseen[-1]:
        yield HopSummary(way, 0, "", way, HopKind.UNSEEN, path.unseen[-1], False, None, "unknown")


def lowest_rate(device_rate: LineRate, hops: Sequence[HopSummary]) -> LineRate:
    """Return the lowest line rate of a device and of what is on the path below it."""
    rates = [device_rate, *(LineRate(hop.line_rate_bps, hop.line_rate_source) for hop in hops if hop.on_path)]
    return min((rate for rate in rates if rate.bps is not None), key=lambda rate: rate.bps or 0.0, default=device_rate)
