"""Digests of a job on many hosts, made from those of a real one: its ranks are dealt out anew, its time is repeated.

    python examples/many_digests.py out/digests/job=ddp/host=h0 out/many --hosts 1000 --ranks 8 --iterations 1000

What each rank did and waited for is what one of the real ranks did and waited for; who that is, chance decides. Each
host's digest is one that was made of it alone. With --parts each rank's collectives are of a communicator
of one rank of every host, as the replicas of a model are that is sharded over each.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from netprof.analysis.digest.digest import (
    BoundedSteps,
    CollectiveTimes,
    Did,
    Digest,
    Tables,
    Waited,
)
from netprof.analysis.digest.opened import open_digest
from netprof.analysis.digest.spans import Spans, SpanSet
from netprof.analysis.digest.ways import WayBusy
from netprof.analysis.events.iterations import IterationTimes
from netprof.analysis.hosts.host_streams import Passages
from netprof.analysis.tables.columns import Columns, concatenate, empty
from netprof.files import make_folder
from netprof.model import Meta
from netprof.session.digest import write_digest
from netprof.trace.digest import digests_in, host_folder

Int64 = npt.NDArray[np.int64]
C = TypeVar("C", bound=Columns)
_TIMES = ("begin_ns", "end_ns", "posted_ns", "moved_ns")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the digest of a host, of several ranks")
    parser.add_argument("target", type=Path)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=8, help="on each host")
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--parts", action="store_true", help="in communicators of one rank of every host")
    options = parser.parse_args()
    given = options.source, options.target, options.hosts, options.ranks, options.iterations
    multiply(*given, parts=options.parts)


def multiply(
    source: Path,
    target: Path,
    hosts: int,
    ranks: int = 2,
    iterations: int = 0,
    *,
    parts: bool = False,
) -> Path:
    """Write digests of `hosts` with `ranks` each, and as many iterations as asked for, or as there are.

    Returns `target`.
    """
    base = open_digest(digests_in(source)[0])
    times = max(1, -(-iterations // max(len(base.tables.windows), 1)))
    base = replace(base, tables=_repeated(base.tables, times, _period_ns(base.tables), iterations))
    names = tuple(f"node{number:04d}" for number in range(hosts))
    rng = np.random.default_rng(hosts)
    for number, name in enumerate(names):
        dealt = rng.permutation(np.resize(_pids(base), ranks))
        digest = _of_host(base, number, name, dealt)
        digest = _in_parts(digest, number, hosts) if parts else digest
        digest = replace(digest, host=replace(digest.host, made=f"{number:016x}", world_size=hosts * ranks))
        write_digest(digest, make_folder(host_folder(target, "many", name)))
    return target


def _pids(base: Digest) -> Int64:
    return np.unique(base.tables.iterations.pid)


def _period_ns(tables: Tables) -> int:
    return int(tables.windows.end_ns[-1] - tables.windows.begin_ns[0])


def _repeated(tables: Tables, times: int, period_ns: int, iterations: int) -> Tables:
    """Return the tables of a recording that goes on in the same way."""
    windows = len(tables.windows)
    count = iterations or windows

    def again(table: C, windows: int) -> C:
        parts = []
        for number in range(times):
            moved = {
                name: getattr(table, name) + number * period_ns for name in _TIMES if hasattr(table, name)
            }  # fmt: skip
            if hasattr(table, "window"):
                moved["window"] = table.window + number * windows
            parts.append(replace(table, **moved))
        return concatenate(type(table), parts)

    end_ns = int(tables.windows.begin_ns[0]) + times * period_ns
    whole = again(tables.windows, windows)
    end_ns = int(whole.end_ns[count - 1]) if count <= len(whole) else end_ns
    found = Tables(
        iterations=again(tables.iterations, windows),
        waiting=again(tables.waiting, windows),
        surely=again(tables.surely, windows),
        steps=again(tables.steps, windows),
        windows=whole,
        did=again(tables.did, windows),
        collectives=again(tables.collectives, windows),
        link_seconds=again(tables.link_seconds, windows),
        passages=tables.passages,
        spans=again(tables.spans, windows),
        tcp_clocks=again(tables.tcp_clocks, windows),
        way_busy=again(tables.way_busy, windows),
    )
    inside = {
        name: getattr(found, name)
        for name in ("iterations", "steps", "collectives", "link_seconds", "spans", "tcp_clocks")
    }
    cut = {name: table.where(table.begin_ns < end_ns) for name, table in inside.items()}
    numbered = {name: getattr(found, name) for name in ("waiting", "surely", "did", "way_busy")}
    cut |= {name: table.where(table.window < count) for name, table in numbered.items()}
    return replace(found, **cut, windows=found.windows.where(np.arange(count)))


def _of_host(base: Digest, number: int, name: str, dealt: Int64) -> Digest:
    """Return the digest of one host, whose processes do what those do that are `dealt` out to it."""
    pids = number * len(dealt) + np.arange(len(dealt)) + 1
    ranks, tables = base.host.ranks, base.tables
    own = {each.pid: each for each in ranks}
    bounded = base.host.unbounded, base.host.on_gpu, base.host.profiled
    pairs = list(zip(pids.tolist(), dealt.tolist(), strict=True))
    of_base = list(enumerate(base.host.ways))
    ways = [(replace(way, pid=pid), row) for pid, was in pairs for row, way in of_base if way.pid == was]
    spans = _dealt_sets(base.host.spans, pairs)
    host = replace(
        base.host,
        host=replace(base.host.host, name=name, meta=_of_ranks(base, pids), pids={pid: pid for pid in pids.tolist()}),
        told_ranks={pid: pid - 1 for pid in pids.tolist()},
        ranks=tuple(replace(own[was], pid=pid, rank=pid - 1, host=name) for pid, was in pairs),
        unbounded={pid: bounded[0][was] for pid, was in pairs if was in bounded[0]},
        on_gpu=tuple(pid for pid, was in pairs if was in bounded[1]),
        profiled=tuple(pid for pid, was in pairs if was in bounded[2]),
        ends={},
        spans=tuple(each for each, _ in spans),
        ways=tuple(way for way, _ in ways),
    )
    return Digest(
        host,
        Tables(
            iterations=_dealt(IterationTimes, tables.iterations, pairs),
            waiting=_dealt(Waited, tables.waiting, pairs),
            surely=_dealt(Waited, tables.surely, pairs),
            steps=_dealt(BoundedSteps, tables.steps, pairs),
            windows=tables.windows,
            did=_dealt(Did, tables.did, pairs),
            collectives=_dealt(CollectiveTimes, tables.collectives, pairs),
            link_seconds=tables.link_seconds,
            passages=empty(Passages),
            tcp_clocks=tables.tcp_clocks,
            way_busy=_ways(tables.way_busy, [row for _, row in ways]),
            spans=_spans(tables.spans, [place for _, place in spans]),
        ),
    )


def _in_parts(digest: Digest, number: int, hosts: int) -> Digest:
    """Return a host's digest whose ranks are each in a communicator with one of every host, a ring of hosts."""
    table, ranks = digest.tables.collectives, len(digest.host.ranks)
    of_part = replace(table, group=table.pid, ranks=np.full(len(table), hosts), number=np.full(len(table), number))
    ways = tuple(
        replace(way, flow=_ring((way.pid - 1) % ranks, number, hosts)) for way in digest.host.ways
    )  # fmt: skip
    return replace(digest, host=replace(digest.host, ways=ways), tables=replace(digest.tables, collectives=of_part))


