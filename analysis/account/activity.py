"""When payload moved, for the first time or again, and so when nothing more was to come or to go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Int64
from netprof.analysis.wire.bins import Bins


@dataclass(frozen=True, eq=False)
class Activity:
    """Bins in which payload moved, by their first packet; ns."""

    first_ns: Int64
    last_ns: Int64

    def last_before(self, at_ns: Int64) -> Int64:
        """Return for each instant when payload last moved before it; the smallest number where none ever did."""
        index = np.searchsorted(self.first_ns, at_ns, "left") - 1
        known = np.maximum(index, 0)
        if len(self.first_ns) == 0:
            return np.full(len(at_ns), np.iinfo(np.int64).min)
        reach = np.maximum.accumulate(self.last_ns)
        return np.where(index >= 0, np.minimum(reach[known], at_ns), np.iinfo(np.int64).min)


def activity(lanes: Sequence[Bins | None]) -> Activity:
    """Return when payload moved in any of several lanes."""
    first, last = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for bins in lanes:
        if bins is not None:
            moved = (bins.payload_bytes > 0) | (bins.resent_bytes > 0)
            first.append((bins.begin_ns + bins.bin_ns - bins.lead_ns)[moved])
            last.append((bins.begin_ns + bins.last_ns)[moved])
    order = np.argsort(np.concatenate(first), kind="stable")
    return Activity(np.concatenate(first)[order], np.concatenate(last)[order])
