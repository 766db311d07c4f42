"""What the job's flows moved before the recording began and after it ended: counted, and in no row of `wire`."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from netprof.probes.probe import Columns

_AMOUNTS = ("payload_bytes", "wire_bytes", "retransmitted_bytes", "packets")


class Outside:
    """Adds up, per flow and direction, the rows of `wire` that are left out of a recording."""

    def __init__(self) -> None:
        self._sums: dict[str, Counter[int]] = {name: Counter() for name in _AMOUNTS}

    def __bool__(self) -> bool:
        """Say whether there are any."""
        return bool(self._sums["packets"])

    def add(self, columns: Columns, rows: NDArray[np.bool_]) -> None:
        """Add the rows that are marked."""
        flow, direction = (np.asarray(columns[name])[rows].astype(np.int64) for name in ("flow_id", "direction"))
        keys, place = np.unique(flow * 2 + direction, return_inverse=True)
        for name, sums in self._sums.items():
            amounts = np.bincount(place, weights=np.asarray(columns[name])[rows], minlength=len(keys))
            sums.update(dict(zip(keys.tolist(), amounts.astype(np.int64).tolist(), strict=True)))

    def columns(self, time_ns: int) -> Columns:
        """Return the rows of table `outside`, as of a time."""
        keys = np.array(sorted(self._sums["packets"]), np.int64)
        amounts = {name: [sums[key] for key in keys.tolist()] for name, sums in self._sums.items()}
        return {"time_ns": np.full(len(keys), time_ns), "flow_id": keys // 2, "direction": keys % 2, **amounts}
