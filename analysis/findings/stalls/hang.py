"""A job that stands for the whole recording, or for what is left of it: which rank is where, and who is waited for.

Where steps were seen before, `stall` tells of them; this needs no mark at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.declared import Column, json_of, table
from netprof.analysis.events.exits import Exit, find_exits, still_missed
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.collectives.communicators import communicators_of
from netprof.analysis.findings.names import name_on_host, own_pid
from netprof.analysis.findings.stalls.after_exit import after_exit
from netprof.analysis.findings.stragglers.thread_time import BLOCKED_WORDS, watched
from netprof.analysis.form import Part
from netprof.analysis.section import Section
from netprof.analysis.tables.intervals import Intervals, interval, merge, union
from netprof.analysis.tables.process_counts import RECEIVED_BEFORE, SENT_BEFORE, UNACKED, UNREAD
from netprof.schema import RECEIVE, TRANSMIT, BlockedIn, MarkKind
from netprof.units import duration, listed, size

LEAST_NS = 1_500_000_000
"""What stands for less may go on in the next moment."""
LEAST_SEEN_NS = 700_000_000
"""So long it has to be seen to stand, if TCP says that nothing has moved for much longer."""
SILENT_NS = 3_000_000_000
"""For so long."""
_LONGER = 1.5
"""Times as long as nothing moved before in between: a step that computes for long is no hang."""
_STILL = 0.95
"""Share of the time in which a thread that stands is in one thing."""
_HARDLY_BPS = 2_000.0
"""Bytes a second of heartbeats."""
_ATTACH_NS = 60_000_000_000
"""Hosts begin to record one after the other: so long before the begin a look is of that."""
_LOCAL_STEPS = 3
_WAITS = (BlockedIn.SOCKET, BlockedIn.POLL, BlockedIn.LOCK)
_NAMED = 4


@dataclass(frozen=True)
class Standing:
    """One rank: what it is blocked in (None: it runs), and until when it sent and received data, ns (0: unknown).

    Of what it had sent by the attach `unacked_bytes` are not acknowledged, and it has not read `unread_bytes`. `exit`
    says how it ended, if it has. `own_pid` is its number on its host, and `name` how it is called.
    """

    pid: int
    rank: int | None
    name: str
    own_pid: int
    kind: BlockedIn | None
    sent_ns: int = 0
    received_ns: int = 0
    unacked_bytes: int = 0
    unread_bytes: int = 0
    stopped: bool = False
    exit: Exit | None = None

    @property
    def waits(self) -> bool:
        """Whether it may be waiting for another rank."""
        return self.kind in _WAITS and self.exit is None

    @property
    def does(self) -> str:
        """What it does, for a person."""
        if self.exit is not None:
            return self.exit.ending
        if self.stopped:
            return "stopped (state T)"
        return "computing" if self.kind is None else BLOCKED_WORDS[self.kind]

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
    def sentence(self) -> str:
        """The same with its name."""
        return f"{self.name} {'' if self.exit is not None else 'is '}{self.does}"


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
    def headline(self) -> str:
        """Who does not wait, in a few words."""
        return f"STALLED for {self._lasted}: {self._who}"

    @property
    def sentence(self) -> str:
        """What is known of it."""
        since = " since before the recording began" if self.from_begin and not self.is_known else ""
        by_ras = f"; {self.collective}" if self.collective else ""
        waiting = [each for each in self.ranks if each.waits]
        wait = ""
        if len(waiting) < len(self.ranks):
            wait = f"; {_names(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for another rank"
        return f"stalled for {self._lasted}{since}: {self._who}{wait}, and no byte moves{by_ras}"

    @property
    def _lasted(self) -> str:
        return f"{'at least ' if self.from_begin and not self.is_known else ''}{duration(self.for_ns / 1e9)}"

    @property
    def _who(self) -> str:
        absent = [each.sentence for each in self.ranks if not each.waits]
        does = dict.fromkeys(each.does for each in self.ranks)
        return listed(absent, _NAMED) if absent else f"every rank waits ({', '.join(does)})"

    @property
    def advice(self) -> str:
        """What to do next."""
        absent = [each for each in self.ranks if not each.waits]
        if ended := [each for each in absent if each.exit is not None]:
            return after_exit(_names(ended), ended[0].exit).text
        if stopped := [each for each in absent if each.stopped]:
            return f"let {_names(stopped)} run on, and find what stopped it: kill -CONT {stopped[0].own_pid}"
        if absent:
            return f"look at {_names(absent)}: netprof attach --stacks, or py-spy dump --pid {absent[0].own_pid}"
        return (
            "compare the stacks of two ranks (py-spy dump --pid PID): they wait for different collectives, for a rank "
            "that is not recorded, or the network between them is cut"
        )


def _names(ranks: Sequence[Standing]) -> str:
    return listed([each.name for each in ranks], _NAMED)


@dataclass(frozen=True)
class Still:
    """What a piece of a recording tells of a hang: whether its processes `pids` do steps or move bytes.

    They first did at `began_ns` and last at `moved_ns` (0: never), in between for `longest_ns` not; and by TCP last at
    `tcp_moved_ns` when first looked at. `ranks` is what they do since, of the piece in which the recording ends, with
    what NCCL's RAS tells of a `collective`.
    """

    pids: tuple[int, ...]
    begin_ns: int
    end_ns: int
    iterations: int
    moved_ns: int
    tcp_moved_ns: int
    ranks: tuple[Standing, ...] = ()
    collective: str = ""
    began_ns: int = 0
    longest_ns: int = 0


def find_hang(evidence: Evidence) -> Hang | None:
    """Return the hang in which a recording with hardly any step ends; None where the job moves."""
    return _hang(_look(evidence))


def _look(evidence: Evidence) -> tuple[Still, ...]:
    """Return what the evidence tells of a hang; nothing where no time was recorded."""
    if not len(evidence.recording.end_ns):
        return ()
    begin_ns, end_ns = int(evidence.recording.begin_ns[0]), int(evidence.recording.end_ns[-1])
    stopped = evidence.process_counts.stopped_last()  # a thread that is stopped is never seen to block
    iterations, ended, every = evidence.iterations, find_exits(evidence.marks), sorted({*watched(evidence), *stopped})
    missed = still_missed(evidence.marks, every, iterations.pid, iterations.done_ns)
    pids = tuple(pid for pid in every if pid not in ended or pid in missed)
    steps = len(iterations)
    if steps > _LOCAL_STEPS * len(pids):
        return (Still(pids, begin_ns, end_ns, steps, moved_ns=end_ns, tcp_moved_ns=0),)
    moving = pids or tuple(target.pid for target in evidence.meta.targets)
    moves = union([_moves(pid, evidence) for pid in moving])
    moved_ns, began_ns = (int(moves.end_ns[-1]), int(moves.begin_ns[0])) if len(moves) else (0, 0)
    longest_ns = int((moves.begin_ns[1:] - moves.end_ns[:-1]).max(initial=0))
    tcp_moved_ns = max((_moved_by_tcp(pid, evidence)[0] for pid in moving), default=0)
    seen = Still(pids, begin_ns, end_ns, steps, moved_ns, tcp_moved_ns, began_ns=began_ns, longest_ns=longest_ns)
    if not evidence.piece.is_last or end_ns - moved_ns < LEAST_SEEN_NS:
        return (seen,)
    standing = (_standing(pid, max(moved_ns, begin_ns), end_ns, evidence) for pid in pids)
    ranks = tuple(replace(each, exit=missed.get(each.pid)) for each in standing)
    return (replace(seen, ranks=ranks, collective=_behind_by_ras(evidence)),)


def _hang(pieces: Sequence[Still]) -> Hang | None:
    if not pieces:
        return None
    first, last = pieces[0], pieces[-1]
    if len(last.pids) < 2 or sum(each.iterations for each in pieces) > _LOCAL_STEPS * len(last.pids):
        return None
    moved_ns = max([first.begin_ns, *(each.moved_ns for each in pieces)])
    from_begin = moved_ns == first.begin_ns
    before_ns = min(first.tcp_moved_ns, first.begin_ns) if from_begin else 0
    if last.end_ns - moved_ns < (LEAST_SEEN_NS if before_ns and last.end_ns - before_ns > SILENT_NS else LEAST_NS):
        return None
    if last.end_ns - moved_ns <= _LONGER * _longest_ns(pieces):
        return None
    if not any(each.waits for each in last.ranks):
        return None
    since_ns = before_ns or moved_ns
    return Hang(since_ns, last.end_ns - since_ns, from_begin, last.ranks, before_ns > 0, last.collective)


def _longest_ns(pieces: Sequence[Still]) -> int:
    """Return for how long nothing moved between two times that something did: so long is no hang."""
    moved = [each for each in pieces if each.moved_ns]
    between = [after.began_ns - before.moved_ns for before, after in itertools.pairwise(moved)]
    return max([0, *between, *(each.longest_ns for each in moved)])


def _moved_by_tcp(pid: int, evidence: Evidence) -> tuple[int, int, int]:
    """Return when a process had last moved data, sent it, and received it, when it was first looked at; 0: unknown."""
    looks = (_first_look(pid, name, evidence) for name in (SENT_BEFORE, RECEIVED_BEFORE))
    sent_ns, received_ns = (0 if look is None else look[0] - look[1] for look in looks)
    return max(sent_ns, received_ns), sent_ns, received_ns


def _first_look(pid: int, name: str, evidence: Evidence) -> tuple[int, int] | None:
    """Return when a process was first looked at, and what was seen; None where that was long before the begin.

    A ring keeps it although it has let go of all that came in between.
    """
    look = evidence.process_counts.first(pid, name)
    return look if look is not None and look[0] >= evidence.meta.started_ns - _ATTACH_NS else None


def _behind_by_ras(evidence: Evidence) -> str:
    """Return what NCCL's RAS says of the communicators: who has asked for fewer collectives than the others."""
    behind = [each for each in communicators_of(evidence) if each.behind]
    if not behind:
        return ""
    one = behind[0]
    ranks = ", ".join(map(str, one.behind[:_NAMED]))
    others = f"{one.most_collectives} by others" if one.most_collectives is not None else "others"
    counts = {member.rank: member.collectives for member in one.members}
    fewest = counts.get(one.behind[0])
    return (
        f"NCCL's RAS: of communicator {one.name} rank{'s' if len(one.behind) > 1 else ''} {ranks} asked for fewer "
        f"collectives{f' ({fewest}; {others})' if fewest is not None else ''}"
    )


