"""Rows of several hosts, handed on only as far as all have come: who is slow to write is not taken to be late."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from netprof.schema import time_column
from netprof.trace.store import Rows, chosen


class InStep:
    """Holds back rows of `hosts` hosts until every one that is still heard of has come as far; times are on one clock.

    A host has come as far as the newest row of the look before: what was written along with that one is there by now.
    Rows are handed on in steps of `least_ns` or more.
    """

    def __init__(self, hosts: int, least_ns: int = 0) -> None:
        self._least_ns = least_ns
        self._handed_ns: int | None = None
        self._waiting: list[list[tuple[str, Rows]]] = [[] for _ in range(hosts)]
        self._newest: list[int | None] = [None] * hosts
        self._through: list[int | None] = [None] * hosts

    def add(self, host: int, name: str, rows: Rows) -> None:
        """Add rows of a table of one host."""
        self._waiting[host].append((name, rows))
        if (times := _times(name, rows)) is not None and len(times):
            self._newest[host] = max(int(times.max()), self._newest[host] or 0)

    def settle(self) -> None:
        """Take it that of what was added so far nothing is missing until its newest row."""
        self._through = list(self._newest)

    def take(self, quiet: Collection[int] = ()) -> tuple[int | None, list[tuple[str, Rows]]]:
        """Return how far all have come but those that are `quiet`, and the rows until then, those without a time first.

        None where that is not known, or not a step further. Where all are quiet, the one that came furthest counts.
        """
        heard = [self._through[host] for host in range(len(self._through)) if host not in quiet]
        latest = max((each for each in self._through if each is not None), default=None)
        known = [each for each in heard or [latest] if each is not None]
        through_ns = min(known) if known and len(known) == len(heard or [0]) else None
        self.settle()
        if through_ns is not None and self._handed_ns is not None and through_ns < self._handed_ns + self._least_ns:
            return None, []
        self._handed_ns = through_ns if through_ns is not None else self._handed_ns
        taken = []
        for host, waiting in enumerate(self._waiting):
            self._waiting[host] = []
            for name, rows in waiting:
                now, later = _split(name, rows, through_ns)
                taken += [(name, now)] if now is not None else []
                self._waiting[host] += [(name, later)] if later is not None else []
        return through_ns, sorted(taken, key=_first_ns)


def _split(name: str, rows: Rows, through_ns: int | None) -> tuple[Rows | None, Rows | None]:
    """Return the rows until some time, and those after it; None for none. What has no time is of any time."""
    times = _times(name, rows)
    if times is None:
        return rows, None
    if through_ns is None:
        return None, rows
    now = times <= through_ns
    if now.all():
        return rows, None
    return (chosen(rows, now) if now.any() else None), chosen(rows, ~now)


def _first_ns(table: tuple[str, Rows]) -> int:
    times = _times(*table)
    return int(times.min()) if times is not None and len(times) else 0


def _times(name: str, rows: Rows) -> Any:
    column = time_column(name)
    return None if column is None else np.asarray(rows[column]).astype(np.int64)
