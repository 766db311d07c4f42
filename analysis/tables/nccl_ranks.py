"""The `nccl_ranks` table as columns: what NCCL's RAS said of the ranks of each communicator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.analysis.tables.columns import Columns, Int64, closes, int64_column, text_column


@dataclass(frozen=True, eq=False)
class NcclRanks(Columns):
    """What was said of a rank at a time. `rank` is UNKNOWN_RANK where it was said of the communicator alone."""

    time_ns: Int64
    communicator: npt.NDArray[np.object_]
    size: Int64
    rank: Int64
    host: npt.NDArray[np.object_]
    pid: Int64
    process: Int64
    state: Int64
    collectives: Int64

    def latest(self) -> NcclRanks:
        """Return the last that was said of each rank, by communicator and rank."""
        _, number = np.unique(self.communicator.astype(str), return_inverse=True)
        rows = self.where(np.lexsort((self.time_ns, self.rank, number)))
        return rows.where(closes(rows.communicator, rows.rank))


def read_nccl_ranks(table: Any) -> NcclRanks:
    """Return the `nccl_ranks` table (Arrow, DataFrame or mapping of columns, rows in any order)."""
    columns: dict[str, Any] = {n: np.array(text_column(table, n), object) for n in ("communicator", "host")}
    names = ("time_ns", "size", "rank", "pid", "process", "state", "collectives")
    return NcclRanks(**columns, **dict[str, Any]({name: int64_column(table, name) for name in names}))
