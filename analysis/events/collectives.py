"""Marks to collectives: begin, size, group and end belong together per thread."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.events.sizes import bytes_of
from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Int64, followed
from netprof.analysis.tables.marks import Marks
from netprof.schema import ALL_RANKS, CollectiveKind, MarkKind


@dataclass(frozen=True, eq=False)
class Collectives(Columns):
    """Collectives that a rank saw begin and end, by begin; ns, bytes.

    `bytes` is the size of the buffer and `kind` a CollectiveKind; both are UNKNOWN where no size was recorded.
    `backend` is a Backend. `group` is what its process calls the communicator, `ranks` how many that has and `number`
    which of them this one is, UNKNOWN where no group was recorded. `root` is the number of the one that all send to or
    receive from, and `sequence` rises with the collectives of a communicator and is the same on all its members;
    UNKNOWN where there is none or nothing says it. `posted_ns` and `posted_tid` say when and on which
    thread the job asked for it, which is its begin where nothing else is known, and `work` is the address by which the
    job waits for it, 0 where there is none.
    """

    pid: Int64
    tid: Int64
    begin_ns: Int64
    end_ns: Int64
    bytes: Int64
    kind: Int64
    backend: Int64
    group: Int64
    ranks: Int64
    number: Int64
    posted_ns: Int64
    posted_tid: Int64
    work: Int64
    root: Int64
    sequence: Int64

    @property
    def duration_ns(self) -> Int64:
        """The time from begin to end: the true time where it runs on the thread that the marks are of."""
        return self.end_ns - self.begin_ns

    @classmethod
    def of_no_group(cls, rows: Marks, **known: Int64) -> Collectives:
        """Return what marks of single calls tell, with what is `known` of them beside; of no group, posted at begin."""
        unknown, nothing = np.full(len(rows), UNKNOWN), np.zeros(len(rows), np.int64)
        times = {"begin_ns": rows.time_ns, "end_ns": rows.time_ns, "posted_ns": rows.time_ns}
        who = {"pid": rows.pid, "tid": rows.tid, "posted_tid": rows.tid}
        groups = dict.fromkeys(("group", "ranks", "number", "root", "sequence"), unknown)
        return cls(**who | times | groups | {"work": nothing} | known)

    def all_reduces(self) -> Collectives:
        """Return those that are known to be all-reduces."""
        return self.where((self.bytes != UNKNOWN) & (self.kind == CollectiveKind.ALL_REDUCE))


@dataclass(frozen=True, eq=False)
class FoundCollectives:
    """The whole collectives of all processes, and when the marks are that found no partner.

    `posted` are those whose end is not seen: so their mark says, or nothing of their process is seen to end. Their
    `end_ns` is their begin.
    """

    collectives: Collectives
    unpaired_ns: Int64
    posted: Collectives


def group_sizes(collectives: Collectives, world_size: int | None) -> Int64:
    """Return the ranks of each collective's group, which is the whole job where nothing says otherwise."""
    whole_job = UNKNOWN if world_size is None else world_size
    return np.where(collectives.ranks != UNKNOWN, collectives.ranks, whole_job)


def find_collectives(marks: Marks, world_size: int | None = None) -> FoundCollectives:
    """Pair each COLLECTIVE_BEGIN with the first COLLECTIVE_END after it on its thread, and the sizes between them.

    A begin without an end (or the reverse: the recording began in between, or a mark was lost) is counted and
    dropped. Threads do not mix, so gloo's two workers may overlap. `world_size` is the number of ranks of the job.
    """
    rows = marks.of(*_MARKS)
    rows = rows.sorted_by("pid", "tid", "time_ns")
    is_begin = rows.kind == MarkKind.COLLECTIVE_BEGIN
    owner = np.cumsum(is_begin) - 1  # the begin before each row
    begins = rows.where(is_begin)
    position = np.maximum(owner, 0)
    same = owner >= 0
    if len(begins):
        same &= (begins.tid[position] == rows.tid) & (begins.pid[position] == rows.pid)
    ends = np.flatnonzero(same & (rows.kind == MarkKind.COLLECTIVE_END))
    closed, first = np.unique(owner[ends], return_index=True)
    end_row = np.full(len(begins), -1)
    end_row[closed] = ends[first]
    group, ranks, number = _groups(rows, owner, same, len(begins), world_size)
    root, sequence = _orders(rows, owner, same, len(begins), ranks)
    posted_ns, posted_tid = _postings(marks.of(MarkKind.COLLECTIVE_ENQUEUE), begins)
    whole = end_row >= 0
    before = np.where(whole, end_row, len(rows))
    size, kind = _sizes(_with_whole_sizes(rows, owner, ranks), owner, same, before)
    end_ns = np.where(whole, rows.time_ns[end_row], begins.time_ns) if len(rows) else end_row
    collectives = Collectives(
        pid=begins.pid,
        tid=begins.tid,
        begin_ns=begins.time_ns,
        end_ns=end_ns,
        bytes=size,
        kind=kind,
        backend=begins.arg1,
        group=group,
        ranks=ranks,
        number=number,
        posted_ns=posted_ns,
        posted_tid=posted_tid,
        work=begins.arg0,
        root=root,
        sequence=sequence,
    )
    is_end = rows.kind == MarkKind.COLLECTIVE_END
    posted = ~whole & ((begins.arg2 != 0) | ~np.isin(begins.pid, rows.pid[is_end]))
    is_end[end_row[whole]] = False
    unpaired = np.concatenate((begins.time_ns[~whole & ~posted], rows.time_ns[is_end]))
    return FoundCollectives(
        collectives.where(whole).sorted_by("begin_ns"), unpaired, collectives.where(posted).sorted_by("begin_ns")
    )


