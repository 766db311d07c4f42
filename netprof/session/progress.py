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
        self._waits: Counter[int] = Counter()  # DDP_WAIT marks by pid: one a step
        self._begun: Counter[int] = Counter()  # backward passes after an optimizer step, by pid
        self._stepped: set[int] = set()  # whose last mark of the two was the optimizer's
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
        self._waits.update(waits.tolist())
        self._see_steps(columns)
        self.marks += len(columns["time_ns"])
        self._see_time(columns["time_ns"])

    @property
    def steps(self) -> Counter[int]:
        """Return the steps of each process: of DDP where it has that, else begun after a step of the optimizer."""
        return Counter({pid: self._waits[pid] or self._begun[pid] for pid in self._waits | self._begun})

    @property
    def iterations(self) -> int:
        """Return the whole iterations that every rank which steps has surely done since the recording began."""
        return max(0, min(self.steps.values(), default=0) - 1)

    def _see_steps(self, columns: dict[str, NDArray[Any]]) -> None:
        kinds = columns["kind"]
        rows = np.flatnonzero((kinds == MarkKind.OPTIMIZER_STEP) | (kinds == MarkKind.BACKWARD))
        rows = rows[np.argsort(columns["time_ns"][rows], kind="stable")]
        for pid, kind in zip(columns["pid"][rows].tolist(), kinds[rows].tolist(), strict=True):
            if kind == MarkKind.OPTIMIZER_STEP:
                self._stepped.add(pid)
            elif pid in self._stepped:
                self._stepped.discard(pid)
                self._begun[pid] += 1

    def _see_time(self, times_ns: NDArray[Any]) -> None:
        if len(times_ns) and self.first_event_ns is None:
            self.first_event_ns = int(np.min(times_ns))
