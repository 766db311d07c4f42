"""Rows between the probes and the trace: kept for a moment, written together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, Protocol

import numpy as np

from netprof.model import Meta
from netprof.schema import tables
from netprof.session.options import RecordingOptions
from netprof.trace import TraceWriter
from netprof.trace.columns import column_types
from netprof.trace.ring import RingWriter
from netprof.trace.writer import DiscardedTrace

_LARGE_ROWS = 20_000
"""A batch of so many rows is packed as well as a larger one, and needs less memory."""


class Writer(Protocol):
    """What rows are written to."""

    def append(self, name: str, columns: Mapping[str, Sequence[Any] | Any]) -> None:
        """Append rows to a table."""


class TableBuffers:
    """Collects the columns of every table until they are flushed: as one batch each, but for what is large already.

    Each of `observers` is given every batch of rows as it comes in.
    """

    def __init__(self) -> None:
        self.observers: list[Callable[[str, Mapping[str, Any]], None]] = []
        # In the order in which they are flushed: a flow's row is on disk before its bytes.
        self._parts: dict[str, list[Mapping[str, Any]]] = {name: [] for name in tables()}

    def add(self, table: str, columns: Mapping[str, Any]) -> None:
        """Keep rows of `table`: one sequence per column, all of one length."""
        self._parts[table].append(columns)
        for observer in self.observers:
            observer(table, columns)

    def flush(self, writer: Writer) -> None:
        """Write what was kept. Raises OSError, after which the rows not yet written are still here."""
        for name, parts in self._parts.items():
            while parts:
                rows = accumulate(len(next(iter(part.values()))) for part in parts)
                count = next((number for number, so_far in enumerate(rows, 1) if so_far >= _LARGE_ROWS), len(parts))
                writer.append(name, _joined(name, parts[:count]))
                del parts[:count]


def _joined(table: str, parts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if len(parts) == 1:
        return parts[0]
    return {name: _column([part[name] for part in parts], dtype) for name, dtype in column_types(table).items()}


def _column(parts: Sequence[Any], dtype: np.dtype[Any] | None) -> Any:
    """Put the parts of a column together, as numbers of the trace's own type: each is copied once."""
    if dtype is None:
        return list(chain.from_iterable(parts))
    arrays = [part if isinstance(part, np.ndarray) else np.asarray(part, dtype) for part in parts]
    return np.concatenate(arrays, dtype=dtype, casting="unsafe")


def writer_of(options: RecordingOptions, meta: Meta) -> TraceWriter | DiscardedTrace | RingWriter:
    """Return what writes the trace. Raises as TraceWriter does."""
    if not options.keeps_trace:
        return DiscardedTrace()
    if options.keep is not None:
        return RingWriter(options.out, meta, options.keep, force=options.force)
    return TraceWriter(options.out, meta, force=options.force)
