"""The `nccl_posted` table as columns: what NCCL handed to its network, by connection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Columns, Int64, opens


@dataclass(frozen=True, eq=False)
class Posted(Columns):
    """What was posted on a connection, one way, from `first_ns` to `last_ns`: in a time bin, or in all of a time."""

    pid: Int64
    connection: Int64
    direction: Int64
    network: Int64
    posted_bytes: Int64
    posts: Int64
    refused: Int64
    first_ns: Int64
    last_ns: Int64

    def by_connection(self) -> Posted:
        """Return one row for each connection of a process and each way."""
        if not len(self):
            return self
        order = np.lexsort((self.direction, self.connection, self.network, self.pid))
        rows = self.where(order)
        first = np.flatnonzero(opens(rows.pid, rows.network, rows.connection, rows.direction))
        summed = {name: np.add.reduceat(getattr(rows, name), first) for name in ("posted_bytes", "posts", "refused")}
        same = {name: getattr(rows, name)[first] for name in ("pid", "connection", "direction", "network")}
        first_ns, last_ns = np.minimum.reduceat(rows.first_ns, first), np.maximum.reduceat(rows.last_ns, first)
        return Posted(**same, **summed, first_ns=first_ns, last_ns=last_ns)
