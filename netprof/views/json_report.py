"""The report as JSON: `netprof report TRACE --json`. Its keys are described in docs/json.md."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

from netprof.analysis import definitions
from netprof.views.json_text import json_text

if TYPE_CHECKING:
    from netprof.analysis import Analysis
    from netprof.views.reporter import Report

SCHEMA = 1


def write(report: Report, out: IO[bytes]) -> None:
    """Write the document. Raises OSError."""
    out.write(json_text(to_json(report.analysis)).encode() + b"\n")


def to_json(analysis: Analysis) -> dict[str, Any]:
    """Return the report as a document of plain dicts, lists, strings and finite numbers (docs/json.md)."""
    return {
        "schema": SCHEMA,
        **analysis.document(),
        "notes": list(analysis.notes),
        "definitions": {term.name or term.term: term.text for term in definitions.ALL},
    }
