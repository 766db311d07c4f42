"""A recording taken apart as if every rank had a host of its own, and the digests of those, each made alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shifted_clock import shift

from netprof.analysis import analyze
from netprof.analysis.evidence import Evidence
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.section import Analysis
from netprof.session.digest import write_digests
from netprof.trace import TraceReader
from netprof.trace.meta import open_trace, write_meta
from netprof.trace.named import traces_named
from netprof.views.json_report import to_json


def apart(trace: Path, folder: Path) -> list[Path]:
    """Write the trace of each rank; all are of one boot, so that their clocks are one and nothing is estimated."""
    ranks = Evidence.of_trace(TraceReader(trace)).ranks
    found = []
    for pid, rank in sorted(ranks.items(), key=lambda item: item[1]):
        own = shift(trace, folder / f"h{rank}.netprof", host=f"h{rank}", pids=[pid])
        write_meta(open_trace(own), replace(TraceReader(own).meta, boot_id="one"))
        found.append(own)
    return found


def digested(traces: Sequence[Path], root: Path, bin_ns: int | None = None) -> dict[str, Any]:
    """Return the report of digests that are made of each trace alone."""
    for trace in traces:
        write_digests(TraceReader(trace), root, "job", bin_ns=bin_ns)
    return document(analyze(open_job(traces_named([root]))))


def of_traces(traces: Sequence[Path]) -> dict[str, Any]:
    """Return the report of all traces."""
    return document(analyze(open_job(traces)))


def document(analysis: Analysis) -> dict[str, Any]:
    """Return a report as whoever reads its JSON gets it."""
    found: dict[str, Any] = json.loads(json.dumps(to_json(analysis), allow_nan=False))
    return found
