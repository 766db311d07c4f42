"""Who is who: the processes of the job, their ranks, and each rank's own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.iterations import Dropped, FoundIterations
from netprof.analysis.events.typical import Durations, durations
from netprof.analysis.findings.bandwidth import Bandwidths, rank_bandwidths
from netprof.analysis.tables.flow_table import LaneKey, LinkKey
from netprof.analysis.wire.bins import Bins, combine
from netprof.model import Target
from netprof.schema import TRANSMIT, UNKNOWN_RANK


@dataclass(frozen=True)
class RankSummary:
    """One process of the job that has iterations, collectives or traffic; `rank` is None where nothing says it.

    `link` is the device that carries most of what the process sends, None if it sends nothing.
    """

    pid: int
    rank: int | None
    link: LinkKey | None
    durations: Durations | None
    dropped: Dropped
    bandwidths: Bandwidths
    tx_bytes: int


def ranks_by_pid(targets: Sequence[Target]) -> dict[int, int]:
    """Return the rank of each process that has one."""
    return {target.pid: target.rank for target in targets if target.rank != UNKNOWN_RANK}


def world_size(targets: Sequence[Target]) -> int | None:
    """Return the number of ranks of the job, None where nothing says it or the processes disagree."""
    stated = {target.world_size for target in targets if target.world_size is not None}
    return stated.pop() if len(stated) == 1 else None


def summarize_ranks(
    found: FoundIterations,
    collectives: Collectives,
    posted: Collectives,
    lanes: Mapping[tuple[LaneKey, int], Bins],
    targets: Sequence[Target],
) -> tuple[RankSummary, ...]:
    """Summarise every process with marks or traffic, by rank and pid; `posted` are collectives without an end."""
    ranks = ranks_by_pid(targets)
    seen = {*found.dropped, *_pids(collectives), *_pids(posted), *(key.pid for key, _ in lanes)}
    size = world_size(targets)
    order = sorted(seen, key=lambda pid: (ranks.get(pid, 1 << 31), pid))
    return tuple(_summarize(pid, ranks.get(pid), found, collectives, posted, lanes, size) for pid in order)


def _pids(collectives: Collectives) -> list[int]:
    pids: list[int] = np.unique(collectives.pid).tolist()
    return pids


def _summarize(
    pid: int,
    rank: int | None,
    found: FoundIterations,
    collectives: Collectives,
    posted: Collectives,
    lanes: Mapping[tuple[LaneKey, int], Bins],
    size: int | None,
) -> RankSummary:
    own = found.iterations.where(found.iterations.pid == pid)
    sent = {key.link: bins for (key, direction), bins in lanes.items() if key.pid == pid and direction == TRANSMIT}
    amounts = {link: int(bins.wire_bytes.sum(dtype=np.int64)) for link, bins in sent.items()}
    busiest = max(amounts, key=lambda link: amounts[link]) if amounts else None
    return RankSummary(
        pid=pid,
        rank=rank,
        link=busiest,
        durations=durations(own),
        dropped=found.dropped.get(pid, Dropped()),
        bandwidths=rank_bandwidths(
            collectives.where(collectives.pid == pid),
            own,
            size,
            combine(list(sent.values())),
            posted.where(posted.pid == pid),
        ),
        tx_bytes=sum(amounts.values()),
    )
