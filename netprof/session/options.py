"""What a person can choose about a recording."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from netprof.errors import UsageError
from netprof.session.given import GivenRanks
from netprof.units import parse_duration_ns, parse_rate_bps

DEFAULT_BIN = "1ms"
_MIN_BIN_NS, _MAX_BIN_NS = 100_000, 1_000_000_000


@dataclass(frozen=True)
class RecordingOptions:
    """Where the trace goes, when the recording ends by itself, and how finely it looks."""

    out: Path
    bin_ns: int = 1_000_000
    duration_ns: int | None = None
    iterations: int | None = None
    line_rate_bps: float | None = None
    device: str | None = None
    force: bool = False
    given: GivenRanks = field(default_factory=GivenRanks)

    @classmethod
    def parse(
        cls,
        *,
        out: Path | None,
        bin_width: str = DEFAULT_BIN,
        duration: str | None = None,
        iterations: int | None = None,
        line_rate: str | None = None,
        device: str | None = None,
        force: bool = False,
        world_size: int | None = None,
        ranks: Sequence[str] = (),
    ) -> RecordingOptions:
        """Read the options as typed. Raises UsageError for what cannot be meant."""
        bin_ns = parse_duration_ns(bin_width)
        if not _MIN_BIN_NS <= bin_ns <= _MAX_BIN_NS:
            raise UsageError(f"bins of {bin_width} are out of range", "choose --bin between 100us and 1s")
        duration_ns = parse_duration_ns(duration) if duration else None
        if duration_ns == 0:
            raise UsageError("a recording of no time records nothing", "give --duration above zero")
        return cls(
            out=out or Path(time.strftime("netprof-%Y%m%d-%H%M%S.netprof")),
            bin_ns=bin_ns,
            duration_ns=duration_ns,
            iterations=iterations,
            line_rate_bps=parse_rate_bps(line_rate) if line_rate else None,
            device=device,
            force=force,
            given=GivenRanks.parse(world_size, ranks),
        )
