"""How busy each link was, and how long it was idle and why."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from netprof.analysis.account.causes import CAUSES
from netprof.analysis.account.idle import IdleTime, idle_spans, idle_time
from netprof.analysis.definitions import IDLE, OUTSTANDING, UTILIZATION, Definition
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.nic import NicTotals, nic_totals
from netprof.analysis.form import Grid, Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals
from netprof.analysis.wire.bins import Bins
from netprof.analysis.wire.served import MEASURING_ERROR
from netprof.model import LineRate
from netprof.schema import RECEIVE, TRANSMIT
from netprof.units import UNKNOWN, rate, share

UNKNOWN_RATE = LineRate(None, "unknown")
HARDLY_ANY = 0.001
"""Share of the job's bytes below which a link is not shown: a control connection over loopback, say."""
OTHER_TRAFFIC = 0.05
"""Share of a device's bytes that may be another's, or a counter's way of counting headers, before it is mentioned."""
_NAMED = 4


@dataclass(frozen=True)
class SideTime:
    """For how long one side of a link serves, over the window and while something is outstanding; None: unknown."""

    busy_ns: float | None
    busy_outstanding_ns: float | None

    def __add__(self, other: SideTime) -> SideTime:
        """Return both together."""
        return SideTime(_sum(self.busy_ns, other.busy_ns), _sum(self.busy_outstanding_ns, other.busy_outstanding_ns))


@dataclass(frozen=True)
class LinkSummary:
    """One device over the window: the time in iterations of its ranks, or the recording where none is known.

    Utilizations (`definitions.UTILIZATION`) are None without a line rate, and those while a bucket is outstanding
    also without iterations. `idle` is both directions at once. Byte counts are the job's, over the window. `kept_up` is
    the rate that it kept up sending, as a share of its line rate.
    """

    netns: int
    device: str
    ranks: tuple[int, ...]
    pids: tuple[int, ...]
    line_rate_bps: float | None
    line_rate_source: str
    window: str  # "iterations" or "recording"
    window_ns: int
    outstanding_ns: int | None
    tx_bytes: float
    rx_bytes: float
    tx_bytes_outstanding: float | None
    rx_bytes_outstanding: float | None
    tx: SideTime
    rx: SideTime
    idle: IdleTime
    idle_tx: IdleTime
    idle_rx: IdleTime
    nic: NicTotals | None
    kept_up: float = 0.0

    @property
    def key(self) -> LinkKey:
        """What names the device."""
        return LinkKey(self.netns, self.device)

    @property
    def utilization_tx(self) -> float | None:
        """Sending, over the window."""
        return _share(self.tx.busy_ns, self.window_ns)

    @property
    def utilization_rx(self) -> float | None:
        """Receiving, over the window."""
        return _share(self.rx.busy_ns, self.window_ns)

    @property
    def utilization_outstanding_tx(self) -> float | None:
        """Sending, while something is outstanding."""
        return _share(self.tx.busy_outstanding_ns, self.outstanding_ns)

    @property
    def utilization_outstanding_rx(self) -> float | None:
        """Receiving, while something is outstanding."""
        return _share(self.rx.busy_outstanding_ns, self.outstanding_ns)

    @property
    def moved_bytes(self) -> float:
        """What it moved both ways."""
        return self.tx_bytes + self.rx_bytes

    @property
    def idle_basis(self) -> str:
        """What counts as idle here."""
        return "utilization below 1 %" if self.line_rate_bps else "bins without a packet"

    @property
    def waiting_utilization(self) -> float | None:
        """The utilization of the busier direction while a bucket is outstanding."""
        known = [u for u in (self.utilization_outstanding_tx, self.utilization_outstanding_rx) if u is not None]
        return max(known, default=None)

    @property
    def waiting_idle_share(self) -> float | None:
        """The share of the time that gradients wait in which the link is idle in both directions."""
        if not self.outstanding_ns or self.idle.gradients_waiting_ns is None:
            return None
        return self.idle.gradients_waiting_ns / self.outstanding_ns

    @property
    def dropped_packets(self) -> int:
        """What the device itself says that it dropped, either way; 0 also where its counters are not known."""
        return self.nic.tx_drops + self.nic.rx_drops if self.nic is not None else 0

    @property
    def label(self) -> str:
        """Its name for a person: the device and whose flows it carries."""
        name, numbers = ("rank", self.ranks) if self.ranks else ("pid", self.pids)
        who = f"{name} {', '.join(map(str, numbers))}" if len(numbers) <= _NAMED else f"{len(numbers)} {name}s"
        return self.device + (f" · {who}" if numbers else "")


