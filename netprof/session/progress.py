"""How far a recording is: what its stop conditions need, counted as the rows go by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from netprof.probes.marks.steps import StepCounter

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
