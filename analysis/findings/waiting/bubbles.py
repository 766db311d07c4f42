"""The bubbles of a pipeline, stage by stage: each rank's waiting for messages, by the rank that sends them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.declared import Column, added, by_key, json_of, share_of, table
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.names import name_on_host
from netprof.analysis.form import Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import UNKNOWN, Int64
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.schema import CollectiveKind
from netprof.units import percent

_MATTERS = 0.01
"""Share of a rank's time below which its waiting for another one is not worth a row."""
_SHOWN = 8


@dataclass(frozen=True)
class Bubble:
    """How long a rank waits for messages from or to another one, in `window_ns` of whole iterations.

    In `late_ns` of that the other one has not come to its end of the message yet.
    """

    pid: int
    name: str
    rank: int | None
    peer: str
    peer_rank: int | None
    waits_ns: int
    late_ns: int
    window_ns: int

    @property
    def share(self) -> float:
        """How long it waits, as a share of its time."""
        return share_of(self.waits_ns, self.window_ns) or 0.0

    @property
    def late_share(self) -> float:
        """The same of the time in which the other one has not come."""
        return share_of(self.late_ns, self.window_ns) or 0.0


def _bubbles(evidence: Evidence) -> Iterator[Bubble]:
    messages, members = evidence.exchanges.collectives, evidence.exchanges.members
    waited = (messages.kind == CollectiveKind.SEND) & (members.event != UNKNOWN) & (messages.posted_ns != UNKNOWN)
    rows = np.flatnonzero(waited & (messages.end_ns != UNKNOWN))
    peer = _peers(members.event[rows], messages.pid[rows])
    rows, peer = rows[peer != UNKNOWN], peer[peer != UNKNOWN]
    pid = messages.pid[rows]
    for waiter in np.unique(pid).tolist():
        iterations = evidence.iterations.where(evidence.iterations.pid == waiter)
        window = merge(iterations.begin_ns, iterations.end_ns)
        for peer_pid in np.unique(peer[pid == waiter]).tolist():
            mine = rows[(pid == waiter) & (peer == peer_pid)]
            begin_ns, end_ns = messages.posted_ns[mine], messages.end_ns[mine]
            come_ns = np.where(members.last_pid[mine] == peer_pid, np.minimum(members.ready_ns[mine], end_ns), begin_ns)
            yield Bubble(
                waiter,
                name_on_host(waiter, evidence, "process"),
                evidence.ranks.get(waiter),
                name_on_host(peer_pid, evidence, "process"),
                evidence.ranks.get(peer_pid),
                (_spans(begin_ns, end_ns) & window).total_ns,
                (_spans(begin_ns, come_ns) & window).total_ns,
                window.total_ns,
            )


def _spans(begin_ns: Int64, end_ns: Int64) -> Intervals:
    some = end_ns > begin_ns
    return merge(begin_ns[some], end_ns[some])


def _peers(event: Int64, pid: Int64) -> Int64:
    """Return the process at the other end of each message; UNKNOWN where only one end was seen."""
    order = np.argsort(event, kind="stable")
    peer = np.full(len(event), UNKNOWN)
    pairs = np.flatnonzero(event[order[1:]] == event[order[:-1]])
    peer[order[pairs]], peer[order[pairs + 1]] = pid[order[pairs + 1]], pid[order[pairs]]
    return peer


def _merge(parts: Sequence[Sequence[Bubble]], whole: Analysis) -> tuple[Bubble, ...]:
    """Put pieces of a recording together: a rank's time is that of all pieces in which it exchanges messages."""
    by_pair, whole_ns = by_key(parts, lambda each: (each.pid, each.peer)), Counter[int]()
    for part in parts:
        whole_ns.update({each.pid: each.window_ns for each in part})
    sums = ((bubbles[0], added(bubbles, "waits_ns late_ns")) for _, bubbles in sorted(by_pair.items()))
    return tuple(replace(one, **each, window_ns=whole_ns[one.pid]) for one, each in sums)


def _parts(bubbles: Sequence[Bubble]) -> Sequence[Part]:
    known = sorted((each for each in bubbles if each.share >= _MATTERS), key=lambda each: -each.waits_ns)
    return [Part("Bubbles", "waiting for messages", [table(_COLUMNS, known, brief=_SHOWN)])] if known else ()


_KEYS = "pid rank for_rank=peer_rank seconds=waits_ns share late_s late_share"
_COLUMNS = (
    Column("rank", "name"),
    Column("waits for", "peer", left=True),
    Column("of its time", "share", percent),
    Column("until that comes", "late_share", percent),
)

BUBBLES = Section(
    "bubbles",
    lambda analysis: tuple(_bubbles(analysis.evidence)),
    ("marks",),
    lambda bubbles: {"bubbles": [json_of(each, _KEYS) for each in bubbles]},
    _parts,
    merge=_merge,
)
