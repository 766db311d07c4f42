"""Which link is full for most of some waiting, how that is said, and what helps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from netprof.analysis.account.account import links_of
from netprof.analysis.account.bottlenecks import ONE_LINK, Bottleneck, LinkSide
from netprof.analysis.account.waiting import Waiting
from netprof.analysis.declared import share_of
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.blame import ALONE, NEAR, Blame
from netprof.analysis.findings.links.alternatives import alternatives
from netprof.analysis.findings.names import link_on_host, ranks_named, ranks_of
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import Intervals, merge, overlap, union
from netprof.analysis.wire.lanes import LaneOnLink
from netprof.schema import RECEIVE, TRANSMIT
from netprof.units import duration, percent, rate

_RIVAL = 0.3
"""Share of the longest time from which on another link may be the one in another piece of the recording."""


def link_behind(stretches: Waiting, evidence: Evidence, *, others: bool) -> Blame | None:
    """Return the link that is full for most of some stretches, of the job's bytes or of others'."""
    times = merge(stretches.begin_ns, stretches.end_ns)
    numbers = [number for number in np.unique(stretches.group).tolist() if number in evidence.account.groups]
    bottlenecks = [each for number in numbers for each in evidence.account.groups[number].bottlenecks]
    if not bottlenecks:
        return None
    when = [within(each.full - each.own_full if others else each.own_full, stretches) for each in bottlenecks]
    blames = [
        _of_side(each, part / max(int(stretches.length_ns.sum()), 1), bottlenecks, times, evidence, others=others)
        for each, part in zip(bottlenecks, when, strict=True)
        if part >= _RIVAL * max(when)
    ]
    near = [who for who in blames if who.part >= NEAR * max(who.part for who in blames)]
    first = max(near, key=lambda who: (not who.assumed, who.part))
    return replace(first, rivals=tuple(who for who in blames if who is not first))


def _of_side(
    full: Bottleneck,
    part: float,
    every: Sequence[Bottleneck],
    times: Intervals,
    evidence: Evidence,
    *,
    others: bool,
) -> Blame:
    """Return that one side of a link is full for a part of some times, of `every` bottleneck."""
    side = full.side
    uses = [use for use in evidence.links.lanes.uses_of(side.link) if use.way == side.direction]
    pids = tuple(dict.fromkeys(use.lane.pid for use in uses)) or evidence.links.lanes.pids_of(side.link)
    ranks = ranks_of(pids, evidence)
    below = bool(evidence.links.lanes.above(side.link))
    return Blame(
        label=_place(side, uses, ranks, pids, evidence),
        part=part,
        ranks=ranks,
        link=side.link.device,
        alone=part >= ONE_LINK and _is_full_alone(side.link, every, times, evidence),
        others=_others_share(full, times) if others else None,
        in_turns=part < ONE_LINK,
        assumed=_is_assumed(side, evidence),
        advice="" if others else _advice(side, evidence, below=below and part >= ONE_LINK),
    )


def _is_assumed(side: LinkSide, evidence: Evidence) -> bool:
    """Tell whether it is only assumed that a side is as fast as the other one: that a device receives as it sends."""
    past = evidence.pasts[side.link]
    return side.direction == RECEIVE and not past.receive_rate.is_known and not evidence.links.lanes.above(side.link)


def within(times: Intervals, stretches: Waiting) -> int:
    """Return how much of some stretches lies within some time, process by process."""
    return int(overlap(times, stretches.begin_ns, stretches.end_ns).sum())


def _place(
    side: LinkSide, uses: Sequence[LaneOnLink], ranks: tuple[int, ...], pids: Iterable[int], evidence: Evidence
) -> str:
    """Return how a side of a link is called, and how fast it is."""
    whose = f"{ranks_named(ranks, pids)}{link_on_host(side.link, evidence)}"
    above = evidence.links.lanes.above(side.link)
    if not above:
        use = evidence.links.ports.get(side.link)
        seen = f", seen every {duration(use.period_ns / 1e9)}" if use is not None else ""
        way = "sending" if side.direction == TRANSMIT else "receiving"
        return f"{side.link.device} of {whose} ({rate(side.line_rate_bps)}, {way}{seen})"
    ways = {use.own_way for use in uses}
    does = " and ".join(name for way, name in ((TRANSMIT, "sends"), (RECEIVE, "receives")) if way in ways)
    devices = " and ".join(dict.fromkeys(link.device for link in above))
    by = _limit(side, evidence).partition(":")[0]
    return f"{side.link.device}, below {devices} of {whose} ({rate(side.line_rate_bps)} by {by}, on what it {does})"


def _limit(side: LinkSide, evidence: Evidence) -> str:
    """Return what a side's line rate comes from."""
    past = evidence.pasts[side.link]
    if side.direction == RECEIVE and past.receive_rate.is_known:
        return past.changes[-1].receive_rate_source
    return past.source_of(side.line_rate_bps) if side.line_rate_bps else ""


