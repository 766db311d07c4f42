"""Rows between the probes and the trace: kept for a moment, written together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from netprof.schema import tables
from netprof.trace import TraceWriter


class TableBuffers:
    """Collects the columns of every table until they are flushed as one batch each.

    `observer`, where one is set, is given every batch of rows as it comes in.
    """

    observer: Callable[[str, Mapping[str, Any]], None] | None = None

    def __init__(self) -> None:
        # In the order in which they are flushed: a flow's row is on disk before its bytes.
        self._parts: dict[str, list[Mapping[str, Any]]] = {name: [] for name in tables()}

    def add(self, table: str, columns: Mapping[str, Any]) -> None:
        """Keep rows of `table`: one sequence per column, all of one length."""
        self._parts[table].append(columns)
        if self.observer is not None:
            self.observer(table, columns)

    def flush(self, writer: TraceWriter) -> None:
        """Write what was kept. Raises OSError, after which the rows not yet written are still here."""
        for name, parts in self._parts.items():
            if parts:
                writer.append(name, _joined(name, parts))
                parts.clear()


def _joined(table: str, parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    if len(parts) == 1:
        return dict(parts[0])
    names = tables()[table].names
    return {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in names}
