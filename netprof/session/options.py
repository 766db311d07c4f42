"""What a person can choose about a recording, and the ranks that a person names: they win over the environment."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from netprof.errors import UsageError
from netprof.model import Target
from netprof.schema import RANK_GIVEN, UNKNOWN_RANK
from netprof.trace.keep import Keep
from netprof.units import parse_duration_ns

DEFAULT_BIN = "1ms"
_MIN_BIN_NS, _MAX_BIN_NS = 100_000, 1_000_000_000


def parse_bin_ns(text: str) -> int:
    """Read the width of a time bin as typed. Raises UsageError for one that is out of range."""
    bin_ns = parse_duration_ns(text)
    if not _MIN_BIN_NS <= bin_ns <= _MAX_BIN_NS:
        raise UsageError(f"bins of {text} are out of range", "choose --bin between 100us and 1s")
    return bin_ns


@dataclass(frozen=True)
class GivenRanks:
    """`world_size` is None if not given; `ranks` are pairs of a pid and its rank."""

    world_size: int | None = None
    ranks: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, world_size: int | None, ranks: Sequence[str]) -> GivenRanks:
        """Read the options as typed, each rank as PID=N. Raises UsageError for what cannot be meant."""
        pids: dict[int, int] = {}  # by rank
        for text in ranks:
            match = re.fullmatch(r"([0-9]{1,9})=([0-9]{1,9})", text)
            if match is None:
                raise UsageError(f"--rank {text} is not PID=N", "give a process and its rank, as --rank 1234=0")
            pid, rank = int(match[1]), int(match[2])
            if pid in pids.values():
                raise UsageError(f"--rank names process {pid} twice", "give each process one rank")
            if rank in pids:
                both = f"{pids[rank]} and {pid}"
                raise UsageError(f"--rank gives rank {rank} to processes {both}", "give each rank to one process")
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


def _check_below(rank: int, world_size: int | None, what: str) -> None:
    if world_size is not None and rank >= world_size:
        remedy = "give the number of all ranks, on all hosts, as --world-size"
        raise UsageError(f"{what}: of {world_size} ranks the last one is {world_size - 1}", remedy)


@dataclass(frozen=True)
class RecordingOptions:
    """Where the trace goes, when the recording ends by itself, and how finely it looks."""

    out: Path
    bin_ns: int = 1_000_000
    duration_ns: int | None = None
    iterations: int | None = None
    line_rate_bps: float | None = None
    devices: tuple[str, ...] = ()
    ras: bool = True
    kineto_iterations: int | None = None
    stacks: bool = False
    force: bool = False
    command_lines: bool = True
    given: GivenRanks = field(default_factory=GivenRanks)
    keeps_trace: bool = True
    keep: Keep | None = None
    most_processes: int | None = None
    max_flows: int | None = None

    @classmethod
    def parse(
        cls,
        *,
        out: Path | None,
        bin_width: str = DEFAULT_BIN,
        duration: str | None = None,
        devices: Sequence[str] = (),
        world_size: int | None = None,
        ranks: Sequence[str] = (),
        keep: str | None = None,
        **plain: Any,
    ) -> RecordingOptions:
        """Read the options as typed; what needs no reading is `plain`. Raises UsageError for what cannot be meant."""
        duration_ns = parse_duration_ns(duration) if duration else None
        if duration_ns == 0:
            raise UsageError("a recording of no time records nothing", "give --duration above zero")
        return cls(
            out=out or Path(time.strftime("netprof-%Y%m%d-%H%M%S.netprof")),
            bin_ns=parse_bin_ns(bin_width),
            duration_ns=duration_ns,
            devices=tuple(dict.fromkeys(devices)),
            given=GivenRanks.parse(world_size, ranks),
            keep=Keep.parse(keep) if keep else None,
            **plain,
        )
