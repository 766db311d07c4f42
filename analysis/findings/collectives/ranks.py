"""Each rank's own numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.declared import Column, added, at, by_key, json_of, table
from netprof.analysis.events.iterations import Dropped
from netprof.analysis.events.typical import Durations, durations
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.collectives.bandwidth import Bandwidths, merge_bandwidths, rank_bandwidths
from netprof.analysis.findings.iterations.iterations import ITERATIONS, durations_document
from netprof.analysis.findings.names import rank_or_pid
from netprof.analysis.form import Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import by_pid
from netprof.analysis.tables.flow_table import LinkKey
from netprof.schema import TRANSMIT
from netprof.units import duration, rate, ratio, size

_LAST = 1 << 31  # behind every rank
_BRIEF = 64


@dataclass(frozen=True)
class RankSummary:
    """One process of the job that has iterations, collectives or traffic; `rank` is None where nothing says it.

    `sent_bytes` is what the process sends, by device. `stepped` says that its
    iterations are told by optimizer steps, `told` that ranks are what communicators say,
    `only_launch` that what it launches is not seen to be done, so that phases are unknown. Where several hosts recorded
    the job, `host` is the process's and `own_pid` its number there: two hosts may have the same.
    """

    pid: int
    rank: int | None
    sent_bytes: Mapping[LinkKey, int]
    durations: Durations | None
    dropped: Dropped
    bandwidths: Bandwidths
    stepped: bool = False
    told: bool = False
    only_launch: bool = False
    host: str | None = None
    own_pid: int | None = None

    @property
    def link(self) -> LinkKey | None:
        """The device that carries most of what the process sends; None if it sends nothing."""
        return max(self.sent_bytes, key=lambda link: self.sent_bytes[link], default=None)

    @property
    def tx_bytes(self) -> int:
        """What the process sends."""
        return sum(self.sent_bytes.values())

    @property
    def label(self) -> str:
        """Its name for a person."""
        name = rank_or_pid(self.rank, self.own_pid or self.pid)
        return name if self.host is None else f"{name} on {self.host}"


def _conclude(analysis: Analysis) -> tuple[RankSummary, ...]:
    evidence = analysis.evidence
    active = np.unique(np.concatenate([evidence.collectives.pid, evidence.posted.pid])).tolist()
    seen = {*evidence.found_iterations.dropped, *active, *evidence.links.lanes.pids}
    sent = evidence.sent_bytes
    taken = {pid: durations(times) for pid, times in by_pid(evidence.iteration_times)}
    return tuple(
        _summarize(pid, evidence, sent.get(pid, {}), taken.get(pid)) for pid in sorted(seen, key=_order(evidence.ranks))
    )


def _order(ranks: Mapping[int, int]) -> Callable[[int], tuple[int, int]]:
    return lambda pid: (ranks.get(pid, _LAST), pid)


def _summarize(pid: int, evidence: Evidence, sent_bytes: Mapping[LinkKey, int], taken: Durations | None) -> RankSummary:
    iterations = evidence.iterations.of_pid(pid)
    collectives, posted = (each.of_pid(pid) for each in (evidence.together, evidence.posted))
    if len(iterations) == 0:
        collectives, posted = evidence.owned(collectives), evidence.owned(posted)
    sent, host = evidence.links.lanes.of_process(pid, TRANSMIT), evidence.host_of.get(pid)
    return RankSummary(
        pid=pid,
        rank=evidence.ranks.get(pid),
        sent_bytes=sent_bytes,
        durations=taken,
        dropped=evidence.dropped.get(pid, Dropped()),
        bandwidths=rank_bandwidths(collectives, iterations, evidence.world_size, sent, posted),
        stepped=pid in evidence.found_iterations.stepped,
        told=evidence.ranks_from_communicators,
        only_launch=pid in evidence.only_launch,
        host=None if host is None else host.name,
        own_pid=None if host is None else host.pids[pid],
    )


def _merge(parts: Sequence[Sequence[RankSummary]], whole: Analysis) -> tuple[RankSummary, ...]:
    taken = {pid: durations(times) for pid, times in by_pid(whole.of(ITERATIONS).times)}
    ranks = by_key(parts, lambda rank: rank.pid)
    return tuple(_in_one(ranks[pid], taken.get(pid)) for pid in sorted(ranks, key=_order(whole.evidence.ranks)))


def _in_one(parts: Sequence[RankSummary], taken: Durations | None) -> RankSummary:
    sent: Counter[LinkKey] = Counter()
    for part in parts:
        sent.update(part.sent_bytes)
    return replace(
        parts[-1],
        **added(parts, "dropped"),
        sent_bytes=sent,
        durations=taken,
        bandwidths=merge_bandwidths([part.bandwidths for part in parts]),
        stepped=any(part.stepped for part in parts),
        told=any(part.told for part in parts),
        only_launch=all(part.only_launch for part in parts if part.durations),
    )


def _rank(rank: RankSummary) -> dict[str, Any]:
    count = rank.durations.count if rank.durations else None
    return {
        **json_of(rank, "rank pid"),
        **(json_of(rank, "host own_pid") if rank.host is not None else {}),
        "device": rank.link.device if rank.link else None,
        "iterations": durations_document(
            count, rank.durations, rank.dropped, forward_known=not rank.stepped, phases_known=not rank.only_launch
        ),
        "collectives": json_of(rank.bandwidths, _KEYS),
        "tx_bytes": rank.tx_bytes,
    }


_KEYS = (
    "count bytes algorithm_bandwidth_bps bus_bandwidth_bps median_algorithm_bandwidth_bps median_bus_bandwidth_bps "
    "wire_bytes payload_bytes algorithm_bytes running_s wire_to_algorithm_ratio payload_to_algorithm_ratio"
)


def _parts(ranks: Sequence[RankSummary]) -> Sequence[Part]:
    shown = [rank for rank in ranks if rank.durations or rank.bandwidths.count]
    grid = table(_COLUMNS, shown, brief=_BRIEF)
    grid = grid if any(rank.host for rank in shown) else grid.without({"host"})
    return [Part("Ranks", bodies=[grid])] if len(shown) > 1 else ()


_COLUMNS = (
    Column("rank", "rank", none="?"),
    Column("host", "host", none="", left=True),
    Column("pid", lambda rank: rank.own_pid or rank.pid, goes=4),
    Column("iterations", "durations.count", none="-", goes=5),
    Column("median", "durations.median_s", duration, "-"),
    Column("p90", "durations.p90_s", duration, "-", goes=2),
    Column("exposed", lambda rank: None if rank.only_launch else at(rank, _EXPOSED), duration, "-"),
    Column("bus bandwidth", "bandwidths.bus_bandwidth_bps", rate),
    Column("wire / algorithm", "bandwidths.wire_to_algorithm_ratio", ratio, goes=3),
    Column("sent", "tx_bytes", size, goes=1),
)
_EXPOSED = "durations.phases.exposed_communication"


def _notes(ranks: Sequence[RankSummary]) -> Iterator[str]:
    if any(rank.told for rank in ranks):
        yield (
            "no environment tells all ranks: they are the processes' numbers in the largest communicator (--rank "
            "PID=N sets others)"
        )
    named = Counter(rank.rank for rank in ranks if rank.rank is not None and rank.durations)
    if any(count > 1 for count in named.values()):
        yield "several training processes say that they are the same rank: a restarted job, or two jobs in one trace"
    counts = {rank.durations.count for rank in ranks if rank.durations}
    if len(counts) > 1:
        yield f"the ranks' iteration counts differ: between {min(counts)} and {max(counts)} whole ones"


RANKS = Section(
    "ranks",
    _conclude,
    ("marks", "wire", "flows"),
    lambda ranks: {"ranks": [_rank(rank) for rank in ranks]},
    _parts,
    _notes,
    merge=_merge,
)
