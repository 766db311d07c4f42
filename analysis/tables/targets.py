"""Who is who: the job's processes and their ranks, as its description names them."""

from __future__ import annotations

from collections.abc import Sequence

from netprof.model import Target
from netprof.schema import UNKNOWN_RANK


def ranks_by_pid(targets: Sequence[Target]) -> dict[int, int]:
    """Return the rank of each process that has one."""
    return {target.pid: target.rank for target in targets if target.rank != UNKNOWN_RANK}


def world_size(targets: Sequence[Target]) -> int | None:
    """Return the number of ranks of the job, None where nothing says it or the processes disagree."""
    stated = {target.world_size for target in targets if target.world_size is not None}
    return stated.pop() if len(stated) == 1 else None
