"""How busy each link was, and how long it was idle and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from netprof.analysis.account.causes import CAUSES, Cause
from netprof.analysis.account.idle import idle_spans, idle_time
from netprof.analysis.declared import Column, by_key, json_of, plain, seconds, share_of, table
from netprof.analysis.definitions import IDLE, OUTSTANDING, UTILIZATION, Definition
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.links.hops import hops_below, lowest_rate
from netprof.analysis.findings.links.link_changes import changes_in_words, history
from netprof.analysis.findings.links.link_summary import HopSummary, LinkSummary, SideTime, as_told, in_one
from netprof.analysis.findings.links.nic import NicTotals, bytes_in, nic_totals
from netprof.analysis.findings.links.rdma_ports import counts_bytes, goes_unseen, stands_still, users_of_port
from netprof.analysis.findings.names import ranks_of
from netprof.analysis.form import Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals
from netprof.analysis.tables.link_history import LinkPast
from netprof.analysis.wire.ports import is_port
from netprof.model import LineRate
from netprof.schema import RECEIVE, TRANSMIT
from netprof.units import duration, rate, share

UNKNOWN_RATE = LineRate(None, "unknown")
HARDLY_ANY = 0.001
"""Share of the job's bytes below which a link is not shown: a control connection over loopback, say."""
OTHER_TRAFFIC = 0.05
"""Share of a device's bytes that may be another's, or a counter's way of counting headers, before it is mentioned."""

_MOST = 256
"""Links that are listed: a job on a thousand hosts has thousands."""


def _side(evidence: Evidence, key: LinkKey, direction: int, window: Intervals, waiting: Intervals | None) -> SideTime:
    """Return for how long a side of a link serves (`definitions.UTILIZATION`); unknown without a line rate."""
    served = evidence.links.served(key, direction)
    if served is None:
        idle = 0.0 if (key, direction) in evidence.links.rates else None
        return SideTime(idle, None if waiting is None else idle)
    known = evidence.links.rates[key, direction].known
    return SideTime(served.busy_in(window & known), served.busy_in(waiting & known) if waiting is not None else None)


def spans_of_idleness(evidence: Evidence, link: LinkSummary) -> Mapping[str, Intervals]:
    """Return when a link was idle in both directions, by cause: what its `idle` adds up."""
    times = evidence.cause_times(link.key)
    window = times.window if times else evidence.recording
    not_idle = window if link.tells_nothing else evidence.links.not_idle(link.key, TRANSMIT, RECEIVE)
    return idle_spans(not_idle, window, times)


def short_names(links: Sequence[LinkSummary]) -> list[str]:
    """Return the devices' names; where another network namespace has one of that name, with its ranks or its inode."""
    alike: defaultdict[str, list[tuple[int, ...]]] = defaultdict(list)
    for link in links:
        alike[link.name].append(link.ranks)
    return [_short_name(link, alike[link.name]) for link in links]


def _short_name(link: LinkSummary, ranks: Sequence[tuple[int, ...]]) -> str:
    if link.above:
        return f"↳ {link.device}"
    if len(ranks) == 1:
        return link.name
    if link.ranks and ranks.count(link.ranks) == 1:
        return f"{link.name} of {'rank' if len(link.ranks) == 1 else 'ranks'} {','.join(map(str, link.ranks))}"
    return f"{link.name}@{link.netns}"


def links_by_rank(evidence: Evidence) -> list[LinkKey]:
    """Return every device of the job's flows, and those that carried bytes of them, those of the first ranks first."""
    flows = evidence.fold.flows
    of_flows = {LinkKey(*each) for each in zip(flows.netns.tolist(), flows.device.tolist(), strict=True)}

    def order(key: LinkKey) -> tuple[bool, list[int]]:
        ranks = sorted(evidence.ranks[pid] for pid in evidence.links.lanes.pids_of(key) if pid in evidence.ranks)
        return not ranks, ranks

    watched = [key for key in evidence.pasts if key in of_flows or is_port(key)]
    return sorted(dict.fromkeys([*watched, *evidence.links.lanes.links]), key=order)


def _conclude(analysis: Analysis) -> tuple[LinkSummary, ...]:
    evidence = analysis.evidence
    nics = nic_totals(evidence.table("nic"), evidence.links.lanes, evidence.piece, evidence.recorded)
    nics = {key: totals for key, totals in nics.items() if key not in evidence.links.ports}  # its bytes are from there
    links = tuple(_summarize(key, nics.get(key), evidence) for key in links_by_rank(evidence))
    return tuple(map(as_told, links)) if evidence.piece.is_all else links


