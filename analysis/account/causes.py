"""Why a link is idle: the names of the causes."""

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
"""Disjoint; together they are the window."""

UNEXPLAINED = Cause("idle", "cause unknown", "idle", "?")
"""The one cause that is given where no iteration of the link's ranks is known."""
