"""How far a recording is, and what moved outside of it: counted as the rows go by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.probes.marks.step_counter import StepCounter
from netprof.probes.probe import Columns

_TIMES = {"wire": "first_ns", "marks": "time_ns"}


class Progress:
    """Counts finished steps, and notes when the first event was (CLOCK_MONOTONIC)."""

    def __init__(self) -> None:
        self._counter = StepCounter()
        self.first_event_ns: int | None = None

    def see(self, table: str, columns: Mapping[str, Any]) -> None:
        """Count rows of a table of the trace."""
        if table == "marks":
            self._counter.see(columns)
        if table in _TIMES and self.first_event_ns is None:
            self.first_event_ns = int(np.min(columns[_TIMES[table]]))

    @property
    def iterations(self) -> int:
        """The whole iterations that every rank which steps has surely done since the recording began."""
        return max(0, min(self._counter.steps.values(), default=0) - 1)


_AMOUNTS = ("payload_bytes", "wire_bytes", "retransmitted_bytes", "packets")


class OutsideTotals:
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
