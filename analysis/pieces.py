"""A long recording, piece by piece: what it takes to conclude from one without the memory for all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from netprof.analysis.events.iterations import FoundIterations, IterationTimes
from netprof.analysis.events.job_ranks import CommunicatorRanks
from netprof.analysis.events.optimizer_steps import find_all_iterations
from netprof.analysis.events.typical import durations
from netprof.analysis.evidence import Evidence
from netprof.analysis.memory import give_back
from netprof.analysis.piece import ALL, Piece
from netprof.analysis.tables.columns import Int64, column, int64_column, narrowed
from netprof.analysis.tables.marks import Marks, read_marks
from netprof.analysis.tables.nccl_ranks import read_nccl_ranks
from netprof.analysis.wire.fold import WireFold
from netprof.analysis.wire.ports import bins_of_a_reading
from netprof.schema import KINDS, MarkKind, tables, time_column
from netprof.trace import TraceSource
from netprof.trace.columns import select
from netprof.trace.index import TraceIndex
from netprof.trace.store import Store, outlasts

_WEIGHTS = {"marks": 4.0}
"""How much more memory the rows of a table take while they are concluded from than those of `wire`."""
_WEIGHT_OF_A_BIN = 8.0
"""The same of a bin that a port's counters are spread into; so that what is not cut has no more than `MOST_BINS`."""
BEFORE_NS = 10**9
"""What is sampled is seen at least once in as long."""
_IN_FLIGHT_NS = 10**9
"""What begins is seen to its end within as long, where nothing tells of iterations."""
_SILENT_NS = 60 * 10**9
"""A process without a mark for as long may have ended unseen: what it did is no longer read again."""
_SEVERAL = 4
"""Iterations by which no rank is behind another one: bytes that are long under way are those of one or two."""
_MOST_HELD = 3
"""Pieces' worth of marks that one iteration may fill before it is cut off."""


@dataclass
class _Survey:
    """What one pass over the marks tells for all pieces: who is which rank, who trains, and what lasts."""

    communicator_ranks: CommunicatorRanks = field(default_factory=CommunicatorRanks)
    workers: set[int] = field(default_factory=set)
    lasting: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        self.communicator_ranks.add(batch)
        kind, pid = int64_column(batch, "kind"), int64_column(batch, "pid")
        self.workers.update(np.unique(pid[kind < MarkKind.PROCESS_FORK]).tolist())
        lasts = outlasts("marks", {"kind": kind})
        if lasts.any():
            self.lasting.append(select(batch, lasts))


@dataclass(frozen=True)
class _Sight:
    """What is read for a piece: rows in [since_ns, until_ns), of the marks of some processes later ones only."""

    since_ns: int
    until_ns: int
    own_since_ns: Mapping[int, int]


@dataclass(frozen=True)
class PieceSize:
    """How a recording is cut: into pieces of so many `rows`, by weight, if it has more than `at_once`.

    Of what is not cut, no median is put together from parts. A piece is no shorter than `shortest_ns`, however many
    rows it has: what is read around it would be most of the work.
    """

    rows: int = 1_000_000
    at_once: int = 8_000_000
    shortest_ns: int = 10 * BEFORE_NS