def _side(evidence: Evidence, key: LinkKey, direction: int, window: Intervals, waiting: Intervals | None) -> SideTime:
    """Return for how long a side of a link serves (`definitions.UTILIZATION`); unknown without a line rate."""
    served = evidence.served(key, direction)
    if served is None:
        idle = 0.0 if (key, direction) in evidence.rates else None
        return SideTime(idle, None if waiting is None else idle)
    return SideTime(served.busy_in(window), served.busy_in(waiting) if waiting is not None else None)


def _share(part: float | None, whole_ns: int | None) -> float | None:
    return part / whole_ns if part is not None and whole_ns else None


def spans_of_idleness(evidence: Evidence, link: LinkSummary) -> Mapping[str, Intervals]:
    """Return when a link was idle in both directions, by cause: what its `idle` adds up."""
    times = evidence.cause_times(link.key)
    window = times.window if times else evidence.recording
    return idle_spans(evidence.busy(link.key, TRANSMIT, RECEIVE), window, times)


def short_name(link: LinkSummary, links: Sequence[LinkSummary]) -> str:
    """Return a device's name; where another network namespace has one of that name, with its ranks or its inode."""
    others = [other for other in links if other.device == link.device and other is not link]
    name = link.device or "(no device)"
    if not others:
        return name
    if link.ranks and all(other.ranks != link.ranks for other in others):
        ranks = ("rank " if len(link.ranks) == 1 else "ranks ") + ",".join(map(str, link.ranks))
        return f"{name} of {ranks}"
    return f"{name}@{link.netns}"


def _conclude(analysis: Analysis) -> tuple[LinkSummary, ...]:
    """Summarise every device that the recording watched or that carried a byte of the job."""
    evidence = analysis.evidence
    rates = {LinkKey(device.netns, device.device): device.line_rate for device in evidence.meta.devices}
    nics = nic_totals(evidence.table("nic"), evidence.lanes, evidence.piece)
    keys = dict.fromkeys([*rates, *evidence.lanes.links])
    return tuple(_summarize(key, rates.get(key, UNKNOWN_RATE), nics.get(key), evidence) for key in keys)


def _summarize(key: LinkKey, line_rate: LineRate, nic: NicTotals | None, evidence: Evidence) -> LinkSummary:
    pids = evidence.lanes.pids_of(key)
    times = evidence.cause_times(key)
    window = times.window if times else evidence.recording
    tx, rx = (evidence.lanes.of_link(key, direction) for direction in (TRANSMIT, RECEIVE))
    waiting = times.gradients_waiting if times else None
    tx_bytes, rx_bytes = _bytes(tx, window), _bytes(rx, window)
    tx_waiting, rx_waiting = (_bytes(tx, waiting), _bytes(rx, waiting)) if waiting is not None else (None, None)
    waiting_ns = waiting.total_ns if waiting is not None else None
    return LinkSummary(
        netns=key.netns,
        device=key.device,
        ranks=tuple(sorted({evidence.ranks[pid] for pid in pids if pid in evidence.ranks})),
        pids=pids,
        line_rate_bps=line_rate.bps,
        line_rate_source=line_rate.source,
        window="iterations" if times else "recording",
        window_ns=window.total_ns,
        outstanding_ns=waiting_ns,
        tx_bytes=tx_bytes,
        rx_bytes=rx_bytes,
        tx_bytes_outstanding=tx_waiting,
        rx_bytes_outstanding=rx_waiting,
        tx=_side(evidence, key, TRANSMIT, window, waiting),
        rx=_side(evidence, key, RECEIVE, window, waiting),
        idle=idle_time(evidence.busy(key, TRANSMIT, RECEIVE), window, times),
        idle_tx=idle_time(evidence.busy(key, TRANSMIT), window, times),
        idle_rx=idle_time(evidence.busy(key, RECEIVE), window, times),
        nic=nic,
        kept_up=evidence.kept_up.get((key, TRANSMIT), 0.0),
    )


