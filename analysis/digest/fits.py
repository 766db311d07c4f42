"""Whether what a digest's tables and lists say of each other can be: what one numbers, another holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from netprof.analysis.digest.digest import HostPart, Tables
from netprof.analysis.hosts.numbers import MOST_PIDS
from netprof.analysis.tables.columns import Int64

_ROWS = {
    ("waiting", "window"): "windows",
    ("surely", "window"): "windows",
    ("way_busy", "window"): "windows",
    ("did", "window"): "windows",
}
"""Columns that number the rows of another table."""

_LISTED = {
    ("link_seconds", "link"): "links",
    ("spans", "set"): "spans",
    ("way_busy", "way"): "ways",
}
"""Columns that number what a list of the host's document holds."""

_OF_PROCESSES = ("iterations", "waiting", "surely", "steps", "did", "collectives")


def unfit(host: HostPart, tables: Tables, read: Collection[str]) -> Iterator[str]:
    """Yield what cannot be in the digest of a host; of tables that are not in `read` nothing is known."""
    counts = {place: len(getattr(tables, table)) for place, table in _ROWS.items() if {place[0], table} <= set(read)}
    counts |= {place: len(getattr(host, listed)) for place, listed in _LISTED.items()}
    for (table, column), count in counts.items():
        if not _within(getattr(getattr(tables, table), column), 0, count):
            yield f"column {column} of table {table} numbers what is not there"
    named = all(-1 <= pid < MOST_PIDS for pid in _pids(host))
    if not (named and all(_within(getattr(tables, each).pid, -1, MOST_PIDS) for each in _OF_PROCESSES)):
        yield "it names processes that no kernel has"
    longest_ns = max(host.span_ns[1] - host.span_ns[0], 0)
    if host.open_waits is not None and not all(0 <= ns <= longest_ns for ns in host.open_waits.waited_ns.values()):
        yield "its processes wait for longer than it recorded"


def _pids(host: HostPart) -> Iterator[int]:
    """Yield the processes that a host's document names; -1 is none."""
    yield from (*host.told_ranks, *host.host.pids, *host.unbounded, *host.on_gpu, *host.profiled)
    yield from (() if host.open_waits is None else host.open_waits.waited_ns)
    for listed in (host.ranks, host.spans, host.ways):
        yield from (each.pid for each in listed)


def _within(numbers: Int64, first: int, end: int) -> bool:
    return len(numbers) == 0 or bool(numbers.min() >= first and numbers.max() < end)
