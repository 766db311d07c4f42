"""Why a job waits, and why a link is idle: the names of the causes."""

from __future__ import annotations

from typing import NamedTuple


class Cause(NamedTuple):
    """One cause: its name in JSON and tables, how a person reads it, a short form, a letter for a cell, a colour.

    A cause of waiting may be held `against` a rank, a link or a path (`held_up.Kind`); a link may be full `of_others`.
    `account.waiting` and `account.group_times` decide when one applies; `cause_words` has its words.
    """

    name: str
    title: str
    short: str
    letter: str
    colour: str = ""
    against: str = ""
    of_others: bool = False

    @property
    def value(self) -> str:
        """The name, for verdicts, whose other cases are an enumeration's."""
        return self.name


NO_GRADIENT = Cause("no_gradient", "no gradient yet", "no gradient", "g")
GRADIENTS_WAITING = Cause("gradients_waiting", "gradients waiting", "waiting", "w")
NOTHING_OUTSTANDING = Cause("nothing_outstanding", "between buckets", "between", "b")
AFTER_LAST_BYTE = Cause("after_last_byte", "after the last byte", "after last", "a")

CAUSES = (NO_GRADIENT, GRADIENTS_WAITING, NOTHING_OUTSTANDING, AFTER_LAST_BYTE)
"""What the job does while a link is idle. Disjoint; together they are the window."""

UNEXPLAINED = Cause("idle", "cause unknown", "idle", "?")
"""The one cause that is given where no iteration of the link's ranks is known."""

LATE_RANK = Cause("late_rank", "a late rank", "late rank", "l", "#ee7733", "rank")
LINK_FULL = Cause("link_full", "a full link", "link full", "f", "#0077bb", "link")
OTHER_TRAFFIC = Cause("other_traffic", "others' traffic", "others", "o", "#33bbee", "link", of_others=True)
LOSS = Cause("loss", "packet loss", "loss", "x", "#cc3311", "path")
TRANSPORT = Cause("transport", "the transport", "transport", "t", "#009988", "path")
HOST = Cause("host", "a busy host", "host", "h", "#ee3377", "rank")
UNSEEN = Cause("unseen", "unseen by netprof", "unseen", "u", "#bbbbbb")

WAIT_CAUSES = (LATE_RANK, LINK_FULL, OTHER_TRAFFIC, LOSS, TRANSPORT, HOST, UNSEEN)
"""What a rank waits for while it is exposed (`definitions.WAITING`). Disjoint; together they are the exposed time."""
