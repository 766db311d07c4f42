"""A job that stands for the whole recording, or for what is left of it: which rank is where, and who is waited for.

Where steps were seen before, `stall` tells of them; this needs no mark at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.declared import Column, json_of, table
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.collectives.communicators import communicators_of
from netprof.analysis.findings.names import rank_or_pid
from netprof.analysis.findings.stragglers.thread_time import watched, words_of
from netprof.analysis.form import Part
from netprof.analysis.section import Section
from netprof.analysis.tables.intervals import interval
from netprof.analysis.tables.process_counts import RECEIVED_BEFORE, SENT_BEFORE, UNACKED, UNREAD
from netprof.schema import RECEIVE, TRANSMIT, BlockedIn, MarkKind
from netprof.units import duration, listed, size

LEAST_NS = 1_500_000_000
"""What stands for less may go on in the next moment."""
LEAST_SEEN_NS = 700_000_000
"""So long it has to be seen to stand, if TCP says that nothing has moved for much longer."""
SILENT_NS = 3_000_000_000
"""For so long."""
_STILL = 0.95
"""Share of the time in which a thread that stands is in one thing."""
_HARDLY_BPS = 2_000.0
"""Bytes a second of heartbeats."""
_LOCAL_STEPS = 3
_WAITS = (BlockedIn.SOCKET, BlockedIn.POLL, BlockedIn.LOCK)
_NAMED = 4


@dataclass(frozen=True)
class Standing:
    """One rank: what it is blocked in (None: it runs), and until when it sent and received data, ns (0: unknown).

    Of what it had sent by the attach `unacked_bytes` are not acknowledged, and it has not read `unread_bytes`.
    """

    pid: int
    rank: int | None
    kind: BlockedIn | None
    sent_ns: int = 0
    received_ns: int = 0
    unacked_bytes: int = 0
    unread_bytes: int = 0
    stopped: bool = False

    @property
    def waits(self) -> bool:
        """Whether it may be waiting for another rank."""
        return self.kind in _WAITS

    @property
    def does(self) -> str:
        """What it does, for a person."""
        if self.stopped:
            return "stopped (state T)"
        return "computing" if self.kind is None else words_of(self.kind)

    @property
    def outstanding(self) -> str:
        """What of its data was under way when netprof attached; "" for nothing."""
        amounts = ((self.unacked_bytes, "not acknowledged"), (self.unread_bytes, "not read"))
        return ", ".join(f"{size(amount)} {what}" for amount, what in amounts if amount)

    @property
    def moved_ns(self) -> int:
        """When it last sent or received data; 0: unknown."""
        return max(self.sent_ns, self.received_ns)

    @property
    def name(self) -> str:
        """How it is called."""
        return rank_or_pid(self.rank, self.pid)


@dataclass(frozen=True)
class Hang:
    """Nothing was sent, received or done since `since_ns`, or since before the recording began.

    `is_known` says that TCP tells since when, also of the time before. `collective` is what NCCL's RAS tells of it.
    """

    since_ns: int
    for_ns: int
    from_begin: bool
    ranks: tuple[Standing, ...]
    is_known: bool = False
    collective: str = ""

    @property
    def sentence(self) -> str:
        """What is known of it."""
        since = " since before the recording began" if self.from_begin and not self.is_known else ""
        at_least = "at least " if self.from_begin and not self.is_known else ""
        lasted = f"stalled for {at_least}{duration(self.for_ns / 1e9)}{since}"
        told = f"; {self.collective}" if self.collective else ""
        absent = [each for each in self.ranks if not each.waits]
        waiting = [each for each in self.ranks if each.waits]
        if absent:
            who = listed([f"{each.name} is {each.does}" for each in absent], _NAMED)
            wait = "waits" if len(waiting) == 1 else "wait"
            return f"{lasted}: {who}; {_names(waiting)} {wait} for another rank, and no byte moves{told}"
        return f"{lasted}: every rank waits ({waiting[0].does}), and no byte moves{told}"

    @property
    def advice(self) -> str:
        """What to do next."""
        absent = [each for each in self.ranks if not each.waits]
        if stopped := [each for each in absent if each.stopped]:
            return f"let {_names(stopped)} run on, and find what stopped it: kill -CONT {stopped[0].pid}"
        if absent:
            return f"look at {_names(absent)}: netprof attach --stacks, or py-spy dump --pid {absent[0].pid}"
        return (
            "compare the stacks of two ranks (py-spy dump --pid PID): they wait for different collectives, for a rank "
            "that is not recorded, or the network between them is cut"
        )


def _names(ranks: Sequence[Standing]) -> str:
    return listed([each.name for each in ranks], _NAMED)


def find_hang(evidence: Evidence) -> Hang | None:
    """Return the hang in which a recording with hardly any step ends; None where the job moves."""
    stopped = evidence.process_counts.stopped_last()  # a thread that is stopped is never seen to block
    pids = sorted({*watched(evidence), *stopped})
    if len(pids) < 2 or not len(evidence.recording.end_ns) or not evidence.piece.is_last:
        return None
    if len(evidence.iterations) > _LOCAL_STEPS * len(pids):
        return None
    begin_ns, end_ns = int(evidence.recording.begin_ns[0]), int(evidence.recording.end_ns[-1])
    moved_ns = max([begin_ns, *(_moved_until(pid, evidence) for pid in pids)])
    from_begin = moved_ns == begin_ns
    before_ns = min(max((_told_by_tcp(pid, evidence)[0] for pid in pids), default=0), begin_ns) if from_begin else 0
    if end_ns - moved_ns < (LEAST_SEEN_NS if before_ns and end_ns - before_ns > SILENT_NS else LEAST_NS):
        return None
    ranks = tuple(_standing(pid, moved_ns, end_ns, evidence) for pid in pids)
    if not any(each.waits for each in ranks):
        return None
    since_ns = before_ns or moved_ns
    return Hang(since_ns, end_ns - since_ns, from_begin, ranks, before_ns > 0, _told_by_ras(evidence))


def _told_by_tcp(pid: int, evidence: Evidence) -> tuple[int, int, int]:
    """Return when a process had last moved data, sent it, and received it, when it was first looked at; 0: unknown."""
    looks = (evidence.process_counts.first(pid, name) for name in (SENT_BEFORE, RECEIVED_BEFORE))
    sent_ns, received_ns = (0 if look is None else look[0] - look[1] for look in looks)
    return max(sent_ns, received_ns), sent_ns, received_ns


def _told_by_ras(evidence: Evidence) -> str:
    """Return what NCCL's RAS says of the communicators: who has asked for fewer collectives than the others."""
    behind = [each for each in communicators_of(evidence) if each.behind]
    if not behind:
        return ""
    one = behind[0]
    ranks = ", ".join(map(str, one.behind[:_NAMED]))
    others = f"{one.most_collectives} by others" if one.most_collectives is not None else "others"
    counts = {member.rank: member.collectives for member in one.members}
    own = counts.get(one.behind[0])
    return (
        f"NCCL's RAS: of communicator {one.name} rank{'s' if len(one.behind) > 1 else ''} {ranks} asked for fewer "
        f"collectives{f' ({own}; {others})' if own is not None else ''}"
    )


