"""The collectives of every backend whose times are true ones, and when something is outstanding without DDP."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netprof.analysis.events.collectives import Collectives, FoundCollectives, find_collectives
from netprof.analysis.events.horovod import horovod_outstanding, horovod_transfers
from netprof.analysis.tables.columns import concatenate
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.analysis.tables.marks import Marks


def all_collectives(marks: Marks) -> FoundCollectives:
    """Return the collectives whose begin and end were seen, of gloo in PyTorch and in Horovod, by begin."""
    found = find_collectives(marks)
    both = concatenate(Collectives, [found.collectives, horovod_transfers(marks)])
    return FoundCollectives(both.where(np.argsort(both.begin_ns, kind="stable")), found.unpaired)


def outstanding_without_ddp(marks: Marks, collectives: Collectives, stepped: Sequence[int]) -> dict[int, Intervals]:
    """Return when something is outstanding in processes without DDP: any collective, or what Horovod was given."""
    times = {}
    for pid in stepped:
        own = collectives.where(collectives.pid == pid)
        times[pid] = merge(own.begin_ns, own.end_ns)
    for pid, given in horovod_outstanding(marks).items():
        times[pid] = times[pid] | given if pid in times else given
    return times
