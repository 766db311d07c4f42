"""Every reporter there is, found by name or by suffix."""

from __future__ import annotations

from pathlib import Path

from netprof.errors import UsageError
from netprof.views.reporter import Reporter

_PERFETTO = (".pftrace", ".perfetto-trace", ".perfetto.json", ".trace.json")

REPORTERS = (
    Reporter("html", "netprof.views.html", "Write one self-contained page of charts; - prints it.", (".html", ".htm")),
    Reporter(
        "markdown",
        "netprof.views.markdown",
        "Write Markdown, to paste into an issue or a chat.",
        (".md",),
        of_findings=True,
    ),
    Reporter("perfetto", "netprof.views.perfetto", "Write a trace for ui.perfetto.dev or chrome://tracing.", _PERFETTO),
    Reporter(
        "archive",
        "netprof.views.perfetto_archive",
        "Write an archive for ui.perfetto.dev: every host a machine, all on one clock.",
        (".tar",),
    ),
    Reporter("json", "netprof.views.json_report", "Print the report as JSON.", (".json",), of_findings=True),
    Reporter("csv", "netprof.views.csv_tables", "Write every table and result as CSV.", folder=True),
    Reporter("parquet", "netprof.views.parquet_tables", "Write every table and result as Parquet.", folder=True),
    Reporter(
        "chakra", "netprof.views.chakra", "Write Chakra execution traces, one a rank, for ASTRA-sim.", folder=True
    ),
)
"""In the order in which suffixes are tried: `.trace.json` before `.json`."""


def by_name(name: str) -> Reporter:
    """Return the reporter of that name. Raises UsageError."""
    known = {reporter.name: reporter for reporter in REPORTERS}
    if name not in known:
        raise UsageError(f"there is no report format '{name}'", f"choose one of {', '.join(known)}")
    return known[name]


def by_suffix(path: Path) -> Reporter:
    """Return the reporter that the file's name means. Raises UsageError where it means none."""
    for reporter in REPORTERS:
        if path.name.lower().endswith(reporter.suffixes or ("\0",)):
            return reporter
    known = ", ".join(suffix for reporter in REPORTERS for suffix in reporter.suffixes)
    options = ", ".join(f"--{reporter.name}" for reporter in REPORTERS)
    raise UsageError(
        f"the name of {path} does not say which format is wanted", f"end it with one of {known}, or use {options}"
    )
