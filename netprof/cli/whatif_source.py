"""What `netprof whatif` reads and writes: a trace or a gradient log, tables, CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from netprof.cli.reading import analyzed
from netprof.errors import NetprofError, UsageError

if TYPE_CHECKING:
    from netprof.analysis.whatif.schedule import GradientSchedule
    from netprof.views.output import Target

_MAX_FILE_BYTES = 64 << 20


def read(source: Path, batch_s: float | None, line_rate_bps: float | None) -> GradientSchedule:
    """Read a trace or a log. Raises NetprofError."""
    if source.is_dir():
        from netprof.analysis.whatif.from_trace import from_trace
        from netprof.cli.traces import open_traces

        return from_trace(analyzed(open_traces([source])), compute_s=batch_s, line_rate_bps=line_rate_bps)
    from netprof.analysis.whatif.inputs import parse_gradient_log

    content = text(source)
    if batch_s is None:
        raise UsageError(f"{source} is a log: it holds no step time", "give one worker's with --batch-time SECONDS")
    return parse_gradient_log(content, str(source), batch_s)


def text(path: Path) -> str:
    """Return a small text file. Raises NetprofError."""
    from netprof.files import read_all

    data = read_all(path, _MAX_FILE_BYTES, "a trace directory or a log file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise NetprofError(f"{path} line {line} is not text", "name a trace directory or a log file") from error


def write(target: Target, content: str) -> None:
    """Write what --csv asks for. Raises NetprofError."""
    try:
        with target.opened() as file:
            file.write(content.encode())
    except OSError as error:
        raise NetprofError(f"cannot write {target.path}: {error.strerror}", "give --csv another file") from error
