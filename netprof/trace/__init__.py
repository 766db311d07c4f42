"""A trace on disk: a directory with `meta.json` and one Arrow IPC stream per table."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netprof.trace.reader import TraceReader
    from netprof.trace.source import TraceSource
    from netprof.trace.writer import TraceWriter

__all__ = ["TraceReader", "TraceSource", "TraceWriter"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: with pyarrow that takes 30 ms, which a recorder does not have before it has begun."""
    if name in __all__:
        return getattr(import_module(f"{__name__}.{name.removeprefix('Trace').lower()}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
