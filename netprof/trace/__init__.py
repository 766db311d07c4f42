"""A trace on disk: a directory with `meta.json` and one Arrow IPC stream per table."""

from netprof.trace.reader import TraceReader
from netprof.trace.source import TraceSource
from netprof.trace.writer import TraceWriter

__all__ = ["TraceReader", "TraceSource", "TraceWriter"]