class Pieces:
    """Cuts a recording into pieces, at moments that no iteration is torn by.

    Rows are in sight from before the iterations that the piece begins in until all that begin in it are complete.
    """

    def __init__(self, reader: TraceSource, size: PieceSize | None = None) -> None:
        self._reader = reader
        self._index = TraceIndex(reader)
        self._size = size or PieceSize()
        self.cuts_ns = _cuts(self._index, self._size)
        """Until when is looked for each piece, ascending; the last ends with the recording."""
        self._sights: dict[Piece, _Sight] = {}

    @property
    def yielded(self) -> tuple[Piece, ...]:
        """The pieces that were yielded so far, in the order of time."""
        return tuple(self._sights)

    @cached_property
    def _survey(self) -> _Survey:
        survey = _Survey()
        for batch in self._reader.batches("marks"):
            survey.add(batch)
            del batch  # before the next one is read
        survey.communicator_ranks.add_nccl(read_nccl_ranks(self._reader.table("nccl_ranks")))
        give_back()
        return survey

    @property
    def known(self) -> dict[str, Any]:
        """What of every piece's evidence, and of the whole's, is found already."""
        return {"communicator_ranks": self._survey.communicator_ranks, "workers": frozenset(self._survey.workers)}

    def __len__(self) -> int:
        return len(self.cuts_ns)

    def __iter__(self) -> Iterator[Evidence]:
        """Yield the evidence of each piece, in the order of time."""
        counters = _Counters(self._index)
        self._index.prepare(self.cuts_ns[:-1])
        begin_ns = since_ns = ALL.begin_ns
        own_since_ns: dict[int, int] = {}
        lengths_ns: list[Int64] = []
        for cut_ns in self.cuts_ns:
            sight = _Sight(since_ns, cut_ns, own_since_ns)
            marks = self._marks(sight)
            marked = find_all_iterations(marks)
            open_ns = open_since(marked, marks, begin_ns) if cut_ns != ALL.end_ns else []
            if begin_ns in open_ns and len(marks) * _WEIGHTS["marks"] < _MOST_HELD * self._size.rows:
                continue
            piece = Piece(begin_ns, end_of_piece(open_ns, marks, begin_ns, cut_ns))
            known = {"marks": marks, "marked": marked, "earlier_ns": tuple(lengths_ns)} | self.known
            lengths_ns.append(narrowed(marked.iterations.duration_ns[piece.owns(marked.iterations.begin_ns)]))
            begin_ns, own_since_ns = piece.end_ns, sight_before(marked, marks, piece.end_ns)
            since_ns = min([begin_ns - BEFORE_NS, *own_since_ns.values()])
            self._sights[piece] = sight
            del marks, marked  # they are the piece's from here on
            yield self._evidence(piece, sight, counters, known)
            del known

    def again(self, piece: Piece) -> Evidence:
        """Return the evidence of one of the pieces that were `yielded`."""
        counters = _Counters(self._index)
        for earlier, sight in self._sights.items():
            if earlier == piece:
                break
            counters.between(sight.since_ns, sight.until_ns)  # a value stands until the next one
        sight = self._sights[piece]
        return self._evidence(piece, sight, counters, {"marks": self._marks(sight)} | self.known)

    def _marks(self, sight: _Sight) -> Marks:
        lasting = self._survey.lasting
        earlier = (select(batch, int64_column(batch, "time_ns") < sight.since_ns) for batch in lasting)
        seen = self._index.between("marks", sight.since_ns, sight.until_ns)
        table = pa.Table.from_batches([*earlier, *seen], schema=tables()["marks"])
        return marks_since(read_marks(table), sight.own_since_ns, sight.since_ns)

    def _evidence(self, piece: Piece, sight: _Sight, counters: _Counters, known: dict[str, Any]) -> Evidence:
        since_ns, until_ns = sight.since_ns, sight.until_ns

        @cache
        def table(name: str) -> Any:
            if name == "counters":
                return counters.between(since_ns, until_ns)
            is_cut = time_column(name) is not None and not KINDS[name].holds
            return self._index.table(name, since_ns, until_ns) if is_cut else self._reader.table(name)

        def fold(evidence: Evidence) -> WireFold:
            lanes = evidence.flow_lanes
            folded = WireFold(evidence.flows, evidence.meta.bin_ns, evidence.cells, piece=piece, lanes=lanes)
            folded.add_all(self._index.between("wire", since_ns, until_ns))
            return folded

        reader = self._reader
        state: dict[str, Any] = {"is_truncated": lambda: reader.truncated, "damage": lambda: reader.damage}
        evidence = Evidence(reader.meta, table, fold, piece=piece, known=known, **state)
        evidence.hosts = reader.hosts
        return evidence


class _Counters:
    """Table `counters` piece by piece: a value stands until the next one, however long ago it was written."""

    def __init__(self, index: TraceIndex) -> None:
        self._index, self._store = index, Store()
        self._through_ns = ALL.begin_ns

    def between(self, since_ns: int, until_ns: int) -> Any:
        """Return the rows in [since_ns, until_ns) and the last one of each series before; times may only go on."""
        for batch in self._index.between("counters", self._through_ns, until_ns):
            self._store.add("counters", {name: column(batch, name) for name in batch.schema.names})
        self._through_ns = max(self._through_ns, until_ns)
        self._store.let_go(since_ns)
        return self._store.slice("counters", since_ns, until_ns)


