"""The collectives of every backend whose times are true ones, and when something is outstanding without DDP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from netprof.analysis.events.collectives import Collectives, FoundCollectives, find_collectives
from netprof.analysis.events.horovod import horovod_outstanding, horovod_transfers
from netprof.analysis.tables.columns import concatenate
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.analysis.tables.marks import Marks


def all_collectives(marks: Marks, world_size: int | None = None) -> FoundCollectives:
    """Return the collectives whose begin and end were seen, of every backend, by begin.

    `world_size` is the number of ranks of the job.
    """
    paired = find_collectives(marks, world_size)
    both = concatenate(Collectives, [paired.collectives, horovod_transfers(marks)])
    return replace(paired, collectives=both.sorted_by("begin_ns"))


def outstanding_without_ddp(marks: Marks, collectives: Collectives, stepped: Sequence[int]) -> dict[int, Intervals]:
    """Return when something is outstanding in processes without DDP: any collective, or what Horovod was given."""
    times = {}
    for pid in stepped:
        process_collectives = collectives.of_pid(pid)
        times[pid] = merge(process_collectives.begin_ns, process_collectives.end_ns)
    for pid, given in horovod_outstanding(marks).items():
        times[pid] = times[pid] | given if pid in times else given
    return times
