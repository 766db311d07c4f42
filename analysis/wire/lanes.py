"""All lanes of the wire: who moved how much over which link, each way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from netprof.analysis.tables.flow_table import LaneKey, LinkKey
from netprof.analysis.wire.bins import Bins, combine

_PACKET_BYTES = 1500
"""What a packet of much data has; so a tunnel's headers are a share of the bytes."""


class LaneOnLink(NamedTuple):
    """That a lane's bytes pass a link, which way there, and by what factor they are more or fewer than its own.

    `own_way` is which way they pass the lane's own link.
    """

    lane: LaneKey
    way: int
    bins: Bins
    own_way: int
    factor: float = 1.0


class Lanes:
    """The bins of every lane (a process's share of a link) and direction in which a byte moved.

    Sums over lanes are made when first asked for, and kept. `periods` are the RDMA ports among the links, and how often
    their bytes are seen: those of a time between are spread over it. `shares` says of a device below flows' own, by the
    direction there, what share of the bytes that are thought to pass it does: 0 of one that is not on the path.
    """

    def __init__(
        self,
        bins: Mapping[tuple[LaneKey, int], Bins],
        periods: Mapping[LinkKey, int] = MappingProxyType({}),
        shares: Mapping[tuple[LinkKey, int], float] = MappingProxyType({}),
    ) -> None:
        self._bins = dict(bins)
        self.periods = periods
        self._shares = shares
        self._sums: dict[tuple[LinkKey | int, int], Bins | None] = {}

    def __iter__(self) -> Iterator[tuple[LaneKey, int, Bins]]:
        for (lane, direction), bins in self._bins.items():
            yield lane, direction, bins

    @cached_property
    def links(self) -> tuple[LinkKey, ...]:
        """The devices: those of flows in the order in which their lanes come, then those below them."""
        return tuple(dict.fromkeys([*(lane.link for lane, _ in self._bins), *self._by_link]))

    @cached_property
    def pids(self) -> frozenset[int]:
        """The processes that moved a byte."""
        return frozenset(lane.pid for lane, _ in self._bins)

    def pids_of(self, link: LinkKey) -> tuple[int, ...]:
        """Return the processes that moved a byte over a link."""
        return tuple(dict.fromkeys(use.lane.pid for use in self._by_link.get(link, ())))

    def uses_of(self, link: LinkKey) -> tuple[LaneOnLink, ...]:
        """Return the lanes whose bytes pass a link."""
        return tuple(self._by_link.get(link, ()))

    def above(self, link: LinkKey) -> tuple[LinkKey, ...]:
        """Return the flows' own devices whose bytes pass a device below; none for one of those."""
        above = dict.fromkeys(use.lane.link for use in self._by_link.get(link, ()))
        return () if link in above else tuple(above)

    @cached_property
    def _by_link(self) -> dict[LinkKey, list[LaneOnLink]]:
        by_link: dict[LinkKey, list[LaneOnLink]] = {}
        for lane, way, bins in self:
            by_link.setdefault(lane.link, []).append(LaneOnLink(lane, way, bins, way))
        for lane, way, bins in self:
            for passage in lane.below:
                share = self._shares.get((passage.link, passage.direction), 1.0)
                factor = share * (1 + passage.header_bytes / _PACKET_BYTES)
                if factor:
                    by_link.setdefault(passage.link, []).append(LaneOnLink(lane, passage.direction, bins, way, factor))
        return by_link

    @cached_property
    def _by_process(self) -> dict[int, list[tuple[LaneKey, int, Bins]]]:
        by_process: dict[int, list[tuple[LaneKey, int, Bins]]] = {}
        for lane, way, bins in self:
            by_process.setdefault(lane.pid, []).append((lane, way, bins))
        return by_process

    def moved_bytes(self, pid: int) -> Mapping[LinkKey, int]:
        """Return what a process moved over each link, both ways."""
        return self._moved.get(pid, {})

    @cached_property
    def _moved(self) -> dict[int, Counter[LinkKey]]:
        moved: dict[int, Counter[LinkKey]] = {}
        for link, uses in self._by_link.items():
            for use in uses:
                moved.setdefault(use.lane.pid, Counter())[link] += int(use.bins.wire_bytes.sum(dtype=np.int64))
        return moved

    def of_link(self, link: LinkKey, direction: int) -> Bins | None:
        """Return what all processes together moved over a link in one direction; None: nothing."""
        uses = [use for use in self._by_link.get(link, ()) if use.way == direction]
        return self._sum((link, direction), [use.bins.times(use.factor) for use in uses])

    def of_process(self, pid: int, direction: int) -> Bins | None:
        """Return what a process moved in one direction over all links; None: nothing."""
        return self._sum((pid, direction), [b for _, way, b in self._by_process.get(pid, ()) if way == direction])

    def by_packet(self, pid: int, direction: int) -> list[Bins]:
        """Return what a process moved in one direction over links whose packets were seen, link by link."""
        lanes = self._by_process.get(pid, ())
        return [b for lane, way, b in lanes if way == direction and lane.link not in self.periods]

    def _sum(self, key: tuple[LinkKey | int, int], parts: list[Bins]) -> Bins | None:
        if key not in self._sums:
            self._sums[key] = combine(parts)
        return self._sums[key]
