"""The bubbles of a pipeline, stage by stage: each rank's waiting for messages, by the rank that sends them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.blame import process_name
from netprof.analysis.form import Grid, Part
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


def _conclude(analysis: Analysis) -> tuple[Bubble, ...]:
    return tuple(_bubbles(analysis.evidence))


def _bubbles(evidence: Evidence) -> Iterator[Bubble]:
    messages, members = evidence.exchanges.collectives, evidence.exchanges.members
    waited = (messages.kind == CollectiveKind.SEND) & (members.event != UNKNOWN) & (messages.posted_ns != UNKNOWN)
    rows = np.flatnonzero(waited & (messages.end_ns != UNKNOWN))
    peer = _peers(members.event[rows], messages.pid[rows])
    rows, peer = rows[peer != UNKNOWN], peer[peer != UNKNOWN]
    pid = messages.pid[rows]
    for own in np.unique(pid).tolist():
        iterations = evidence.iterations.where(evidence.iterations.pid == own)
        window = merge(iterations.begin_ns, iterations.end_ns)
        for other in np.unique(peer[pid == own]).tolist():
            mine = rows[(pid == own) & (peer == other)]
            begin_ns, end_ns = messages.posted_ns[mine], messages.end_ns[mine]
            come_ns = np.where(members.last_pid[mine] == other, np.minimum(members.ready_ns[mine], end_ns), begin_ns)
            yield Bubble(
                own,
                process_name(own, evidence),
                evidence.ranks.get(own),
                process_name(other, evidence),
                evidence.ranks.get(other),
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
    found: dict[tuple[int, str], list[Bubble]] = {}
    for each in (one for part in parts for one in part):
        found.setdefault((each.pid, each.peer), []).append(each)
    whole_ns: dict[int, int] = {}
    for part in parts:
        for pid, window_ns in {each.pid: each.window_ns for each in part}.items():
            whole_ns[pid] = whole_ns.get(pid, 0) + window_ns
    return tuple(_sum(own, whole_ns[pid]) for (pid, _), own in sorted(found.items()))


def _sum(own: Sequence[Bubble], window_ns: int) -> Bubble:
    one = own[0]
    waits_ns, late_ns = sum(each.waits_ns for each in own), sum(each.late_ns for each in own)
    return Bubble(one.pid, one.name, one.rank, one.peer, one.peer_rank, waits_ns, late_ns, window_ns)


def _share(ns: int, each: Bubble) -> float:
    return ns / each.window_ns if each.window_ns else 0.0


def _document(found: Sequence[Bubble]) -> Mapping[str, Any]:
    return {
        "bubbles": [
            {
                "pid": each.pid,
                "rank": each.rank,
                "for_rank": each.peer_rank,
                "seconds": each.waits_ns / 1e9,
                "share": _share(each.waits_ns, each),
                "late_s": each.late_ns / 1e9,
                "late_share": _share(each.late_ns, each),
            }
            for each in found
        ]
    }


def _parts(found: Sequence[Bubble]) -> Sequence[Part]:
    known = [each for each in found if _share(each.waits_ns, each) >= _MATTERS]
    if not known:
        return ()
    rows = [
        (each.name, each.peer, percent(_share(each.waits_ns, each)), percent(_share(each.late_ns, each)))
        for each in sorted(known, key=lambda each: -each.waits_ns)
    ]
    headings = ("rank", "waits for", "of its time", "until that comes")
    return [Part("Bubbles", "waiting for messages", [Grid(headings, rows, frozenset({"waits for"}), brief=_SHOWN)])]


BUBBLES = Section("bubbles", _conclude, ("marks",), _document, _parts, merge=_merge)
