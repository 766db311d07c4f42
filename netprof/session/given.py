"""The ranks and the number of ranks that a person names, where nothing else tells: they win over the environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from netprof.errors import UsageError
from netprof.model import Target
from netprof.schema import RANK_GIVEN, UNKNOWN_RANK


@dataclass(frozen=True)
class GivenRanks:
    """`world_size` is None where nobody named it; `ranks` are pairs of a pid and its rank."""

    world_size: int | None = None
    ranks: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, world_size: int | None, ranks: Sequence[str]) -> GivenRanks:
        """Read the options as typed, each rank as PID=N. Raises UsageError for what cannot be meant."""
        pids: dict[int, int] = {}  # by rank
        for text in ranks:
            pid, rank = _pair(text)
            if pid in pids.values():
                raise UsageError(f"--rank names process {pid} twice", "give each process one rank")
            if rank in pids:
                raise UsageError(f"--rank gives rank {rank} to processes {pids[rank]} and {pid}", _ONE_EACH)
            _check_below(rank, world_size, f"--rank {text}")
            pids[rank] = pid
        return cls(world_size, tuple((pid, rank) for rank, pid in pids.items()))

    def of(self, target: Target) -> Target:
        """Return the target with what was named for it."""
        has_ranks = bool(target.frameworks) or target.world_size is not None
        if self.world_size is not None and has_ranks:
            target = replace(target, world_size=self.world_size)
        rank = dict(self.ranks).get(target.pid)
        return target if rank is None else replace(target, rank=rank, rank_source=RANK_GIVEN)

    def check(self, targets: Iterable[Target]) -> None:
        """Raise UsageError where what was named contradicts the job: its processes, and what they say themselves."""
        job = [self.of(target) for target in targets]
        for pid, rank in self.ranks:
            if pid not in {target.pid for target in job}:
                raise UsageError(f"--rank {pid}={rank}: the job has no process {pid}", "name a process that trains")
        training = [target for target in job if target.rank != UNKNOWN_RANK and target.frameworks]
        for target in training if self != GivenRanks() else ():
            _check_below(target.rank, target.world_size, f"process {target.pid} is rank {target.rank}")
        for pid, rank in self.ranks:
            others = [target.pid for target in training if target.rank == rank and target.pid != pid]
            if others:
                reason = f"--rank {pid}={rank}: process {others[0]} is rank {rank} by its environment"
                raise UsageError(reason, f"give that one its rank too, as --rank {others[0]}=N")


_ONE_EACH = "give each rank to one process"


def _pair(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,9})=([0-9]{1,9})", text)
    if found is None:
        raise UsageError(f"--rank {text} is not PID=N", "give a process and its rank, as --rank 1234=0")
    return int(found[1]), int(found[2])


def _check_below(rank: int, world_size: int | None, what: str) -> None:
    if world_size is not None and rank >= world_size:
        remedy = "give the number of all ranks, on all hosts, as --world-size"
        raise UsageError(f"{what}: of {world_size} ranks the last one is {world_size - 1}", remedy)