def _moves(pid: int, evidence: Evidence) -> Intervals:
    """Return when the process did steps of training, or moved more than heartbeats."""
    marks = evidence.marks
    at_ns = marks.time_ns[(marks.pid == pid) & (marks.kind < MarkKind.PROCESS_FORK)]
    moves = [merge(at_ns, at_ns + 1)]
    for way in (TRANSMIT, RECEIVE):
        bins = evidence.links.lanes.of_process(pid, way)
        if bins is None or not len(bins):
            continue
        second = bins.begin_ns // 10**9
        _, index = np.unique(second, return_inverse=True)
        lively = np.bincount(index, weights=bins.payload_bytes) > _HARDLY_BPS
        rows = lively[index] & (bins.payload_bytes > 0)
        moves.append(merge(bins.begin_ns[rows], bins.begin_ns[rows] + bins.bin_ns))
    return union(moves)


def _standing(pid: int, since_ns: int, end_ns: int, evidence: Evidence) -> Standing:
    span = interval(since_ns, end_ns)
    blocked = {kind: (times & span).total_ns for kind, times in evidence.blocked.get(pid, {}).items()}
    waits_ns = sum(blocked.get(kind, 0) for kind in _WAITS)
    most: BlockedIn | None = max(blocked, key=lambda kind: blocked[kind], default=None)
    little = sum(blocked.values()) < _STILL / 2 * span.total_ns
    stopped = pid in evidence.process_counts.stopped_last()
    if most is not None and (stopped or little or (most in _WAITS and waits_ns < _STILL * span.total_ns)):
        most = None
    _, sent_ns, received_ns = _moved_by_tcp(pid, evidence)
    looks = (_first_look(pid, name, evidence) for name in (UNACKED, UNREAD))
    unacked, unread = (0 if look is None else look[1] for look in looks)
    about = (pid, evidence.ranks.get(pid), name_on_host(pid, evidence), own_pid(pid, evidence))
    return Standing(*about, most, sent_ns, received_ns, unacked, unread, stopped)