_MARKS = (
    MarkKind.COLLECTIVE_BEGIN,
    MarkKind.COLLECTIVE_SIZE,
    MarkKind.COLLECTIVE_PART,
    MarkKind.COLLECTIVE_GROUP,
    MarkKind.COLLECTIVE_ORDER,
    MarkKind.COLLECTIVE_END,
)


def _sizes(rows: Marks, owner: Int64, same: Bool, end_row: Int64) -> tuple[Int64, Int64]:
    """Return each begin's bytes, the sum of the sizes between it and its end, and the kind that the first one names.

    One size that is not known leaves the sum unknown.
    """
    size_rows = np.flatnonzero(same & (rows.kind == MarkKind.COLLECTIVE_SIZE))
    size_rows = size_rows[size_rows < end_row[owner[size_rows]]]
    size = bytes_of(rows.arg0[size_rows], rows.arg1[size_rows])
    total, unsized = np.zeros(len(end_row), np.int64), np.zeros(len(end_row), bool)
    np.add.at(total, owner[size_rows], np.maximum(size, 0))
    unsized[owner[size_rows[size == UNKNOWN]]] = True
    sized, first = np.unique(owner[size_rows], return_index=True)
    kind = np.full(len(end_row), UNKNOWN)
    kind[sized] = rows.arg2[size_rows[first]]
    return np.where((kind != UNKNOWN) & ~unsized, bytes_of(total), UNKNOWN), kind


def _postings(enqueued: Marks, begins: Marks) -> tuple[Int64, Int64]:
    """Return when and on which thread the job asked for each collective: it waits in a queue until a thread begins it.

    That is the COLLECTIVE_ENQUEUE of its work, the begin itself where there is none. An address is that of another work
    later on, so the last mark of it before the begin has to be its enqueuing.
    """
    time_ns, tid = begins.time_ns.copy(), begins.tid.copy()
    kind = np.repeat([MarkKind.COLLECTIVE_ENQUEUE, MarkKind.COLLECTIVE_BEGIN], [len(enqueued), len(begins)])
    work = np.concatenate((enqueued.arg0, begins.arg0))
    times = np.concatenate((enqueued.time_ns, begins.time_ns))
    pid = np.concatenate((enqueued.pid, begins.pid))
    before, after = followed(times, work, pid)
    pairs = (kind[before] == MarkKind.COLLECTIVE_ENQUEUE) & (kind[after] == MarkKind.COLLECTIVE_BEGIN)
    pairs &= work[after] != 0
    mine = after[pairs] - len(enqueued)
    time_ns[mine], tid[mine] = enqueued.time_ns[before[pairs]], enqueued.tid[before[pairs]]
    return time_ns, tid


def _groups(rows: Marks, owner: Int64, belongs: Bool, count: int, world_size: int | None) -> tuple[Int64, Int64, Int64]:
    """Return the communicator of each of `count` collectives, its ranks and this one's number in it; else UNKNOWN.

    `owner` is the collective of each row, where it `belongs` to one. `world_size` is the number of ranks of the job.
    """
    group, ranks, number = (np.full(count, UNKNOWN) for _ in range(3))
    stated_rows = np.flatnonzero(belongs & (rows.kind == MarkKind.COLLECTIVE_GROUP))
    stated = rows.arg1[stated_rows]
    whole_job = UNKNOWN if world_size is None else world_size
    group[owner[stated_rows]] = rows.arg0[stated_rows]
    number[owner[stated_rows]] = rows.arg2[stated_rows]
    ranks[owner[stated_rows]] = np.where(stated == ALL_RANKS, whole_job, np.where(stated == 0, UNKNOWN, stated))
    return group, ranks, number


def _orders(rows: Marks, owner: Int64, belongs: Bool, count: int, ranks: Int64) -> tuple[Int64, Int64]:
    """Return the root and the number in the sequence of each of `count` collectives; UNKNOWN what cannot be."""
    root, sequence = np.full(count, UNKNOWN), np.full(count, UNKNOWN)
    stated_rows = np.flatnonzero(belongs & (rows.kind == MarkKind.COLLECTIVE_ORDER))
    root[owner[stated_rows]], sequence[owner[stated_rows]] = rows.arg0[stated_rows], rows.arg1[stated_rows]
    root[(root < 0) | ((ranks != UNKNOWN) & (root >= ranks))] = UNKNOWN
    return root, np.maximum(sequence, UNKNOWN)


def _with_whole_sizes(rows: Marks, owner: Int64, ranks: Int64) -> Marks:
    """Return the rows with sizes of whole buffers only: a part has been multiplied by the `ranks` of its collective.

    What nothing says is UNKNOWN elements of one byte.
    """
    is_part, is_size = rows.kind == MarkKind.COLLECTIVE_PART, rows.kind == MarkKind.COLLECTIVE_SIZE
    parts = np.where(is_part & (owner >= 0), np.append(ranks, UNKNOWN)[owner], 1)
    unknown = (rows.arg0 == UNKNOWN) | (parts == UNKNOWN) | ((rows.arg0 > 0) & (rows.arg1 == 0))
    unknown &= is_part | is_size
    whole = np.where(is_part, bytes_of(rows.arg0, parts), rows.arg0)
    return replace(
        rows,
        kind=np.where(is_part, int(MarkKind.COLLECTIVE_SIZE), rows.kind),
        arg0=np.where(unknown, UNKNOWN, whole),
        arg1=np.where(unknown, 1, rows.arg1),
    )