def _advice(side: LinkSide, evidence: Evidence, *, below: bool) -> str:
    """Return what helps where a link is full: another device that idles, else what holds one below to its rate."""
    known = alternatives(evidence)
    better = [known[link] for link in evidence.links.lanes.above(side.link) or (side.link,) if link in known]
    return better[0].advice if better else _raise(side, evidence) if below else ""


def _raise(side: LinkSide, evidence: Evidence) -> str:
    """Return what helps where a device below those of flows is full."""
    source = _limit(side, evidence)
    if source.startswith("ethtool"):
        return f"a faster {side.link.device}, or fewer bytes: compression, gradient accumulation, larger batches"
    return (
        f"raise that limit ({source}; in Kubernetes the pod's bandwidth annotation sets such), or send fewer bytes: "
        "compression, gradient accumulation, larger batches"
    )


def _is_full_alone(link: LinkKey, every: Sequence[Bottleneck], times: Intervals, evidence: Evidence) -> bool:
    """Tell whether hardly any other link of `every` bottleneck is full in some times, though there are others."""
    rest = union([each.full for each in every if each.side.link != link])
    return _has_siblings(link, evidence) and (rest & times).total_ns < (1 - ALONE) * times.total_ns


def _has_siblings(link: LinkKey, evidence: Evidence) -> bool:
    """Tell whether it is known of any other link that carries the job's bytes when that is full."""
    used = links_of(np.unique(evidence.collectives.pid).tolist(), evidence.links.lanes)
    above = evidence.links.lanes.above
    way = {link, *above(link)}  # what lies on one path with it is no other one
    return any(side.link in used and way.isdisjoint((side.link, *above(side.link))) for side in evidence.links.sides)


def _others_share(full: Bottleneck, times: Intervals) -> float | None:
    job_ns, others_ns = full.side.own.busy_in(times), full.side.others.busy_in(times)
    return share_of(others_ns, job_ns + others_ns)


def full_sentence(who: Blame, part: float) -> str:
    """Say for what share of the waiting which link is full of the job's bytes; `part` is that of all full links."""
    sentence = _whose_time(who, part, "saturated by the job")
    return f"{sentence}, while the other links have room" if who.alone else sentence


def others_sentence(who: Blame, part: float) -> str:
    """Say the same of others' bytes."""
    return f"{_whose_time(who, part, 'full')}, {of_others(who)} of it not the job's bytes"


def of_others(who: Blame) -> str:
    """Return how much of a full link is not the job's."""
    return "a part" if who.others is None else percent(who.others)


def _whose_time(who: Blame, part: float, full: str) -> str:
    """Say for what share of the waiting a link is full: of its own time, not of that of all links together."""
    if who.in_turns:
        most = f", most of all {who.label}: {percent(part * who.part)}" if who.label else ""
        return f"in {percent(part)} of the waiting links are {full} in turn, none for most of it{most}"
    least = "at least " if who.at_least else ""
    return f"in {least}{percent(part * who.part)} of the waiting {who.label or 'a link'} is {full}"


def advice_on_full(who: Blame) -> str:
    """Say what helps where a link is full of the job's bytes."""
    if who.advice:
        return who.advice
    if who.in_turns:
        return (
            "no faster link helps alone: let transfers overlap (more buckets or connections at once), or send fewer "
            "bytes: compression, gradient accumulation, larger batches"
        )
    if who.alone:
        return f"bring {who.label} up to the speed of the others (cable, port, driver, shaping): everybody waits for it"
    return "a faster link, or fewer bytes: compression, gradient accumulation, larger batches"
