"""Why a job waits, and why a link is idle: the names of the causes."""

from __future__ import annotations

from typing import NamedTuple


class Cause(NamedTuple):
    """One cause: its name in JSON and tables, how a person reads it, a short form, and a letter for a cell."""

    name: str
    title: str
    short: str
    letter: str


NO_GRADIENT = Cause("no_gradient", "no gradient yet", "no gradient", "g")
GRADIENTS_WAITING = Cause("gradients_waiting", "gradients waiting", "waiting", "w")
NOTHING_OUTSTANDING = Cause("nothing_outstanding", "between buckets", "between", "b")
AFTER_LAST_BYTE = Cause("after_last_byte", "after the last byte", "after last", "a")

CAUSES = (NO_GRADIENT, GRADIENTS_WAITING, NOTHING_OUTSTANDING, AFTER_LAST_BYTE)
"""What the job does while a link is idle. Disjoint; together they are the window."""

UNEXPLAINED = Cause("idle", "cause unknown", "idle", "?")
"""The one cause that is given where no iteration of the link's ranks is known."""

LATE_RANK = Cause("late_rank", "a late rank", "late rank", "l")
LINK_FULL = Cause("link_full", "a full link", "link full", "f")
OTHER_TRAFFIC = Cause("other_traffic", "others' traffic", "others", "o")
LOSS = Cause("loss", "packet loss", "loss", "x")
TRANSPORT = Cause("transport", "the transport", "transport", "t")
HOST = Cause("host", "a busy host", "host", "h")
UNSEEN = Cause("unseen", "unseen by netprof", "unseen", "u")

WAIT_CAUSES = (LATE_RANK, LINK_FULL, OTHER_TRAFFIC, LOSS, TRANSPORT, HOST, UNSEEN)
"""What a rank waits for while it is exposed (`definitions.WAITING`). Disjoint; together they are the exposed time."""