def _document(hang: Hang | None) -> dict[str, Any]:
    if hang is None:
        return {"hang": None}
    keys = "rank pid state=does waits unacked_bytes unread_bytes"
    ranks = [
        json_of(each, keys, sent_until_ns=each.sent_ns or None, received_until_ns=each.received_ns or None)
        for each in hang.ranks
    ]
    return {"hang": json_of(hang, "since_ns seconds=for_ns advice", collective=hang.collective or None, ranks=ranks)}


def _parts(hang: Hang | None) -> Sequence[Part]:
    if hang is None:
        return ()
    end_ns = hang.since_ns + hang.for_ns
    columns = (
        Column("", "name"),
        Column("pid", "own_pid", goes=1),
        Column("is", "does", left=True),
        *(Column(way, f"{way}_ns", lambda ns: _ago(ns, end_ns)) for way in ("sent", "received")),
        Column("outstanding", "outstanding", left=True),
    )
    return [Part("Hang", f"for {duration(hang.for_ns / 1e9)}", [table(columns, hang.ranks)])]


def _ago(at_ns: int, end_ns: int) -> str:
    return f"{duration((end_ns - at_ns) / 1e9)} ago" if at_ns else ""


STILL: Section[tuple[Still, ...]] = Section(
    "standing still",
    lambda analysis: _look(analysis.evidence),
    ("blocked", "marks", "wire", "counters", "nccl_ranks"),
    merge=lambda parts, whole: tuple(still for each in parts for still in each),
)
"""What each piece of a recording tells of a hang: one may last for several."""

HANG = Section("hang", lambda analysis: _hang(analysis.of(STILL)), (), _document, _parts)
