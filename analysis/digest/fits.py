"""Whether what a digest's tables and lists say of each other can be: what one numbers, another holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from netprof.analysis.digest.digest import HostPart, JobPart, Tables
from netprof.analysis.hosts.numbers import MOST_PIDS, MOST_PROCESSES
from netprof.analysis.tables.columns import Int64

_ROWS = {
    ("waiting", "window"): "windows",
    ("surely", "window"): "windows",
    ("way_busy", "window"): "windows",
    ("held", "window"): "held_windows",
}
"""Columns that number the rows of another table."""

_LISTED = {
    ("held", "thing"): "things",
    ("link_seconds", "link"): "links",
    ("spans", "set"): "spans",
    ("way_busy", "way"): "ways",
}
"""Columns that number what a list of the host's document holds."""

_OF_PROCESSES = ("iterations", "waiting", "surely", "steps", "did", "collectives")


def unfit(job: JobPart, host: HostPart, tables: Tables, read: Collection[str]) -> Iterator[str]:
    """Yield what cannot be in the digest of one of a job's hosts; of tables that are not in `read` nothing is known."""
    hosts = len(job.hosts)
    rows = {**_ROWS, ("did", "window"): "windows" if hosts == 1 else "held_windows"}
    counts = {place: len(getattr(tables, table)) for place, table in rows.items() if {place[0], table} <= set(read)}
    counts |= {place: len(getattr(host, listed)) for place, listed in _LISTED.items()}
    for (table, column), count in counts.items():
        if not _within(getattr(getattr(tables, table), column), 0, count):
            yield f"column {column} of table {table} numbers what is not there"
    most = MOST_PIDS if hosts == 1 else MOST_PROCESSES
    named = all(-1 <= pid < most for pid in _pids(host))
    if not (named and all(_within(getattr(tables, each).pid, -1, most) for each in _OF_PROCESSES)):
        yield "it names processes that no kernel has"
    if job.bounded and {each.pid for each in host.surely} != {each.pid for each in host.waiting}:
        yield "what its processes wait at most is true of others than what they wait at least"


def _pids(host: HostPart) -> Iterator[int]:
    """Yield the processes that a host's document names; -1 is none."""
    yield from (*host.told_ranks, *host.host.pids, *host.unbounded, *host.on_gpu, *host.profiled)
    for listed in (
        host.waiting,
        host.surely,
        host.things,
        host.spans,
        host.ways,
        [each.summary for each in host.ranks],
    ):
        yield from (each.pid for each in listed)


def _within(numbers: Int64, first: int, end: int) -> bool:
    return len(numbers) == 0 or bool(numbers.min() >= first and numbers.max() < end)