def _moved_until(pid: int, evidence: Evidence) -> int:
    """Return when the process last did a step of training, or moved more than heartbeats."""
    marks = evidence.marks
    last = int(marks.time_ns[(marks.pid == pid) & (marks.kind < MarkKind.PROCESS_FORK)].max(initial=0))
    for way in (TRANSMIT, RECEIVE):
        bins = evidence.links.lanes.of_process(pid, way)
        if bins is None or not len(bins):
            continue
        second = bins.begin_ns // 10**9
        seconds, index = np.unique(second, return_inverse=True)
        lively = seconds[np.bincount(index, weights=bins.payload_bytes) > _HARDLY_BPS]
        if len(lively):
            last = max(last, int(bins.begin_ns[second == lively[-1]][-1]) + bins.bin_ns)
    return last


def _standing(pid: int, since_ns: int, end_ns: int, evidence: Evidence) -> Standing:
    span = interval(since_ns, end_ns)
    blocked = {kind: (times & span).total_ns for kind, times in evidence.blocked.get(pid, {}).items()}
    waits_ns = sum(blocked.get(kind, 0) for kind in _WAITS)
    most: BlockedIn | None = max(blocked, key=lambda kind: blocked[kind], default=None)
    little = sum(blocked.values()) < _STILL / 2 * span.total_ns
    stopped = pid in evidence.process_counts.stopped_last()
    if most is not None and (stopped or little or (most in _WAITS and waits_ns < _STILL * span.total_ns)):
        most = None
    _, sent_ns, received_ns = _told_by_tcp(pid, evidence)
    looks = (evidence.process_counts.first(pid, name) for name in (UNACKED, UNREAD))
    unacked, unread = (0 if look is None else look[1] for look in looks)
    return Standing(pid, evidence.ranks.get(pid), most, sent_ns, received_ns, unacked, unread, stopped)


def _document(found: Hang | None) -> dict[str, Any]:
    if found is None:
        return {"hang": None}
    keys = "rank pid state=does waits unacked_bytes unread_bytes"
    ranks = [
        json_of(each, keys, sent_until_ns=each.sent_ns or None, received_until_ns=each.received_ns or None)
        for each in found.ranks
    ]
    return {"hang": json_of(found, "since_ns seconds=for_ns advice", collective=found.collective or None, ranks=ranks)}


def _parts(found: Hang | None) -> Sequence[Part]:
    if found is None:
        return ()
    end_ns = found.since_ns + found.for_ns
    columns = (
        Column("", "name"),
        Column("pid", "pid", goes=1),
        Column("is", "does", left=True),
        *(Column(way, f"{way}_ns", lambda ns: _ago(ns, end_ns)) for way in ("sent", "received")),
        Column("outstanding", "outstanding", left=True),
    )
    return [Part("Hang", f"for {duration(found.for_ns / 1e9)}", [table(columns, found.ranks)])]


def _ago(at_ns: int, end_ns: int) -> str:
    return f"{duration((end_ns - at_ns) / 1e9)} ago" if at_ns else ""


HANG = Section(
    "hang",
    lambda analysis: find_hang(analysis.evidence),
    ("blocked", "marks", "wire", "counters", "nccl_ranks"),
    _document,
    _parts,
    merge=lambda parts, whole: parts[-1],
)
