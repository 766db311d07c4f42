"""The recording as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.

Every rank is a process: its iterations with their phases inside (unless only launching is seen), its buckets from
launch to unpacking and its collectives, each on tracks on which slices nest. Every link is a process too, with a
counter each way in percent of line rate (Gbit/s where that is unknown) and, where a link had to be made coarser, one
with the peaks; where its interface dropped packets, one says how many so far.
Times are microseconds after the recording's begin, to the nanosecond.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.events.phases import EDGES, PHASES
from netprof.analysis.findings.collectives.collective_kinds import kind_name
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.links.nic import drops_by_device
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.wire.cells import Cells, link_cells
from netprof.schema import RECEIVE, TRANSMIT
from netprof.units import size
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from netprof.analysis import Analysis
    from netprof.analysis.findings.collectives.ranks import RankSummary
    from netprof.analysis.findings.links.link_summary import LinkSummary
    from netprof.analysis.findings.links.nic import Drops
    from netprof.analysis.tables.columns import Int64
    from netprof.model import Host
    from netprof.views.reporter import Report

_MOST_CELLS = 1 << 19  # of all counters together; a line of JSON each
_ITERATIONS, _WAITS, _BUCKETS, _COLLECTIVES = 1, 2, 100, 1000  # the first track of each kind
_LINK_PIDS = 1 << 30  # far above any process
_FLUSH_EVENTS = 4096

Event = dict[str, Any]


def write(report: Report, out: IO[bytes]) -> None:
    """Write the JSON to a binary stream, a piece at a time. Raises OSError."""
    write_analysis(report.analysis, out)


def write_analysis(analysis: Analysis, out: IO[bytes], host: Host | None = None) -> None:
    """Write the JSON of an analysis; of one of its hosts, if given, as that numbers its processes. Raises OSError."""
    about = {
        "tool": "netprof",
        "version": safe_text(analysis.meta.netprof_version),
        "host": safe_text(host.name if host else analysis.meta.host),
    }
    out.write(b'{"traceEvents":[\n')
    first, waiting = True, []
    for event in events(analysis, host):
        waiting.append(("" if first else ",\n") + json.dumps(event, separators=(",", ":"), allow_nan=False))
        first = False
        if len(waiting) >= _FLUSH_EVENTS:
            out.write("".join(waiting).encode())
            waiting.clear()
    out.write("".join(waiting).encode())
    out.write(b'\n],"displayTimeUnit":"ms","otherData":' + json.dumps(about, allow_nan=False).encode() + b"}\n")


def events(analysis: Analysis, host: Host | None = None) -> Iterator[Event]:
    """Yield the trace's events: slices of every rank, then counters of every link; of `host` alone, if given."""
    if host is not None:
        yield from _of_host(analysis, host)
        return
    for rank in analysis.of(RANKS):
        yield from _rank(analysis, rank)
    yield from arrows(analysis)
    yield from _links(analysis)


def arrows(analysis: Analysis) -> Iterator[Event]:
    """Yield an arrow from the last rank that begins a collective to each other one, of collectives that are matched."""
    collectives, members = analysis.evidence.collectives, analysis.evidence.members
    place: dict[int, tuple[int, int]] = {}
    for pid in np.unique(collectives.pid).tolist():
        rows = collectives.rows_of(pid)
        tracks = tracks_of(collectives.begin_ns[rows], collectives.end_ns[rows])
        place |= {row: (pid, _COLLECTIVES + track) for row, track in zip(rows.tolist(), tracks, strict=True)}
    is_last = (members.event >= 0) & (members.last_pid == collectives.pid)
    last_of = dict(zip(members.event[is_last].tolist(), np.flatnonzero(is_last).tolist(), strict=True))
    for row in np.flatnonzero((members.event >= 0) & ~is_last).tolist():
        last = last_of.get(int(members.event[row]))
        if last is None:
            continue
        at_us = (int(collectives.begin_ns[last]) - analysis.meta.started_ns) / 1e3
        for (pid, tid), kind in ((place[last], "s"), (place[row], "f")):
            event = {"ph": kind, "name": "last to begin", "cat": "collective", "id": row, "pid": pid, "tid": tid}
            yield event | {"ts": at_us} | ({"bp": "e"} if kind == "f" else {})