def _ring(place: int, number: int, hosts: int) -> str:
    """Return the flow from a rank to the one that has its place on the next host."""
    after = (number + 1) % hosts
    return f"10.{number // 256}.{number % 256}.1:{40_000 + place} → 10.{after // 256}.{after % 256}.1:{50_000 + place}"


def _dealt_sets(sets: tuple[SpanSet, ...], pairs: list[tuple[int, int]]) -> list[tuple[SpanSet, int]]:
    """Return the sets of time of a host, and the place that each has in those of the real one."""
    placed = [(each, place) for place, each in enumerate(sets)]
    own = [(replace(each, pid=pid), place) for pid, was in pairs for each, place in placed if each.pid == was]
    return own + [(each, place) for each, place in placed if each.pid < 0]


def _spans(table: Spans, places: list[int]) -> Spans:
    parts = [
        replace(own := table.where(table.set == was), set=np.full(len(own), new)) for new, was in enumerate(places)
    ]
    return concatenate(Spans, parts)


def _ways(table: WayBusy, rows: list[int]) -> WayBusy:
    parts = [replace(own := table.where(table.way == was), way=np.full(len(own), new)) for new, was in enumerate(rows)]
    return concatenate(WayBusy, parts)


def _of_ranks(base: Digest, pids: Int64) -> Meta:
    """Return the description of a recorder that saw some processes, each of which is the rank before its number."""
    target = base.host.host.meta.targets[0]
    targets = tuple(replace(target, pid=pid, rank=pid - 1, inner_pid=0) for pid in pids.tolist())
    return replace(base.host.host.meta, targets=targets)


def _dealt(kind: type[C], table: C, pairs: list[tuple[int, int]]) -> C:
    parts, rng = [], np.random.default_rng(pairs[0][0])
    for pid, was in pairs:
        own: Any = table.where(getattr(table, "pid") == was)  # noqa: B009  of any table that has one
        if kind is IterationTimes:  # no two iterations of a real job last equally long
            longer = rng.integers(0, 1000, len(own)) * (own.duration_ns // 100_000)
            own = replace(own, duration_ns=own.duration_ns + longer)
        parts.append(replace(own, pid=np.full(len(own), pid)))
    found: C = concatenate(kind, parts)
    return found


if __name__ == "__main__":
    main()