def _summarize(key: LinkKey, nic: NicTotals | None, evidence: Evidence) -> LinkSummary:
    pids = evidence.links.lanes.pids_of(key) or users_of_port(evidence, key)
    still = stands_still(evidence, key)
    times = evidence.cause_times(key)
    window = times.window if times else evidence.recording
    past = evidence.pasts.get(key)
    line_rate = _longest(past, window) if past is not None else UNKNOWN_RATE
    hops = hops_below(evidence, key)
    path_rate = lowest_rate(line_rate, hops)
    known = past.rate.known if past is not None else NOTHING
    unknown = {way: evidence.links.unknown(key, way) & window for way in (TRANSMIT, RECEIVE)}
    tx, rx = (evidence.links.lanes.of_link(key, direction) for direction in (TRANSMIT, RECEIVE))
    waiting = times.gradients_waiting if times else None
    return LinkSummary(
        netns=key.netns,
        device=key.device,
        ranks=ranks_of(pids, evidence),
        pids=pids,
        line_rate_bps=line_rate.bps,
        line_rate_source=line_rate.source,
        window="iterations" if times else "recording",
        window_ns=window.total_ns,
        outstanding_ns=waiting.total_ns if waiting is not None else None,
        rated_ns=(window & known).total_ns,
        rated_outstanding_ns=(waiting & known).total_ns if waiting is not None else None,
        tx_bytes=bytes_in(tx, window),
        rx_bytes=bytes_in(rx, window),
        tx_bytes_outstanding=bytes_in(tx, waiting) if waiting is not None else None,
        rx_bytes_outstanding=bytes_in(rx, waiting) if waiting is not None else None,
        tx=_side(evidence, key, TRANSMIT, window, waiting),
        rx=_side(evidence, key, RECEIVE, window, waiting),
        idle=idle_time(evidence.links.not_idle(key, TRANSMIT, RECEIVE), window, times),
        idle_tx=idle_time(evidence.links.not_idle(key, TRANSMIT), window, times),
        idle_rx=idle_time(evidence.links.not_idle(key, RECEIVE), window, times),
        nic=nic,
        kept_up=evidence.links.kept_up.get((key, TRANSMIT), 0.0),
        unknown_ns=(unknown[TRANSMIT] | unknown[RECEIVE]).total_ns,
        unknown_tx_ns=unknown[TRANSMIT].total_ns,
        unknown_rx_ns=unknown[RECEIVE].total_ns,
        past=past,
        started_ns=evidence.meta.started_ns,
        host=evidence.host_of_link(key),
        period_ns=evidence.links.ports[key].period_ns if key in evidence.links.ports else 0,
        counts_bytes=counts_bytes(evidence, key),
        stands_still=still,
        goes_unseen=still and goes_unseen(evidence, pids),
        above=evidence.links.lanes.above(key),
        about=evidence.path_table.about(key),
        hops=hops,
        path_rate_bps=path_rate.bps,
        path_rate_source=path_rate.source,
    )


def _longest(past: LinkPast, window: Intervals) -> LineRate:
    """Return the line rate that held for most of a window; of a time in which none was known only if none ever was."""
    known = past.rate.known & window
    rate_bps = past.rate.longest(known if len(known) else window)
    bps = None if np.isnan(rate_bps) else rate_bps
    return LineRate(bps, past.source_of(bps))


_FIRST = (
    "device netns line_rate_bps line_rate_source window tx_bytes rx_bytes tx_bytes_outstanding rx_bytes_outstanding "
    "utilization_tx utilization_rx utilization_outstanding_tx utilization_outstanding_rx idle_basis"
)
_THEN = "ranks pids window_s outstanding_s unknown_s unknown_tx_s unknown_rx_s"
_NOT_TOLD: dict[str, Any] = {
    **dict.fromkeys(("tx_bytes", "rx_bytes", "tx_bytes_outstanding", "rx_bytes_outstanding")),
    **dict.fromkeys(f"{name}_total_s" for name in ("idle", "idle_tx", "idle_rx")),
    **{f"{name}_s": dict.fromkeys(cause.name for cause in CAUSES) for name in ("idle", "idle_tx", "idle_rx")},
}
"""Of a link of which nothing tells what it moved."""


