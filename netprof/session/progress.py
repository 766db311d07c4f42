"""How far a recording is: what its stop conditions and its progress line need, counted as the rows go by."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.schema import TRANSMIT, MarkKind


class Progress:
    """Counts finished steps per process, and the bytes seen."""

    def __init__(self) -> None:
        self.steps: Counter[int] = Counter()  # DDP_WAIT marks by pid: one a step
        self.marks = 0
        self.transmitted_bytes = 0
        self.received_bytes = 0
        self.first_event_ns: int | None = None

    def see_wire(self, columns: dict[str, NDArray[Any]]) -> None:
        """Count rows of table `wire`."""
        transmit = columns["direction"] == TRANSMIT
        self.transmitted_bytes += int(columns["wire_bytes"][transmit].sum())
        self.received_bytes += int(columns["wire_bytes"][~transmit].sum())
        self._see_time(columns["first_ns"])

    def see_marks(self, columns: dict[str, NDArray[Any]]) -> None:
        """Count rows of table `marks`."""
        waits = columns["pid"][columns["kind"] == MarkKind.DDP_WAIT]
        self.steps.update(waits.tolist())
        self.marks += len(columns["time_ns"])
        self._see_time(columns["time_ns"])

    @property
    def iterations(self) -> int:
        """Return the whole iterations that every rank which steps has surely done since the recording began."""
        return max(0, min(self.steps.values(), default=0) - 1)

    def _see_time(self, times_ns: NDArray[Any]) -> None:
        if len(times_ns) and self.first_event_ns is None:
            self.first_event_ns = int(np.min(times_ns))
