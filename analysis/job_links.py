"""The links that a job's bytes pass: what each was like over time, what it served, and when nothing is known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from netprof.analysis.account.bottlenecks import LinkSide, link_sides
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals, union
from netprof.analysis.tables.link_history import LinkPast, RateOverTime
from netprof.analysis.tables.nic_counters import read_nic
from netprof.analysis.wire.confirmed import shares_below, unconfirmed
from netprof.analysis.wire.fold import WireFold
from netprof.analysis.wire.lanes import Lanes
from netprof.analysis.wire.ports import Counted, PortUse, port_lanes, port_uses
from netprof.analysis.wire.served import MEASURING_ERROR, Served, sustained_bps
from netprof.model import Meta
from netprof.schema import RECEIVE, TRANSMIT


class JobLinks:
    """A recording's links, of the folded wire, table `nic` and what devices were like. All is found when asked for."""

    def __init__(
        self,
        meta: Meta,
        table: Callable[[str], Any],
        pasts: Mapping[LinkKey, LinkPast],
        fold: WireFold,
        recording: Intervals,
    ) -> None:
        self._meta, self._table, self._pasts = meta, table, pasts
        self._fold, self._recording = fold, recording

    @cached_property
    def ports(self) -> Mapping[LinkKey, PortUse]:
        """The RDMA ports whose bytes are known by their counters."""
        return port_uses(self._meta.devices, self._fold.flows)

    @cached_property
    def lanes(self) -> Lanes:
        """Bytes over time by process, link and direction."""
        bins = {(lane, direction): lane_bins for lane, direction, lane_bins in self._fold.lanes()}
        if self.ports:
            bins |= port_lanes(self.ports, self.counted, self._fold.bin_ns)
        periods = {link: use.period_ns for link, use in self.ports.items()}
        lanes = Lanes(bins, periods)
        has_paths = any(lane.below for lane, _ in bins)
        return Lanes(bins, periods, shares_below(lanes, self.counted)) if has_paths else lanes

    @cached_property
    def counted(self) -> Counted:
        """What each device counted itself: times, bytes sent, bytes received."""
        return read_nic(self._table("nic"))

    @cached_property
    def unconfirmed(self) -> frozenset[tuple[LinkKey, int]]:
        """The sides on which the device counted less than half of what is booked there: who carried it is unknown."""
        return unconfirmed(self.lanes, self.counted)

    @cached_property
    def rates(self) -> Mapping[tuple[LinkKey, int], RateOverTime]:
        """The line rates that are known at any time and can be true, by link and direction."""
        kept_up = self.kept_up
        return {
            side: rate.times(max(1.0, kept_up.get(side, 0.0)))
            for side, rate in self._rates.items()
            if kept_up.get(side, 0.0) <= MEASURING_ERROR and side not in self.unconfirmed
        }

    @cached_property
    def kept_up(self) -> Mapping[tuple[LinkKey, int], float]:
        """What a link keeps up in a direction, as a share of the highest line rate that it ever had."""
        return {
            (link, direction): sustained_bps(bins) / rate.most
            for (link, direction), rate in self._rates.items()
            if (bins := self.lanes.of_link(link, direction)) is not None
        }

    @cached_property
    def _rates(self) -> Mapping[tuple[LinkKey, int], RateOverTime]:
        """The line rates that are known at any time.

        A flow's own device receives as fast as it sends where nothing else is known of it: it is one end of a link. Of
        what is below, a shaper is one of a single direction.
        """
        rates = {}
        for link, past in self._pasts.items():
            rates[link, TRANSMIT] = past.rate
            is_own = not self.lanes.above(link)
            rates[link, RECEIVE] = past.rate if is_own and not past.receive_rate.is_known else past.receive_rate
        return {side: rate for side, rate in rates.items() if rate.is_known}

    @cached_property
    def sides(self) -> list[LinkSide]:
        """What each direction of each link served over time, where its line rate is known."""
        return link_sides(self.lanes, self.rates, self.counted, self._recording)

    def served(self, link: LinkKey, direction: int) -> Served | None:
        """Return what a side of a link served over time; None where its line rate is unknown."""
        return self._served.get((link, direction))

    @cached_property
    def _served(self) -> Mapping[tuple[LinkKey, int], Served]:
        return {(side.link, side.direction): side.own for side in self.sides}

    def busy(self, link: LinkKey, *directions: int) -> Intervals:
        """Return when a link serves anything in some directions; without a line rate, bins that hold a packet."""
        times = []
        for direction in directions:
            served, bins = self.served(link, direction), self.lanes.of_link(link, direction)
            times.append(served.busy if served is not None else bins.busy if bins is not None else NOTHING)
        return union(times)

    def unknown(self, link: LinkKey, *directions: int) -> Intervals:
        """Return the time in which a link moved bytes at unknown moments, in some directions."""
        lanes = [times for way in directions for times in self._unknown.get((link, way), ())]
        return union([self._gone(link), *lanes]) if link in self.ports else union(lanes)

    def not_idle(self, link: LinkKey, *directions: int) -> Intervals:
        """Return when a link is busy, or may be: what was not seen in time is unknown, never idle."""
        return self.busy(link, *directions) | self.unknown(link, *directions)

    @cached_property
    def unplaced(self) -> Mapping[int, Intervals]:
        """The time in which bytes of each process passed at unknown moments."""
        by_process: dict[int, list[Intervals]] = {}
        for (lane, _), times in self._fold.unknown().items():
            by_process.setdefault(lane.pid, []).append(times)
        for pid, times in self.without_port.items():
            by_process.setdefault(pid, []).append(times)
        return {pid: union(times) for pid, times in by_process.items()}

    @cached_property
    def without_port(self) -> Mapping[int, Intervals]:
        """The time in which an RDMA port that a process uses was not there."""
        pids = {pid for use in self.ports.values() for pid in use.pids}
        return {pid: union([self._gone(link) for link, use in self.ports.items() if pid in use.pids]) for pid in pids}

    @cached_property
    def _unknown(self) -> Mapping[tuple[LinkKey, int], list[Intervals]]:
        """The times in which bytes of a lane passed at unknown moments, lane by lane, for each side of a link."""
        by_side: dict[tuple[LinkKey, int], list[Intervals]] = {}
        for (lane, way), times in self._fold.unknown().items():
            by_side.setdefault((lane.link, way), []).append(times)
        return by_side

    def _gone(self, port: LinkKey) -> Intervals:
        """Return when an RDMA port was not there: what passed it then, its counters do not tell."""
        return self._pasts[port].gone & self._recording
