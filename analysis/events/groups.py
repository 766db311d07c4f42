"""Who takes part in a collective: its communicator, and the size of the whole buffer where a mark tells one part."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.events.sizes import bytes_of
from netprof.analysis.tables.columns import UNKNOWN, Bool, Int64
from netprof.analysis.tables.marks import Marks
from netprof.schema import ALL_RANKS, MarkKind


@dataclass(frozen=True, eq=False)
class Groups:
    """The communicator of each collective, its ranks, and this one's number in it; UNKNOWN where nothing says it."""

    group: Int64
    ranks: Int64
    number: Int64


def find_groups(rows: Marks, owner: Int64, belongs: Bool, count: int, world_size: int | None) -> Groups:
    """Return the groups of `count` collectives; `owner` is the collective of each row, where it `belongs` to one.

    `world_size` is the number of ranks of the job.
    """
    group, ranks, number = (np.full(count, UNKNOWN) for _ in range(3))
    found = np.flatnonzero(belongs & (rows.kind == MarkKind.COLLECTIVE_GROUP))
    stated = rows.arg1[found]
    whole_job = UNKNOWN if world_size is None else world_size
    group[owner[found]] = rows.arg0[found]
    number[owner[found]] = rows.arg2[found]
    ranks[owner[found]] = np.where(stated == ALL_RANKS, whole_job, np.where(stated == 0, UNKNOWN, stated))
    return Groups(group, ranks, number)


def with_whole_sizes(rows: Marks, owner: Int64, ranks: Int64) -> Marks:
    """Return the rows with sizes of whole buffers only: a part has been multiplied by the `ranks` of its collective.

    What nothing says is UNKNOWN elements of one byte.
    """
    is_part, is_size = rows.kind == MarkKind.COLLECTIVE_PART, rows.kind == MarkKind.COLLECTIVE_SIZE
    parts = np.where(is_part & (owner >= 0), np.append(ranks, UNKNOWN)[owner], 1)
    unknown = (rows.arg0 == UNKNOWN) | (parts == UNKNOWN) | ((rows.arg0 > 0) & (rows.arg1 == 0))
    unknown &= is_part | is_size
    whole = np.where(is_part, bytes_of(rows.arg0, parts), rows.arg0)
    return replace(
        rows,
        kind=np.where(is_part, int(MarkKind.COLLECTIVE_SIZE), rows.kind),
        arg0=np.where(unknown, UNKNOWN, whole),
        arg1=np.where(unknown, 1, rows.arg1),
    )