def _cuts(index: TraceIndex, size: PieceSize) -> list[int]:
    """Return moments between which about as many rows lie, by weight; rows are spread evenly over their batch."""
    meta = index.reader.meta
    weights = _WEIGHTS | {"nic": max(1.0, _WEIGHT_OF_A_BIN * bins_of_a_reading(meta.devices, meta.bin_ns))}
    parts = [
        (batches.first_ns, batches.last_ns + 1, batches.rows * weights.get(name, 1.0))
        for name, batches in index.tables.items()
    ]
    first, last, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    if weight.sum() <= size.at_once:
        return [ALL.end_ns]
    span_ns = int(last.max() - first.min())
    count = min(int(-(-weight.sum() // size.rows)), max(1, span_ns // size.shortest_ns))
    most = max(1, span_ns // min(size.shortest_ns, 2 * BEFORE_NS))  # of very many ranks, seconds are much
    count = max(count, min(int(weight.sum() // max(size.at_once, size.rows)), most))
    at_ns = np.concatenate((first, last))
    slope = np.concatenate((weight / (last - first), -weight / (last - first)))
    order = np.argsort(at_ns, kind="stable")
    at_ns, slope = at_ns[order], np.cumsum(slope[order])
    through = np.concatenate(([0.0], np.cumsum(slope[:-1] * np.diff(at_ns))))
    wanted = np.arange(1, count) / count * weight.sum()
    return [*dict.fromkeys(np.interp(wanted, through, at_ns).astype(np.int64).tolist()), ALL.end_ns]


def open_since(marked: FoundIterations, marks: Marks, begin_ns: int) -> list[int]:
    """Return since when the iteration of each process goes on that is not complete; at the earliest from `begin_ns` on.

    A process is gone when it said so, or when another one has begun and ended several iterations since its last mark:
    the ranks of a job wait for each other.
    """
    iterations, exited = marked.iterations, set(marks.of(MarkKind.PROCESS_EXIT).pid.tolist())
    begins = [iterations.begin_ns[iterations.pid == pid] for pid in np.unique(iterations.pid).tolist()]
    several_ago_ns = max((int(begin[-_SEVERAL]) for begin in begins if len(begin) >= _SEVERAL), default=ALL.begin_ns)
    since_ns = []
    for pid in marked.dropped.keys() - exited:
        times = marks.time_ns[(marks.pid == pid) & (marks.time_ns >= begin_ns)]
        if len(times) and times[-1] >= several_ago_ns:
            last_ns = int(iterations.end_ns[iterations.pid == pid].max(initial=ALL.begin_ns))
            since_ns.append(max(begin_ns, last_ns) if last_ns != ALL.begin_ns else max(begin_ns, int(times[0])))
    return since_ns


def end_of_piece(open_ns: list[int], marks: Marks, begin_ns: int, cut_ns: int) -> int:
    """Return until when all iterations that begin are complete by `cut_ns`, or else what is in flight."""
    if cut_ns == ALL.end_ns:
        return cut_ns
    later = [each for each in open_ns if each > begin_ns]
    since_ns = max(begin_ns, int(marks.time_ns.min(initial=cut_ns)))
    return min(later) if later else cut_ns - min(_IN_FLIGHT_NS, (cut_ns - since_ns) // 2)


def sight_before(marked: FoundIterations, marks: Marks, end_ns: int) -> dict[int, int]:
    """Return from when marks are read for the piece that begins at `end_ns`, by process: from an iteration's beginning.

    That is at least the last but one before: two models that train in turn are still distinguished. A process
    that has exited or is silent for long is left out: its last iterations would be read for ever.
    """
    iterations, since_ns = marked.iterations, {}
    exited = set(marks.of(MarkKind.PROCESS_EXIT).pid.tolist())
    for pid in np.unique(iterations.pid).tolist():
        seen_ns = int(marks.time_ns[marks.rows_of(pid)].max())
        if seen_ns < end_ns - (BEFORE_NS if pid in exited else _SILENT_NS):
            continue
        begin = iterations.begin_ns[iterations.pid == pid]
        row = min(np.searchsorted(begin, end_ns) - 2, np.searchsorted(begin, end_ns - BEFORE_NS, "right") - 1)
        since_ns[pid] = int(begin[max(row, 0)])
    return since_ns


def marks_since(marks: Marks, own_ns: Mapping[int, int], since_ns: int) -> Marks:
    """Leave out what is older than is read of its process; of those that have iterations, but for what lasts."""
    limit = np.full(len(marks), since_ns)
    for pid, own_since_ns in own_ns.items():
        limit[marks.rows_of(pid)] = own_since_ns
    return marks.where((marks.time_ns >= limit) | outlasts("marks", {"kind": marks.kind}))


_ENOUGH = 0.5
"""Of the iterations that a piece usually has: the first and the last one may have few."""


def typical_piece(pieces: Sequence[Piece], times: IterationTimes) -> Piece:
    """Return the piece whose typical iteration is most like that of all `times`, in how long it takes and waits.

    Without iterations, the piece in the middle.
    """
    every = durations(times)
    if every is None:
        return pieces[len(pieces) // 2]
    begin_ns = times.begin_ns.astype(np.int64)
    by_piece = [durations(times.where(piece.owns(begin_ns))) for piece in pieces]
    usual = np.median([lengths.count for lengths in by_piece if lengths is not None])

    def unlike(number: int) -> float:
        lengths = by_piece[number]
        if lengths is None or lengths.count < _ENOUGH * usual:
            return np.inf
        waits_s = lengths.phases.exposed_communication - every.phases.exposed_communication
        return abs(lengths.phases.total - every.phases.total) + abs(waits_s)

    return pieces[min(range(len(pieces)), key=unlike)]
