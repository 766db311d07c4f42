"""Folded wire rows of consecutive spans of time, put together again: a window that slides without being read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from netprof.analysis.tables.columns import UNKNOWN, concatenate
from netprof.analysis.tables.flow_lanes import FlowLanes
from netprof.analysis.tables.flow_table import Flows, LaneKey, LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals
from netprof.analysis.wire.bins import Bins, combine
from netprof.analysis.wire.fold import WireFold
from netprof.analysis.wire.lanes import Lanes
from netprof.analysis.wire.recovery import Resent
from netprof.analysis.wire.unsent import UnsentFlows


class RecentFold(WireFold):
    """The sum of `parts`, as if their rows had been added to one fold; flows unknown to `flows` are left out."""

    def __init__(self, flows: Flows, bin_ns: int, parts: Sequence[WireFold], lanes: FlowLanes | None = None) -> None:
        super().__init__(flows, bin_ns, lanes=lanes)
        self._parts = parts
        self.rows = sum(part.rows for part in parts)
        self.unknown_bytes = sum(part.unknown_bytes for part in parts)
        for part in parts:
            self._add_totals(part)

    def lanes(self) -> Lanes:
        """Return the bins of every lane that moved a byte in any part."""
        found: dict[tuple[LaneKey, int], list[Bins]] = {}
        for part in self._parts:
            for lane, direction, bins in part.lanes():
                found.setdefault((lane, direction), []).append(bins)
        return Lanes({key: whole for key, bins in found.items() if (whole := combine(bins)) is not None})

    def moved_bytes(self, direction: int) -> dict[int, dict[LinkKey, int]]:
        """Return what each process moved in one direction in all parts, by pid and device."""
        found: dict[int, dict[LinkKey, int]] = {}
        for part in self._parts:
            for pid, links in part.moved_bytes(direction).items():
                own = found.setdefault(pid, {})
                for link, amount in links.items():
                    own[link] = own.get(link, 0) + amount
        return found

    def unknown(self) -> dict[tuple[LaneKey, int], Intervals]:
        """Return the time in which it is not known when the bytes of a lane passed, in any part."""
        found: dict[tuple[LaneKey, int], Intervals] = {}
        for part in self._parts:
            for key, times in part.unknown().items():
                found[key] = found.get(key, NOTHING) | times
        return found

    def resent(self) -> Resent:
        """Return what the flows sent again in any part."""
        found = []
        for part in self._parts:
            resent = part.resent()
            row = self.flows.positions(part.flows.flow_id[resent.flow])
            found.append(replace(resent, flow=row).where(row >= 0))
        return concatenate(Resent, found)

    def unsent(self) -> UnsentFlows:
        """Return when the flows had bytes that they had not sent in any part."""
        found = []
        for part in self._parts:
            unsent = part.unsent()
            row = self.flows.positions(part.flows.flow_id[unsent.flow])
            found.append(replace(unsent, flow=row).where(row >= 0))
        return concatenate(UnsentFlows, found)

    def _add_totals(self, part: WireFold) -> None:
        row = self.flows.positions(part.flows.flow_id)
        known = np.repeat(row >= 0, 2)
        slot = (np.repeat(row, 2) * 2 + np.tile([0, 1], len(row)))[known]
        for name, total in self._sums.items():
            total[slot] += part._sums[name][known]
        moved = part._position[known] != UNKNOWN
        self._position[slot[moved]] = part._position[known][moved]
        self._first[slot] = np.minimum(self._first[slot], part._first[known])
        self._last[slot] = np.maximum(self._last[slot], part._last[known])