def _of_host(analysis: Analysis, host: Host) -> Iterator[Event]:
    """Yield one host's events, with processes numbered as there; what is of no known host is the first one's."""
    hosts = analysis.evidence.hosts
    alone, first = len(hosts) == 1, host is hosts[0]
    ranks = [rank for rank in analysis.of(RANKS) if alone or rank.pid in host.pids or (first and rank.host is None)]
    for rank in ranks:
        for event in _rank(analysis, rank):
            yield event | {"pid": host.pids.get(rank.pid, rank.pid)}
    yield from _links(analysis, None if alone else {host.name, *([""] if first else [])})


def _links(analysis: Analysis, hosts: Collection[str] | None = None) -> Iterator[Event]:
    """Yield the counters of the links, of some hosts if given."""
    links = [link for link in analysis.of(LINKS) if hosts is None or link.host in hosts]
    room = _MOST_CELLS // max(1, 2 * len(links))
    drops = drops_by_device(analysis.evidence.table("nic"))
    for index, link in enumerate(links):
        yield from _link(analysis, link, _LINK_PIDS + index, room)
        if link.key in drops:
            yield from _drops(analysis, drops[link.key], _LINK_PIDS + index)


def _rank(analysis: Analysis, rank: RankSummary) -> Iterator[Event]:
    pid = rank.pid
    yield _name("process_name", pid, 0, safe_text(rank.label))
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": rank.rank or 0}}
    iterations = analysis.evidence.iterations.of_pid(pid)
    if len(iterations):
        yield _name("thread_name", pid, _ITERATIONS, "iterations")
    drawn = partial(_slice, analysis.meta.started_ns, pid, _ITERATIONS)
    columns = {name: getattr(iterations, name).tolist() for name in EDGES}
    for row in range(len(iterations)):
        yield drawn(f"iteration {row + 1}", "iteration", columns["begin_ns"][row], columns["end_ns"][row])
        for phase in () if rank.only_launch else PHASES:
            yield drawn(phase.title, "phase", columns[phase.begin][row], columns[phase.end][row])
    yield from _waits(analysis, pid)
    yield from _buckets(analysis, pid)
    yield from _collectives(analysis, pid)


def _waits(analysis: Analysis, pid: int) -> Iterator[Event]:
    """Yield what a rank waits for: a slice a stretch, with the cause's name and the rank that is behind it."""
    if analysis.of(WAITING) is None:
        return
    waiting = analysis.evidence.account.waiting.of_pid(pid)
    if len(waiting):
        yield _name("thread_name", pid, _WAITS, "waits for")
    columns = (waiting.begin_ns, waiting.end_ns, waiting.cause, waiting.culprit)
    for begin, end, cause, culprit in zip(*(column.tolist() for column in columns), strict=True):
        rank = analysis.evidence.ranks.get(culprit)
        details = {"cause": WAIT_CAUSES[cause].name} | ({"rank": rank} if rank is not None else {})
        name = f"{WAIT_CAUSES[cause].title}{f': rank {rank}' if rank is not None else ''}"
        yield _slice(analysis.meta.started_ns, pid, _WAITS, name, "wait", begin, end, details)


def _buckets(analysis: Analysis, pid: int) -> Iterator[Event]:
    buckets = analysis.evidence.buckets.of_pid(pid)
    buckets = buckets.where(np.argsort(buckets.launch_ns, kind="stable"))
    last = np.maximum(buckets.unpacked_ns, buckets.end_ns)
    tracks = tracks_of(buckets.launch_ns, last)
    yield from _track_names(pid, _BUCKETS, "buckets", tracks)
    columns = (buckets.launch_ns, buckets.begin_ns, buckets.end_ns, last, buckets.bytes, buckets.from_collective)
    rows = zip(tracks, *(column.tolist() for column in columns), strict=True)
    for track, launch, begin, end, done, amount, known in rows:
        drawn = partial(_slice, analysis.meta.started_ns, pid, _BUCKETS + track)
        yield drawn("bucket", "bucket", launch, done, {"bytes": amount} if amount >= 0 else None)
        if known:
            yield drawn("launched, waiting", "bucket", launch, begin)
            yield drawn("in its collective", "bucket", begin, end)


def _collectives(analysis: Analysis, pid: int) -> Iterator[Event]:
    collectives = analysis.evidence.collectives.of_pid(pid)
    tracks = tracks_of(collectives.begin_ns, collectives.end_ns)
    yield from _track_names(pid, _COLLECTIVES, "collectives", tracks)
    columns = (collectives.begin_ns, collectives.end_ns, collectives.bytes, collectives.tid, collectives.kind)
    rows = zip(tracks, *(column.tolist() for column in columns), strict=True)
    for number, (track, begin, end, amount, thread, kind) in enumerate(rows, 1):
        known = {"bytes": amount} if amount >= 0 else {}
        of_size = f" {size(amount)}" if amount >= 0 else ""
        details = {**known, "number": number, "thread": thread}
        name = f"{kind_name(kind)}{of_size} #{number}"
        yield _slice(analysis.meta.started_ns, pid, _COLLECTIVES + track, name, "collective", begin, end, details)


