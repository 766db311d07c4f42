"""Counting the steps that a job takes, as its marks go by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from netprof.schema import MarkKind


class StepCounter:
    """Counts the steps of each process: of DDP where it has that, else those begun after a step of the optimizer.

    Several DDP models may be in one step: it is over when one of them waits again. Processes that have ended are
    forgotten: after a restart, others count.
    """

    def __init__(self) -> None:
        self._waits: Counter[int] = Counter()  # steps by pid
        self._waited: dict[int, set[int]] = {}  # the models that waited in the present step, by pid
        self._begun: Counter[int] = Counter()  # backward passes after an optimizer step, by pid
        self._stepped: set[int] = set()  # whose last mark of the two was the optimizer's

    def see(self, columns: Mapping[str, Any]) -> None:
        """Count rows of table `marks`: arrays, in any order within a batch."""
        kinds = columns["kind"]
        self._see_waits({name: columns[name][kinds == MarkKind.DDP_WAIT] for name in ("time_ns", "pid", "arg0")})
        rows = np.flatnonzero((kinds == MarkKind.OPTIMIZER_STEP) | (kinds == MarkKind.BACKWARD))
        rows = rows[np.argsort(columns["time_ns"][rows], kind="stable")]
        for pid, kind in zip(columns["pid"][rows].tolist(), kinds[rows].tolist(), strict=True):
            if kind == MarkKind.OPTIMIZER_STEP:
                self._stepped.add(pid)
            elif pid in self._stepped:
                self._stepped.discard(pid)
                self._begun[pid] += 1
        for pid in columns["pid"][kinds == MarkKind.PROCESS_EXIT].tolist():
            self._waits.pop(pid, None)
            self._waited.pop(pid, None)
            self._begun.pop(pid, None)
            self._stepped.discard(pid)

    def _see_waits(self, waits: Mapping[str, Any]) -> None:
        order = np.argsort(waits["time_ns"], kind="stable")
        for pid, model in zip(waits["pid"][order].tolist(), waits["arg0"][order].tolist(), strict=True):
            waited = self._waited.setdefault(pid, set())
            if not waited or model in waited:
                waited.clear()
                self._waits[pid] += 1
            waited.add(model)

    @property
    def steps(self) -> Counter[int]:
        """The steps of each process."""
        return Counter({pid: self._waits[pid] or self._begun[pid] for pid in self._waits | self._begun})
