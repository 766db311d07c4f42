"""The `profiled` table: when processes computed and communicated, as profiles of the job itself say."""

from __future__ import annotations

from typing import Any

import numpy as np

from netprof.analysis.tables.columns import int64_column
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.schema import Profiled

_NAMES = ("pid", "kind", "first_ns", "last_ns")


class Profiles:
    """Profiles of some processes; of the others nothing is known."""

    def __init__(self, table: Any) -> None:
        self._columns = {name: int64_column(table, name) for name in _NAMES}

    @property
    def pids(self) -> frozenset[int]:
        """The processes that were profiled."""
        return frozenset(np.unique(self._columns["pid"]).tolist())

    def when(self, pid: int, kind: Profiled) -> Intervals:
        """Return when a process did something, as far as its profiles reach."""
        rows = (self._columns["pid"] == pid) & (self._columns["kind"] == int(kind))
        return merge(self._columns["first_ns"][rows], self._columns["last_ns"][rows])