def tracks_of(begin_ns: Int64, end_ns: Int64) -> list[int]:
    """Return a track for each slice: the lowest that is free. Slices come by begin, and none overlap on a track."""
    free_from: list[int] = []
    tracks = []
    for begin, end in zip(begin_ns.tolist(), end_ns.tolist(), strict=True):
        track = next((index for index, free in enumerate(free_from) if free <= begin), len(free_from))
        if track == len(free_from):
            free_from.append(end)
        free_from[track] = end
        tracks.append(track)
    return tracks


def _track_names(pid: int, first: int, name: str, tracks: Iterable[int]) -> Iterator[Event]:
    for track in range(max(tracks, default=-1) + 1):
        yield _name("thread_name", pid, first + track, name if track == 0 else f"{name} {track + 1}")


def _link(analysis: Analysis, link: LinkSummary, pid: int, room: int) -> Iterator[Event]:
    yield _name("process_name", pid, 0, f"link {safe_text(link.label, 60)}")
    used = {TRANSMIT: ("sent", link.utilization_tx), RECEIVE: ("received", link.utilization_rx)}
    for direction, (name, utilization) in used.items():
        cells = link_cells(analysis.evidence.links.lanes, link.key, direction, room)
        if cells is None:
            continue
        of_rate = link.line_rate_bps / 100 if link.line_rate_bps and utilization is not None else None
        unit = "% of line rate" if of_rate else "Gbit/s"
        mean_bps, peak_bps = cells.total_bytes * (8e9 / cells.cell_ns), cells.peak_bytes * (8e9 / cells.bin_ns)
        yield from _counter(analysis, pid, f"{name}, {unit}", cells, _shown(mean_bps, of_rate))
        if cells.cell_ns > cells.bin_ns:
            yield from _counter(analysis, pid, f"{name} at peak, {unit}", cells, _shown(peak_bps, of_rate))


def _shown(bps: Any, of_rate: float | None) -> Any:
    """Return percents of line rate, at most all of it: what was seen a little late lies in one bin with what follows.

    Where that is not known, or cannot be true, Gbit/s.
    """
    return np.minimum(bps / of_rate, 100.0) if of_rate else bps / 1e9


def _counter(analysis: Analysis, pid: int, name: str, cells: Cells, values: Any) -> Iterator[Event]:
    """Yield a counter's samples: one wherever the value changes, and zero after the last cell."""
    values = np.append(np.round(values, 4), 0.0)
    changes = np.flatnonzero(np.diff(values, prepend=-1.0))
    after_ns = cells.first_ns + changes * cells.cell_ns - analysis.meta.started_ns
    since = max(0, int((after_ns <= 0).sum()) - 1)  # a cell may begin before the recording: the last such one
    at_us = np.maximum(after_ns[since:], 0) / 1e3
    for time_us, value in zip(at_us.tolist(), values[changes[since:]].tolist(), strict=True):
        yield _sample(name, pid, time_us, value)


def _drops(analysis: Analysis, drops: Drops, pid: int) -> Iterator[Event]:
    """Yield how many packets an interface has dropped so far, wherever that changes."""
    name = "packets dropped"
    yield _sample(name, pid, 0.0, 0)
    at_us = np.maximum(drops.end_ns - analysis.meta.started_ns, 0) / 1e3
    for time_us, value in zip(at_us.tolist(), np.cumsum(drops.packets).tolist(), strict=True):
        yield _sample(name, pid, time_us, value)


def _sample(name: str, pid: int, time_us: float, value: float) -> Event:
    return {"ph": "C", "name": name, "pid": pid, "ts": time_us, "args": {"value": value}}


def _slice(
    origin_ns: int, pid: int, tid: int, name: str, category: str, begin: int, end: int, details: Event | None = None
) -> Event:
    """Return a complete event; whole nanoseconds, so that neighbours meet exactly."""
    event = {"ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid}
    event |= {"ts": (begin - origin_ns) / 1e3, "dur": (end - begin) / 1e3}
    return event | ({"args": details} if details else {})


def _name(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
