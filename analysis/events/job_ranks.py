"""Which rank each process is: as the job's description says, else its number in the largest communicator it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from netprof.analysis.tables.columns import int64_column
from netprof.analysis.tables.nccl_ranks import NcclRanks
from netprof.model import Target
from netprof.schema import ALL_RANKS, UNKNOWN_RANK, MarkKind

_CREATED = ("pid", "tid", "time_ns", "kind", "arg0", "arg1", "arg2")
_SAME_CALL_NS = 1_000_000
"""Two marks of one entry to a function are some microseconds apart."""


def ranks_by_pid(targets: Sequence[Target]) -> dict[int, int]:
    """Return the rank of each process that has one."""
    return {target.pid: target.rank for target in targets if target.rank != UNKNOWN_RANK}


def world_size(targets: Sequence[Target]) -> int | None:
    """Return the number of ranks of the job, None where nothing says it or the processes disagree."""
    stated = {target.world_size for target in targets if target.world_size is not None}
    return stated.pop() if len(stated) == 1 else None


class CommunicatorRanks:
    """Learns from the marks which processes say to be which of how many; rows may come in any order, in parts."""

    def __init__(self) -> None:
        self._largest: dict[int, tuple[int, set[int]]] = {}  # the largest communicator: its ranks, numbers in it
        self._halves: dict[tuple[int, ...], tuple[int, int]] = {}  # of a call that creates one: when, and the number

    def add(self, marks: Any) -> None:
        """Take rows of table `marks`: anything with its columns."""
        kind = np.asarray(int64_column(marks, "kind"))
        rows = np.flatnonzero(kind == MarkKind.COLLECTIVE_GROUP)
        if len(rows):
            pid, ranks, number = (int64_column(marks, name)[rows] for name in ("pid", "arg1", "arg2"))
            valid = (ranks > 0) & (ranks != ALL_RANKS) & (number >= 0) & (number < ranks)
            for row in np.unique(np.stack((pid, ranks, number), axis=1)[valid], axis=0).tolist():
                self._add_number(*row)
        created = np.flatnonzero(np.isin(kind, (MarkKind.NCCL_COMM_INIT, MarkKind.NCCL_COMM_RANK)))
        for row in created[np.argsort(int64_column(marks, "time_ns")[created], kind="stable")].tolist():
            self._add_created(*(int(int64_column(marks, name)[row]) for name in _CREATED))

    def _add_number(self, pid: int, ranks: int, number: int) -> None:
        largest, numbers = self._largest.setdefault(pid, (ranks, set()))
        if ranks >= largest:
            self._largest[pid] = (ranks, {number} if ranks > largest else numbers | {number})

    def _add_created(self, pid: int, tid: int, time_ns: int, kind: int, *args: int) -> None:
        """Take one of the two marks of a call that creates a communicator of NCCL's: they go by where it is written."""
        is_rank = kind == MarkKind.NCCL_COMM_RANK
        value, handle = args[0], args[2 if is_rank else 1]
        half_ns, half = self._halves.pop((pid, tid, handle, not is_rank), (time_ns - 2 * _SAME_CALL_NS, 0))
        if time_ns - half_ns > _SAME_CALL_NS:
            self._halves[pid, tid, handle, is_rank] = (time_ns, value)
        elif 0 <= (number := value if is_rank else half) < (ranks := half if is_rank else value):
            self._add_number(pid, ranks, number)

    def add_nccl(self, ranks: NcclRanks) -> None:
        """Take what NCCL's RAS says of the job's processes."""
        valid = ranks.where((ranks.pid > 0) & (ranks.rank >= 0) & (ranks.rank < ranks.size))
        for pid, size, rank in zip(valid.pid.tolist(), valid.size.tolist(), valid.rank.tolist(), strict=True):
            self._add_number(pid, size, rank)

    @property
    def world_size(self) -> int | None:
        """How many ranks the largest communicator has, where it can be the whole job; None: nothing says it."""
        sizes = {ranks for ranks, _ in self._largest.values()}
        numbers = [number for _, known in self._largest.values() for number in known]
        return sizes.pop() if len(sizes) == 1 and max(sizes) > 1 and len(numbers) == len(set(numbers)) else None

    def ranks(self) -> dict[int, int]:
        """Return the number of each process in it, by pid, but of those with several; empty where it is no rank."""
        if self.world_size is None:
            return {}
        return {pid: min(numbers) for pid, (_, numbers) in self._largest.items() if len(numbers) == 1}


def with_communicator_ranks(ranks: Mapping[int, int], named: Mapping[int, int]) -> dict[int, int]:
    """Return the known ranks, and those `named` for others; none of these where one contradicts what is known."""
    others = {pid: rank for pid, rank in named.items() if pid not in ranks}
    contradicted = any(ranks.get(pid, rank) != rank for pid, rank in named.items())
    return dict(ranks) if contradicted or set(others.values()) & set(ranks.values()) else {**ranks, **others}