def _merge(parts: Sequence[Sequence[LinkSummary]], whole: Analysis) -> tuple[LinkSummary, ...]:
    found: dict[LinkKey, list[LinkSummary]] = {}
    for link in (link for part in parts for link in part):
        found.setdefault(link.key, []).append(link)
    return tuple(_in_one(each) for each in found.values())


def _in_one(parts: Sequence[LinkSummary]) -> LinkSummary:
    """Add up pieces of a recording; where iterations are known in any, only those."""
    told = [part for part in parts if part.window == "iterations"]
    nics = [part.nic for part in parts if part.nic is not None]
    ranks, pids = (sorted({one for part in parts for one in getattr(part, name)}) for name in ("ranks", "pids"))
    merged = reduce(_add, told or parts)
    return replace(
        merged,
        ranks=tuple(ranks),
        pids=tuple(pids),
        nic=reduce(operator.add, nics) if nics else None,
        kept_up=max(part.kept_up for part in parts),
    )


def _add(a: LinkSummary, b: LinkSummary) -> LinkSummary:
    sums = ("window_ns", "tx_bytes", "rx_bytes", "tx", "rx", "idle", "idle_tx", "idle_rx")
    known = ("outstanding_ns", "tx_bytes_outstanding", "rx_bytes_outstanding")
    together: dict[str, Any] = {name: getattr(a, name) + getattr(b, name) for name in sums}
    return replace(a, **together, **{name: _sum(getattr(a, name), getattr(b, name)) for name in known})


def _sum(a: float | None, b: float | None) -> Any:
    return None if a is None or b is None else a + b


def _bytes(bins: Bins | None, window: Intervals | None) -> float:
    return bins.wire_bytes_in(window or NOTHING) if bins is not None else 0.0


def _document(links: Sequence[LinkSummary]) -> dict[str, Any]:
    return {"links": [_link(link) for link in links]}


_SAME = (
    "device",
    "netns",
    "line_rate_bps",
    "line_rate_source",
    "window",
    "tx_bytes",
    "rx_bytes",
    "tx_bytes_outstanding",
    "rx_bytes_outstanding",
    "utilization_tx",
    "utilization_rx",
    "utilization_outstanding_tx",
    "utilization_outstanding_rx",
    "idle_basis",
)


def _link(link: LinkSummary) -> dict[str, Any]:
    idle = {"idle": link.idle, "idle_tx": link.idle_tx, "idle_rx": link.idle_rx}
    return {
        **{name: getattr(link, name) for name in _SAME},
        "ranks": list(link.ranks),
        "pids": list(link.pids),
        "window_s": link.window_ns / 1e9,
        "outstanding_s": _seconds(link.outstanding_ns),
        **{f"{name}_total_s": time.total_ns / 1e9 for name, time in idle.items()},
        **{f"{name}_s": {cause.name: _seconds(time.of(cause)) for cause in CAUSES} for name, time in idle.items()},
        "nic": _nic(link.nic),
    }


