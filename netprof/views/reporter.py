"""What a reporter is, and what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from netprof.analysis import Analysis
    from netprof.files import Directory
    from netprof.trace import TraceSource


@dataclass(frozen=True)
class Report:
    """What a reporter writes: the conclusions, and the trace that they come from; None where that is not at hand.

    `beside` are profiles of the job's own processes, for a format that can hold them.
    """

    analysis: Analysis
    trace: TraceSource | None
    beside: Sequence[Path] = ()


@dataclass(frozen=True)
class Reporter:
    """One format: the option by which it is asked for, and the module that writes it, imported when it is used.

    The module has `write(report, stream)` for one file (a binary stream), or, of a `folder` of files,
    `fill(report, folder)`; both raise OSError. `suffixes` are those file names that mean this format and no other.
    `about` is the option's help. What is written `of_findings` alone needs no trace.
    """

    name: str
    module: str
    about: str
    suffixes: tuple[str, ...] = ()
    folder: bool = False
    of_findings: bool = False

    def write(self, report: Report, out: IO[bytes]) -> None:
        """Write a report to a stream."""
        import_module(self.module).write(report, out)

    def fill(self, report: Report, folder: Directory) -> None:
        """Write a report into a folder that exists."""
        import_module(self.module).fill(report, folder)
