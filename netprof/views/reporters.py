"""Reporters: what writes a report in one format. Each is a file with one function, found by name or by suffix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from netprof.errors import UsageError

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


def _html(report: Report, out: IO[bytes]) -> None:
    from netprof.views.html import render

    out.write(render(report.analysis).encode())


def _json(report: Report, out: IO[bytes]) -> None:
    import json

    from netprof.views.json_report import to_json

    out.write(json.dumps(to_json(report.analysis), indent=1, allow_nan=False).encode() + b"\n")


def _perfetto(report: Report, out: IO[bytes]) -> None:
    from netprof.views.perfetto import write

    write(report.analysis, out)


def _csv(report: Report, folder: Path) -> None:
    from netprof.views.tables import write_csv

    write_csv(report, folder)


def _parquet(report: Report, folder: Path) -> None:
    from netprof.views.tables import write_parquet

    write_parquet(report, folder)


REPORTERS = (
    Reporter("html", (".html", ".htm"), write=_html),
    Reporter("perfetto", (".pftrace", ".perfetto-trace", ".perfetto.json", ".trace.json"), write=_perfetto),
    Reporter("json", (".json",), write=_json),
    Reporter("csv", fill=_csv),
    Reporter("parquet", fill=_parquet),
)
"""In the order in which suffixes are tried: `.trace.json` before `.json`."""


def by_name(name: str) -> Reporter:
    """Return the reporter of that name. Raises UsageError."""
    for reporter in REPORTERS:
        if reporter.name == name:
            return reporter
    names = ", ".join(reporter.name for reporter in REPORTERS)
    raise UsageError(f"there is no report format '{name}'", f"choose one of {names}")


def by_suffix(path: Path) -> Reporter:
    """Return the reporter that the file's name means. Raises UsageError where it means none."""
    for reporter in REPORTERS:
        if path.name.lower().endswith(reporter.suffixes or ("\0",)):
            return reporter
    known = ", ".join(suffix for reporter in REPORTERS for suffix in reporter.suffixes)
    raise UsageError(
        f"the name of {path} does not say which format is wanted",
        f"end it with one of {known}, or use --html, --perfetto, --csv or --parquet",
    )
