"""Ranks where no environment tells them: a process's number in the largest communicator that its collectives name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from netprof.analysis.tables.columns import int64_column
from netprof.analysis.tables.nccl_ranks import NcclRanks
from netprof.schema import ALL_RANKS, MarkKind


class ToldRanks:
    """Learns from the marks which processes say to be which of how many; rows may come in any order, in parts."""

    def __init__(self) -> None:
        self._largest: dict[int, tuple[int, int]] = {}  # ranks of the largest communicator and the number in it, by pid

    def add(self, marks: Any) -> None:
        """Take rows of table `marks`: anything with its columns."""
        rows = np.flatnonzero(np.asarray(int64_column(marks, "kind")) == MarkKind.COLLECTIVE_GROUP)
        if len(rows) == 0:
            return
        pid, ranks, number = (int64_column(marks, name)[rows] for name in ("pid", "arg1", "arg2"))
        said = (ranks > 0) & (ranks != ALL_RANKS) & (number >= 0) & (number < ranks)
        for one in np.unique(np.stack((pid, ranks, number), axis=1)[said], axis=0).tolist():
            self._largest[one[0]] = max(self._largest.get(one[0], (0, 0)), (one[1], one[2]))

    def add_nccl(self, ranks: NcclRanks) -> None:
        """Take what NCCL's RAS says of the job's processes."""
        told = ranks.where((ranks.pid > 0) & (ranks.rank >= 0) & (ranks.rank < ranks.size))
        for pid, size, rank in zip(told.pid.tolist(), told.size.tolist(), told.rank.tolist(), strict=True):
            self._largest[pid] = max(self._largest.get(pid, (0, 0)), (size, rank))

    @property
    def world_size(self) -> int | None:
        """How many ranks the largest communicator has, where it can be the whole job; None: nothing says it."""
        sizes = {ranks for ranks, _ in self._largest.values()}
        if not sizes:
            return None
        numbers = [number for ranks, number in self._largest.values() if ranks == max(sizes)]
        return max(sizes) if len(sizes) == 1 and len(numbers) == len(set(numbers)) and max(sizes) > 1 else None

    def ranks(self) -> dict[int, int]:
        """Return the number of each process in it, by pid; empty where that is no rank: two of them have the same."""
        return {pid: number for pid, (_, number) in self._largest.items()} if self.world_size is not None else {}


def with_told(ranks: Mapping[int, int], told: Mapping[int, int]) -> dict[int, int]:
    """Return the known ranks, and those told for other processes; none of these where one contradicts what is known."""
    others = {pid: rank for pid, rank in told.items() if pid not in ranks}
    contradicted = any(ranks.get(pid, rank) != rank for pid, rank in told.items())
    return dict(ranks) if contradicted or set(others.values()) & set(ranks.values()) else {**ranks, **others}
