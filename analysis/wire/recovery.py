"""When TCP recovers from loss: what is sent again, and the silence that ends in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.analysis.tables.columns import Columns, Int64, closes, concatenate, int64_column, opens
from netprof.schema import TRANSMIT

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class Resent(Columns):
    """Bins in which a flow sent something again, and when it had sent anything before; ns. `flow` is its row."""

    flow: Int64
    before_ns: Int64
    first_ns: Int64
    last_ns: Int64


class Recovery:
    """Collects what is sent again while the `wire` table is folded; the rows of a flow come in the order of time."""

    def __init__(self, flow_count: int) -> None:
        self._last_ns = np.full(flow_count, _NEVER)
        self._parts: list[Resent] = []

    def add(self, flow: Int64, direction: Int64, columns: dict[str, npt.NDArray[Any]]) -> None:
        """Add wire rows: the flow's row in the flow table, the direction, and the columns of `wire`."""
        rows = np.flatnonzero((direction == TRANSMIT) & (columns["payload_bytes"] + columns["retransmitted_bytes"] > 0))
        rows = rows[np.lexsort((columns["bin_start_ns"][rows], flow[rows]))]
        if len(rows) == 0:
            return
        owner = flow[rows]
        first, last = (int64_column(columns, name)[rows] for name in ("first_ns", "last_ns"))
        before = np.where(opens(owner), self._last_ns[owner], np.concatenate((last[:1], last[:-1])))
        before = np.where(before == _NEVER, first, before)
        again = np.flatnonzero(columns["retransmitted_bytes"][rows] > 0)
        self._parts.append(Resent(owner[again], before[again], first[again], last[again]))
        ends = closes(owner)
        self._last_ns[owner[ends]] = last[ends]

    @property
    def resent(self) -> Resent:
        """What was added so far."""
        return concatenate(Resent, self._parts)