def _link(link: LinkSummary) -> dict[str, Any]:
    idle = {"idle": link.idle, "idle_tx": link.idle_tx, "idle_rx": link.idle_rx}
    return {
        **json_of(link, _FIRST),
        **({"host": link.host} if link.host else {}),
        **({"period_s": link.period_ns / 1e9} if link.period_ns else {}),
        **json_of(link, _THEN),
        **{f"{name}_total_s": time.total_ns / 1e9 for name, time in idle.items()},
        **{f"{name}_s": {cause.name: seconds(time.of(cause)) for cause in CAUSES} for name, time in idle.items()},
        **({"below": [each.device for each in link.above], "about": link.about} if link.above else {}),
        "path": [_hop(hop) for hop in link.hops],
        "history": history(link.past, link.started_ns),
        "nic": _nic(link.nic),
        **(_NOT_TOLD if link.tells_nothing else {}),
    }


def _hop(hop: HopSummary) -> dict[str, Any]:
    ways = {"way": hop.way, "direction": hop.direction}
    return {**plain(hop), **{name: "sent" if way == TRANSMIT else "received" for name, way in ways.items()}}


def _nic(nic: NicTotals | None) -> dict[str, Any] | None:
    if nic is None:
        return None
    document = plain(nic)
    return {"window_s": (document.pop("last_ns") - document.pop("first_ns")) / 1e9, **document}


def _parts(links: Sequence[LinkSummary]) -> Sequence[Part]:
    if not links:
        return [Part("Links", "no device is known to carry the job's traffic")]
    shown = _main_links(links)
    left_out = len(links) - len(shown)
    about = f"; {left_out} with hardly any traffic left out" if left_out else ""
    of_flows = [link for link in shown if not link.above]
    plain = [link for link in shown if link.above and not link.limits_or_drops]
    shown = [link for link in shown if link not in plain]
    about += f"; {len(plain)} below them that limit nothing and drop nothing" if plain else ""
    names = dict(zip(map(id, links), short_names(links), strict=True))
    name = Column("link", lambda link: names[id(link)])
    usage, idle = table((name, *_USAGE), shown, _MOST), table((name, *_IDLE), of_flows, _MOST)
    usage = usage if any(link.dropped_packets for link in shown) else usage.without({"dropped"})
    idle = idle if any(link.unknown_ns for link in of_flows) else idle.without({"unknown"})
    sources = dict.fromkeys(link.line_rate_source for link in shown if link.line_rate_bps)
    rates = Pairs([("line rate from", source) for source in sources])
    return [
        Part("Links", f"share of line rate; 'waiting': while a bucket is outstanding{about}", [usage, rates]),
        Part("Idle link time", "share of all time, by what the job was doing", [idle]),
    ]


def _of_window(heading: str, part_ns: Callable[[LinkSummary], int | None]) -> Column:
    return Column(heading, lambda link: share_of(part_ns(link), link.window_ns), share)


def _idle_for(cause: Cause) -> Column:
    return _of_window(cause.short, lambda link: None if link.tells_nothing else link.idle.of(cause))


_USAGE = (
    Column("ranks", "ranks", lambda ranks: ",".join(map(str, ranks)) or "?", left=True, goes=1),
    Column("line rate", lambda link: _line_rate(link)),
    Column("tx", "utilization_tx", share),
    Column("rx", "utilization_rx", share),
    Column("tx waiting", "utilization_outstanding_tx", share),
    Column("rx waiting", "utilization_outstanding_rx", share),
    Column("dropped", lambda link: None if link.nic is None else link.dropped_packets),
)
_IDLE = (
    _of_window("unknown", lambda link: link.unknown_ns),
    _of_window("idle", lambda link: None if link.tells_nothing else link.idle.total_ns),
    *map(_idle_for, CAUSES),
)


def _line_rate(link: LinkSummary) -> str:
    return rate(link.line_rate_bps) if link.line_rate_bps or not link.path_rate_bps else f"≤ {rate(link.path_rate_bps)}"


def _main_links(links: Sequence[LinkSummary]) -> list[LinkSummary]:
    """Return the links that carry at least HARDLY_ANY of the job's bytes; all of them if none carries any."""
    total = sum(link.moved_bytes for link in links)
    main = [link for link in links if total and link.moved_bytes >= HARDLY_ANY * total]
    return main or list(links)


