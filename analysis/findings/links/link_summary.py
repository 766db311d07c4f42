"""A device, and what it carried of the job: what a report says of a link."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from netprof.analysis.account.idle import IdleTime
from netprof.analysis.declared import added, share_of
from netprof.analysis.findings.links.nic import NicTotals
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.link_history import LinkPast
from netprof.analysis.wire.served import MEASURING_ERROR
from netprof.schema import HopKind

_NAMED = 4


@dataclass(frozen=True)
class SideTime:
    """For how long one side of a link serves, over the window and while something is outstanding; None: unknown."""

    busy_ns: float | None
    busy_outstanding_ns: float | None

    def __add__(self, other: SideTime) -> SideTime:
        """Return both together."""
        return SideTime(**added((self, other), "busy_ns busy_outstanding_ns"))


@dataclass(frozen=True)
class HopSummary:
    """A device on the path of what a flow's device sends or receives (`way`), and which way packets pass it.

    `on_path` says that its counters confirm it. Without a device, `about` says why nothing is known beyond.
    """

    way: int
    netns: int
    device: str
    direction: int
    kind: HopKind
    about: str
    on_path: bool
    line_rate_bps: float | None
    line_rate_source: str


@dataclass(frozen=True)
class LinkSummary:
    """One device over the window: the time in iterations of its ranks, or the recording where none is known.

    Utilizations (`definitions.UTILIZATION`) are None without a line rate, and those while a bucket is outstanding
    also without iterations. `idle` is both directions at once. Byte counts are the job's, over the window. `kept_up` is
    the rate that it kept up sending, as a share of its line rate. `line_rate_bps` is the one that held for the longest;
    `past` says when another did, and `rated_ns` for how long of the window any was known. `unknown_ns` is time in which
    bytes moved either way at unknown moments: they count as spread evenly, and no part of it is idle. `host`
    is empty where one host recorded the job. `period_ns` is above 0 for an RDMA port: so often its bytes are seen. One
    without counters of bytes does not tell them (`counts_bytes`), nor does one whose counters never moved
    (`stands_still`) although processes that use it communicate by a way that nothing shows (`goes_unseen`).

    A device on the path below those of flows has those `above` it, and `about` says what leads to it; `hops` are what
    is below a flow's own device, `path_rate` the lowest line rate that is known of it and of them.
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
    rated_ns: int
    rated_outstanding_ns: int | None
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
    unknown_ns: int = 0
    unknown_tx_ns: int = 0
    unknown_rx_ns: int = 0
    past: LinkPast | None = None
    started_ns: int = 0
    host: str = ""
    period_ns: int = 0
    counts_bytes: bool = True
    stands_still: bool = False
    goes_unseen: bool = False
    above: tuple[LinkKey, ...] = ()
    about: str = ""
    hops: tuple[HopSummary, ...] = ()
    path_rate_bps: float | None = None
    path_rate_source: str = "unknown"

    @property
    def key(self) -> LinkKey:
        """What names the device."""
        return LinkKey(self.netns, self.device)

    @property
    def way(self) -> frozenset[LinkKey]:
        """What it is on a path with: itself, and flows' own devices above it."""
        return frozenset((self.key, *self.above))

    @property
    def utilization_tx(self) -> float | None:
        """Sending, over the window."""
        return share_of(self.tx.busy_ns, self.rated_ns)

    @property
    def utilization_rx(self) -> float | None:
        """Receiving, over the window."""
        return share_of(self.rx.busy_ns, self.rated_ns)

    @property
    def utilization_outstanding_tx(self) -> float | None:
        """Sending, while something is outstanding."""
        return share_of(self.tx.busy_outstanding_ns, self.rated_outstanding_ns)

    @property
    def utilization_outstanding_rx(self) -> float | None:
        """Receiving, while something is outstanding."""
        return share_of(self.rx.busy_outstanding_ns, self.rated_outstanding_ns)

    @property
    def tells_nothing(self) -> bool:
        """Whether nothing tells what it moved, and so not when it was idle."""
        return not self.counts_bytes or (self.stands_still and self.goes_unseen)

    @property
    def moved_bytes(self) -> float:
        """What it moved both ways."""
        return self.tx_bytes + self.rx_bytes

    @property
    def idle_basis(self) -> str:
        """What counts as idle here."""
        return "bins without a packet" if self.rate_is_wrong or not self.line_rate_bps else "utilization below 1 %"

    @property
    def busier_utilization(self) -> float | None:
        """The utilization of the busier direction; None where it is known of neither."""
        return _largest(self.utilization_tx, self.utilization_rx)

    @property
    def rate_is_wrong(self) -> bool:
        """Whether it keeps up more than its line rate, so that this cannot be true."""
        return self.kept_up > MEASURING_ERROR

    @property
    def waiting_utilization(self) -> float | None:
        """The utilization of the busier direction while a bucket is outstanding."""
        return _largest(self.utilization_outstanding_tx, self.utilization_outstanding_rx)

    @property
    def dropped_packets(self) -> int:
        """What the device and its queues say that they dropped, either way; 0 also where that is not known."""
        return max(self.nic.tx_drops, self.nic.qdisc_drops) + self.nic.rx_drops if self.nic is not None else 0

    @property
    def limits_or_drops(self) -> bool:
        """Whether any rate of it is known, or it dropped anything."""
        return bool(self.dropped_packets) or self.utilization_tx is not None or self.utilization_rx is not None

    @property
    def name(self) -> str:
        """The device for a person, of which host where there are several."""
        below = f" below {self.above[0].device}" if self.above else ""
        return (self.device or "(no device)") + below + (f" of {self.host}" if self.host else "")

    @property
    def label(self) -> str:
        """Its name for a person: the device and whose flows it carries."""
        name, numbers = ("rank", self.ranks) if self.ranks else ("pid", self.pids)
        who = f"{name} {', '.join(map(str, numbers))}" if len(numbers) <= _NAMED else f"{len(numbers)} {name}s"
        return self.name + (f" · {who}" if numbers else "")


