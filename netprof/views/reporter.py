"""What a reporter is, and what it writes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
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
    """One format: the option by which it is asked for, and the module that writes it, imported when it is used.

    The module has `write(report, stream)` for one file (a binary stream), or, of a `folder` of files,
    `fill(report, folder)`; both raise OSError. `suffixes` are those file names that mean this format and no other.
    `about` is the option's help.
    """

    name: str
    module: str
    about: str
    suffixes: tuple[str, ...] = ()
    folder: bool = False

    def write(self, report: Report, out: IO[bytes]) -> None:
        """Write a report to a stream."""
        import_module(self.module).write(report, out)

    def fill(self, report: Report, folder: Path) -> None:
        """Write a report into a folder that exists."""
        import_module(self.module).fill(report, folder)
