"""What a person can choose about a recording."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netprof.errors import UsageError
from netprof.session.given import GivenRanks
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