def _nic(nic: NicTotals | None) -> dict[str, Any] | None:
    if nic is None:
        return None
    document = dataclasses.asdict(nic)
    return {"window_s": (document.pop("last_ns") - document.pop("first_ns")) / 1e9, **document}


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def _parts(links: Sequence[LinkSummary]) -> Sequence[Part]:
    if not links:
        return [Part("Links", "no device is known to carry the job's traffic")]
    shown = _main_links(links)
    left_out = len(links) - len(shown)
    about = f"; {left_out} with hardly any traffic left out" if left_out else ""
    columns = ("link", "ranks", "line rate", "tx", "rx", "tx waiting", "rx waiting", "dropped")
    usage = Grid(columns, [_usage(link, links) for link in shown], left=frozenset({"ranks"}), optional=("ranks",))
    if not any(link.dropped_packets for link in shown):
        usage = usage.without({"dropped"})
    sources = dict.fromkeys(link.line_rate_source for link in shown if link.line_rate_bps)
    rates = Pairs([("line rate from", source) for source in sources])
    headings = ("link", "idle", *(cause.short for cause in CAUSES))
    idle = Grid(headings, [_idle(link, links) for link in shown])
    return [
        Part("Links", f"share of line rate; 'waiting': while a bucket is outstanding{about}", [usage, rates]),
        Part("Idle link time", "share of all time, by what the job was doing", [idle]),
    ]


def _main_links(links: Sequence[LinkSummary]) -> list[LinkSummary]:
    """Return the links that carry at least HARDLY_ANY of the job's bytes; all of them if none carries any."""
    total = sum(link.moved_bytes for link in links)
    main = [link for link in links if total and link.moved_bytes >= HARDLY_ANY * total]
    return main or list(links)


def _usage(link: LinkSummary, links: Sequence[LinkSummary]) -> tuple[str, ...]:
    return (
        short_name(link, links),
        ",".join(map(str, link.ranks)) or "?",
        rate(link.line_rate_bps),
        share(link.utilization_tx),
        share(link.utilization_rx),
        share(link.utilization_outstanding_tx),
        share(link.utilization_outstanding_rx),
        UNKNOWN if link.nic is None else str(link.dropped_packets),
    )


def _idle(link: LinkSummary, links: Sequence[LinkSummary]) -> tuple[str, ...]:
    parts = (link.idle.total_ns, *(link.idle.of(cause) for cause in CAUSES))
    return (short_name(link, links), *(_of_window(part, link.window_ns) for part in parts))


def _of_window(part_ns: int | None, window_ns: int) -> str:
    return UNKNOWN if part_ns is None or not window_ns else share(part_ns / window_ns)


def _notes(links: Sequence[LinkSummary]) -> Iterator[str]:
    for link in links:
        if link.line_rate_bps is None and link.moved_bytes:
            yield f"the line rate of {link.device} is unknown: no utilization; idle means bins without any packet"
        if link.kept_up > MEASURING_ERROR:
            yield (
                f"{link.device} keeps up {share(link.kept_up)} of its line rate, so {rate(link.line_rate_bps)} "
                f"({link.line_rate_source}) cannot be true and no utilization is shown: say what it is with --line-rate"
            )
        if link.nic is not None:
            yield from _nic_notes(link.device, link.nic)


def _nic_notes(device: str, nic: NicTotals) -> Iterator[str]:
    """Say where the device itself counted what matters to the job: other traffic, drops, errors."""
    counted, own = nic.tx_bytes + nic.rx_bytes, nic.job_tx_bytes + nic.job_rx_bytes
    if own and counted - own > OTHER_TRAFFIC * counted:
        yield f"{(counted - own) / counted:.0%} of the bytes that {device} counted are not the job's"
    dropped, errors = nic.tx_drops + nic.rx_drops, nic.tx_errors + nic.rx_errors
    if dropped or errors:
        yield f"{device} counted {dropped} dropped packets and {errors} errors"


def _definitions(links: Sequence[LinkSummary]) -> Sequence[Definition]:
    if not any(link.moved_bytes for link in links):
        return ()
    iterations_known = any(link.outstanding_ns is not None for link in links)
    return (UTILIZATION, OUTSTANDING, IDLE) if iterations_known else (UTILIZATION, IDLE)


LINKS = Section(
    "links",
    _conclude,
    ("marks", "wire", "flows", "nic"),
    _document,
    _parts,
    _notes,
    _definitions,
    merge=_merge,
)
