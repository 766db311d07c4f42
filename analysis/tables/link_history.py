"""The `link_changes` table: what each device was like over time, and its line rate at any moment."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from netprof.analysis.tables.columns import Columns, Float64, Int64, column, int64_column, text_column
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import Intervals, covered_until, merge
from netprof.model import Device
from netprof.schema import LinkState

_ALWAYS = np.iinfo(np.int64).min >> 1
_FOREVER = np.iinfo(np.int64).max >> 1


@dataclass(frozen=True, eq=False)
class RateOverTime(Columns):
    """A line rate, bits per second, that holds from each instant to the next one; ascending, the first is for ever ago.

    NaN where it is not known.
    """

    begin_ns: Int64
    bps: Float64

    @property
    def most(self) -> float:
        """The highest rate that is known; NaN where none is."""
        return float(np.nanmax(self.bps)) if self.is_known else float("nan")

    @property
    def is_known(self) -> bool:
        """Whether there is a time in which it is known."""
        return bool((~np.isnan(self.bps)).any())

    @property
    def known(self) -> Intervals:
        """When it is known."""
        is_known = ~np.isnan(self.bps)
        return merge(self.begin_ns[is_known], np.append(self.begin_ns[1:], _FOREVER)[is_known])

    def at(self, time_ns: Int64) -> Float64:
        """Return the rate at some instants."""
        return np.asarray(self.bps[np.searchsorted(self.begin_ns, time_ns, "right") - 1])

    def longest(self, window: Intervals) -> float:
        """Return the rate that holds for most of a window; NaN where for most of it it is not known."""
        rates, which = np.unique(self.bps, return_inverse=True)  # one NaN, at the end
        through = covered_until(window, np.append(self.begin_ns, _FOREVER))
        held = np.bincount(which.reshape(-1), np.diff(through))
        return float(rates[int(np.argmax(held))]) if held.any() else float(self.bps[-1])

    def times(self, factor: float) -> RateOverTime:
        """Return the same rate, times a factor."""
        return RateOverTime(self.begin_ns, self.bps * factor)


@dataclass(frozen=True)
class LinkChange:
    """What a device was like from an instant on; its rates are None where they were not known.

    `receive_rate_bps` is known where what limits receiving is, apart from what limits sending.
    """

    time_ns: int
    name: str
    state: LinkState
    line_rate_bps: float | None
    line_rate_source: str
    qdisc: str
    mtu_bytes: int
    receive_rate_bps: float | None = None
    receive_rate_source: str = "unknown"


@dataclass(frozen=True)
class LinkPast:
    """All that is known of a device over time: what it was like at first, and every change; at least one."""

    changes: tuple[LinkChange, ...]

    @cached_property
    def rate(self) -> RateOverTime:
        """Its line rate; what it was when it was first looked at, it was before."""
        return self._over_time([change.line_rate_bps for change in self.changes])

    @cached_property
    def receive_rate(self) -> RateOverTime:
        """What it receives at most, as far as that is known by itself."""
        return self._over_time([change.receive_rate_bps for change in self.changes])

    def _over_time(self, rates: Sequence[float | None]) -> RateOverTime:
        begin = np.array([change.time_ns for change in self.changes])
        begin[0] = _ALWAYS
        return RateOverTime(begin, np.array([float("nan") if bps is None else bps for bps in rates]))

    @property
    def gone(self) -> Intervals:
        """When it was not there."""
        return self._while({LinkState.GONE})

    @property
    def down(self) -> Intervals:
        """When it carried nothing."""
        return self._while(set(LinkState) - {LinkState.UP})

    def _while(self, states: Collection[LinkState]) -> Intervals:
        begin = np.array([change.time_ns for change in self.changes])
        is_in_state = np.array([change.state in states for change in self.changes])
        return merge(begin[is_in_state], np.append(begin[1:], _FOREVER)[is_in_state])

    def source_of(self, bps: float | None) -> str:
        """Return where the line rate that is nearest to one came from: what is kept up may be a little more."""

        def distance(change: LinkChange) -> float:
            rate = change.line_rate_bps
            return 0.0 if rate is bps else math.inf if rate is None or bps is None else abs(rate - bps)

        return min(reversed(self.changes), key=distance).line_rate_source


def read_link_history(table: Any, devices: Iterable[Device]) -> dict[LinkKey, LinkPast]:
    """Return the past of every device, also of those that only meta.json names (traces of an older schema).

    `table` is the `link_changes` table: Arrow, DataFrame or mapping of columns, rows in any order.
    """
    changes_of: dict[LinkKey, list[LinkChange]] = {}
    numbers = [int64_column(table, name).tolist() for name in ("netns", "since_ns", "state", "mtu_bytes")]
    texts = [
        text_column(table, name) for name in ("device", "name", "line_rate_source", "qdisc", "receive_rate_source")
    ]
    rates = [column(table, name).astype(np.float64).tolist() for name in ("line_rate_bps", "receive_rate_bps")]
    for netns, time_ns, state, mtu, device, name, source, qdisc, receives, *bps in zip(
        *numbers, *texts, *rates, strict=True
    ):
        known = [bits_per_s if 0 < bits_per_s < float("inf") else None for bits_per_s in bps]
        up = LinkState(state) if state in LinkState.__members__.values() else LinkState.UP
        change = LinkChange(time_ns, name, up, known[0], source, qdisc, mtu, known[1], receives)
        changes_of.setdefault(LinkKey(netns, device), []).append(change)
    pasts = {
        key: LinkPast(tuple(sorted(changes, key=lambda bits_per_s: bits_per_s.time_ns)))
        for key, changes in changes_of.items()
    }
    return {LinkKey(device.netns, device.device): _only(device) for device in devices} | pasts


def _only(device: Device) -> LinkPast:
    """Return the past of a device of which only one moment is known."""
    rate = device.line_rate
    change = LinkChange(0, device.device, LinkState.UP, rate.bps, rate.source, "", device.mtu_bytes)
    return LinkPast((change,))


def known_as(pasts: Mapping[LinkKey, LinkPast]) -> dict[LinkKey, str]:
    """Return what devices with a new name are known as, by that name; not where it is another device's."""
    return {
        LinkKey(key.netns, change.name): key.device
        for key, past in pasts.items()
        for change in past.changes
        if change.name != key.device and LinkKey(key.netns, change.name) not in pasts
    }
