"""What a reporter is, and what it writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from netprof.analysis import Analysis
    from netprof.trace import TraceReader


@dataclass(frozen=True)
class Report:
    """What a reporter writes: the conclusions, and the trace that they come from."""

    analysis: Analysis
    trace: TraceReader


@dataclass(frozen=True)
class Reporter:
    """One format, as one file (`write` gets a binary stream) or as a folder of files (`fill` gets the folder).

    `suffixes` are those file names that mean this format and no other.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    write: Callable[[Report, IO[bytes]], None] | None = None
    fill: Callable[[Report, Path], None] | None = None
