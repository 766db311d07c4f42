"""What the job communicates by, whatever its framework: collectives of every backend, by kind, and their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.events.collectives import Collectives, FoundCollectives, find_collectives
from netprof.analysis.events.horovod import HorovodSummary, horovod_outstanding, horovod_summaries, horovod_transfers
from netprof.analysis.events.nccl import NcclSummary, nccl_operations, summarize_nccl
from netprof.analysis.events.posted import all_posted
from netprof.analysis.findings.collective_kinds import KindSummary, summarize_kinds
from netprof.analysis.tables.columns import concatenate
from netprof.analysis.tables.flow_table import LaneKey
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.analysis.tables.marks import Marks
from netprof.analysis.wire.bins import Bins, combine
from netprof.schema import TRANSMIT, MarkKind


@dataclass(frozen=True)
class Communication:
    """What each backend was seen to do; empty where it was not seen.

    `reduce_scatters_asked` are those that gloo ran as all-reduces, which is what `kinds` counts them as; of the process
    with the most.
    """

    kinds: tuple[KindSummary, ...] = ()
    horovod: tuple[HorovodSummary, ...] = ()
    nccl: tuple[NcclSummary, ...] = ()
    reduce_scatters_asked: int = 0


def all_collectives(marks: Marks, world_size: int | None = None) -> FoundCollectives:
    """Return the collectives whose begin and end were seen, of every backend, by begin.

    `world_size` is the number of ranks of the job.
    """
    found = find_collectives(marks, world_size)
    both = concatenate(Collectives, [found.collectives, horovod_transfers(marks)])
    return replace(found, collectives=both.where(np.argsort(both.begin_ns, kind="stable")))


def outstanding_without_ddp(marks: Marks, collectives: Collectives, stepped: Sequence[int]) -> dict[int, Intervals]:
    """Return when something is outstanding in processes without DDP: any collective, or what Horovod was given."""
    times = {}
    for pid in stepped:
        own = collectives.where(collectives.pid == pid)
        times[pid] = merge(own.begin_ns, own.end_ns)
    for pid, given in horovod_outstanding(marks).items():
        times[pid] = times[pid] | given if pid in times else given
    return times


def summarize_communication(
    marks: Marks, lanes: Mapping[tuple[LaneKey, int], Bins], world_size: int | None, end_ns: int
) -> Communication:
    """Summarise what every backend did over the whole recording, which ends at `end_ns`."""
    operations = nccl_operations(marks, world_size)
    found = all_collectives(marks, world_size)
    sent = {pid: _sent(lanes, pid) for pid in np.unique(operations.pid).tolist()}
    return Communication(
        kinds=summarize_kinds(found.collectives, all_posted(marks, found), operations, world_size),
        horovod=horovod_summaries(marks),
        nccl=summarize_nccl(operations, marks, sent, end_ns),
        reduce_scatters_asked=_asked(marks),
    )


def _asked(marks: Marks) -> int:
    _, counts = np.unique(marks.pid[marks.kind == MarkKind.REDUCE_SCATTER_ASKED], return_counts=True)
    return int(counts.max(initial=0))


def _sent(lanes: Mapping[tuple[LaneKey, int], Bins], pid: int) -> Bins | None:
    return combine([bins for (key, direction), bins in lanes.items() if key.pid == pid and direction == TRANSMIT])
