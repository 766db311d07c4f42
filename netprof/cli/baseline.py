"""`--baseline SECONDS|TRACE`: how long an iteration of one worker alone takes."""

from __future__ import annotations

import math
from pathlib import Path

from netprof.cli.reading import analyzed
from netprof.errors import UsageError
from netprof.units import parse_duration_ns


def read_baseline(text: str | None) -> float | None:
    """Return seconds from a time, as 0.128 or 128ms, or from a recording of one worker alone. Raises NetprofError."""
    if text is None:
        return None
    if not Path(text).is_dir():
        return _seconds(text)
    from netprof.analysis.findings.collectives.scaling import single_worker_s
    from netprof.trace.ring import reader_of

    return single_worker_s(analyzed(reader_of(Path(text))), text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = _with_unit(text)
    if not (value > 0 and math.isfinite(value)):
        raise UsageError(f"'{text}' is not a duration", "try 128ms")
    return value


def _with_unit(text: str) -> float:
    try:
        return parse_duration_ns(text) / 1e9
    except UsageError as error:
        hint = "write a time like 0.128 or 128ms, or name the directory of a trace"
        raise UsageError(f"--baseline '{text}' is neither a time nor a trace", hint) from error
