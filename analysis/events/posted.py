"""What a job hands over without its end being seen: messages, non-blocking collectives, calls that return unseen."""

from __future__ import annotations

import numpy as np

from netprof.analysis.events.collectives import Collectives, FoundCollectives
from netprof.analysis.events.sizes import bytes_of
from netprof.analysis.tables.columns import UNKNOWN, concatenate
from netprof.analysis.tables.marks import Marks
from netprof.schema import CollectiveKind, MarkKind

_MESSAGES = {MarkKind.SEND_POSTED: CollectiveKind.SEND, MarkKind.RECEIVE_POSTED: CollectiveKind.RECEIVE}


def all_posted(marks: Marks, found: FoundCollectives) -> Collectives:
    """Return everything that was posted; `found` are the collectives of these marks."""
    return concatenate(Collectives, [found.posted, *(_messages(marks, mark) for mark in _MESSAGES)])


def _messages(marks: Marks, mark: MarkKind) -> Collectives:
    rows = marks.of(mark)
    unknown = np.full(len(rows), UNKNOWN)
    return Collectives(
        pid=rows.pid,
        tid=rows.tid,
        begin_ns=rows.time_ns,
        end_ns=rows.time_ns,
        bytes=bytes_of(rows.arg0),
        kind=np.full(len(rows), int(_MESSAGES[mark])),
        backend=rows.arg1,
        group=unknown,
        ranks=unknown,
        number=unknown,
        posted_ns=rows.time_ns,
        posted_tid=rows.tid,
        work=np.zeros(len(rows), np.int64),
    )