def _notes(links: Sequence[LinkSummary]) -> Iterator[str]:
    for link in links:
        if link.past is not None:
            yield from changes_in_words(link.name, link.past, link.started_ns)
        if link.tells_nothing:
            yield _silence(link)
        elif link.unknown_ns and link.period_ns:
            yield f"what {link.name} moved is unknown for {duration(link.unknown_ns / 1e9)} in all; none of it is idle"
        elif link.unknown_ns:
            yield (
                f"when bytes passed {link.name} is unknown for {duration(link.unknown_ns / 1e9)} in all: netprof was "
                "held up for longer than the kernel keeps its bins apart. They are spread evenly there; it is not idle"
            )
        if link.line_rate_bps is None and link.path_rate_bps is None and link.moved_bytes and not link.above:
            unseen = next((hop.about for hop in link.hops if not hop.device), "")
            yield (
                f"the line rate of {link.name} is unknown: no utilization; idle means bins without any packet"
                f"{f'. {unseen[0].upper()}{unseen[1:]}' if unseen else ''}"
            )
        if link.rate_is_wrong:
            yield (
                f"{link.name} keeps up {share(link.kept_up)} of its line rate, so {rate(link.line_rate_bps)} "
                f"({link.line_rate_source}) cannot be true and no utilization is shown: say what it is with --line-rate"
            )
        if link.nic is not None:
            yield from _nic_notes(link.name, link.nic, is_below=bool(link.above))
        if link.period_ns and link.moved_bytes:
            yield from _port_notes(link)


def _silence(link: LinkSummary) -> str:
    """Say why nothing tells what an RDMA port moved."""
    if not link.counts_bytes:
        return f"how many bytes pass {link.name} is unknown, and so is when it is idle"
    return (
        f"the counters of {link.name} did not move although processes that use it communicate by a way that nothing "
        "shows: when it is idle is unknown"
    )


def _port_notes(link: LinkSummary) -> Iterator[str]:
    """Say how coarse the numbers of an RDMA port are, and what of them is assumed."""
    yield (
        f"{link.name} is an RDMA port: its bytes, headers included, are those of its counters, seen every "
        f"{duration(link.period_ns / 1e9)} and spread evenly in between: what is shorter shows neither as idle nor as "
        "full. They are of whoever uses the port"
    )
    if len(link.pids) > 1:
        yield f"{len(link.pids)} processes use {link.name}, and each is taken to move as much as the others"


def _nic_notes(device: str, nic: NicTotals, *, is_below: bool) -> Iterator[str]:
    """Say where the device itself counted what matters to the job: other traffic, drops, errors."""
    ways = [(nic.tx_bytes, nic.job_tx_bytes), (nic.rx_bytes, nic.job_rx_bytes)]
    ways = [way for way in ways if way[1]] if is_below else ways  # an ifb counts all that it sends as received too
    counted, job_bytes = (sum(each) for each in zip(*ways, strict=True)) if ways else (0, 0.0)
    if job_bytes and counted - job_bytes > OTHER_TRAFFIC * counted:
        yield f"{(counted - job_bytes) / counted:.0%} of the bytes that {device} counted are not the job's"
    dropped, errors = nic.tx_drops + nic.rx_drops, nic.tx_errors + nic.rx_errors
    if dropped or errors or nic.qdisc_drops:
        queued = f", its queues {nic.qdisc_drops}" if nic.qdisc_drops else ""
        yield f"{device} counted {dropped} dropped packets and {errors} errors{queued}"


def _definitions(links: Sequence[LinkSummary]) -> Sequence[Definition]:
    if not any(link.moved_bytes for link in links):
        return ()
    iterations_known = any(link.outstanding_ns is not None for link in links)
    return (UTILIZATION, OUTSTANDING, IDLE) if iterations_known else (UTILIZATION, IDLE)


LINKS = Section(
    "links",
    _conclude,
    ("marks", "wire", "flows", "nic", "link_changes", "flow_devices", "flow_paths"),
    lambda links: {"links": [_link(link) for link in links]},
    _parts,
    _notes,
    _definitions,
    merge=lambda parts, whole: tuple(map(as_told, map(in_one, by_key(parts, lambda link: link.key).values()))),
)
