"""Every reporter there is, found by name or by suffix; each is a file with one function, imported when it is used."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from netprof.errors import UsageError
from netprof.views.reporter import Report, Reporter


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