def _largest(*values: float | None) -> float | None:
    """Return the largest of those that are known."""
    return max((value for value in values if value is not None), default=None)


def in_one(parts: Sequence[LinkSummary]) -> LinkSummary:
    """Add up pieces of a recording; where iterations are known in any, only those."""
    counted = [part for part in parts if part.window == "iterations"] or parts
    ranks, pids = (sorted({one for part in parts for one in getattr(part, name)}) for name in ("ranks", "pids"))
    nics = [part.nic for part in parts if part.nic is not None]
    longest = _with_longest_rate(counted)
    return replace(
        counted[0],
        **added(counted, _SUMS),
        line_rate_bps=longest.line_rate_bps,
        line_rate_source=longest.line_rate_source,
        ranks=tuple(ranks),
        pids=tuple(pids),
        nic=reduce(operator.add, nics) if nics else None,
        kept_up=max(part.kept_up for part in parts),
        stands_still=all(part.stands_still for part in parts),
        goes_unseen=any(part.goes_unseen for part in parts),
        hops=parts[-1].hops,
        path_rate_bps=longest.path_rate_bps,
        path_rate_source=longest.path_rate_source,
    )


_SUMS = (
    "window_ns outstanding_ns rated_ns rated_outstanding_ns unknown_ns unknown_tx_ns unknown_rx_ns "
    "tx_bytes rx_bytes tx_bytes_outstanding rx_bytes_outstanding tx rx idle idle_tx idle_rx"
)


def as_told(link: LinkSummary) -> LinkSummary:
    """Return what is to be told of a link, all of it summarised: where nothing tells what it moved, no time is idle."""
    if not link.tells_nothing:
        return link
    sides: dict[str, Any] = dict.fromkeys(("tx", "rx"), SideTime(None, None))
    sides |= {f"unknown_{side}ns": link.window_ns for side in ("", "tx_", "rx_")}
    sides |= {name: getattr(link, name).none for name in ("idle", "idle_tx", "idle_rx")}
    return replace(link, **sides)


def _with_longest_rate(parts: Sequence[LinkSummary]) -> LinkSummary:
    """Return a piece with the line rate that held for the longest; with none only if none ever did."""
    held: Counter[float | None] = Counter()
    for part in parts:
        held[part.line_rate_bps] += part.window_ns
    return max(reversed(parts), key=lambda part: (part.line_rate_bps is not None, held[part.line_rate_bps]))
