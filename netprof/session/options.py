"""What a person can choose about a recording."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from netprof.errors import UsageError
from netprof.session.given import GivenRanks
from netprof.units import parse_duration_ns

DEFAULT_BIN = "1ms"
_MIN_BIN_NS, _MAX_BIN_NS = 100_000, 1_000_000_000
_MAX_REFRESH_NS = 10_000_000_000


def parse_bin_ns(text: str) -> int:
    """Read the width of a time bin as typed. Raises UsageError for one that is out of range."""
    bin_ns = parse_duration_ns(text)
    if not _MIN_BIN_NS <= bin_ns <= _MAX_BIN_NS:
        raise UsageError(f"bins of {text} are out of range", "choose --bin between 100us and 1s")
    return bin_ns


def parse_refresh_ns(text: str) -> int:
    """Read for how long counters of RDMA ports may stay the same. Raises UsageError for what the kernel does not take.

    It takes whole milliseconds.
    """
    refresh_ns = parse_duration_ns(text)
    if refresh_ns % 1_000_000 or not 0 < refresh_ns <= _MAX_REFRESH_NS:
        raise UsageError(f"{text} is no time that RDMA counters can be kept for", "give whole milliseconds, 1ms to 10s")
    return refresh_ns


@dataclass(frozen=True)
class RecordingOptions:
    """Where the trace goes, when the recording ends by itself, and how finely it looks."""

    out: Path
    bin_ns: int = 1_000_000
    duration_ns: int | None = None
    iterations: int | None = None
    line_rate_bps: float | None = None
    device: str | None = None
    rdma_refresh_ns: int | None = None
    rdma_bind: bool = False
    ras: bool = True
    kineto_iterations: int | None = None
    stacks: bool = False
    force: bool = False
    command_lines: bool = True
    given: GivenRanks = field(default_factory=GivenRanks)

    @classmethod
    def parse(
        cls,
        *,
        out: Path | None,
        bin_width: str = DEFAULT_BIN,
        duration: str | None = None,
        iterations: int | None = None,
        line_rate_bps: float | None = None,
        device: str | None = None,
        rdma_refresh: str | None = None,
        rdma_bind: bool = False,
        ras: bool = True,
        kineto: int | None = None,
        stacks: bool = False,
        force: bool = False,
        world_size: int | None = None,
        ranks: Sequence[str] = (),
        command_lines: bool = True,
    ) -> RecordingOptions:
        """Read the options as typed. Raises UsageError for what cannot be meant."""
        duration_ns = parse_duration_ns(duration) if duration else None
        if duration_ns == 0:
            raise UsageError("a recording of no time records nothing", "give --duration above zero")
        return cls(
            out=out or Path(time.strftime("netprof-%Y%m%d-%H%M%S.netprof")),
            bin_ns=parse_bin_ns(bin_width),
            duration_ns=duration_ns,
            iterations=iterations,
            line_rate_bps=line_rate_bps,
            device=device,
            rdma_refresh_ns=parse_refresh_ns(rdma_refresh) if rdma_refresh else None,
            rdma_bind=rdma_bind,
            ras=ras,
            kineto_iterations=kineto,
            stacks=stacks,
            force=force,
            command_lines=command_lines,
            given=GivenRanks.parse(world_size, ranks),
        )
