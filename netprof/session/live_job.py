"""Following the traces of a job's hosts as they are written, as one: what each adds is read once, and moved once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from netprof.analysis.hosts.common_time import host_names
from netprof.analysis.hosts.job import why_not_of_job
from netprof.analysis.hosts.meta import meta_of_job
from netprof.analysis.hosts.moved import LASTING, Mover, instant
from netprof.analysis.hosts.numbers import number_growing_hosts
from netprof.analysis.live.clocks import LiveClocks
from netprof.analysis.live.in_step import InStep
from netprof.analysis.live.inbox import Inbox
from netprof.analysis.live.recent import Recent
from netprof.analysis.live.state import LiveState
from netprof.analysis.tables.columns import column
from netprof.errors import TraceError
from netprof.model import Host, Meta
from netprof.schema import MarkKind, time_column
from netprof.session.live_follow import QUIET_S, FollowedTrace, recent_rows
from netprof.trace.recent import RecentRows
from netprof.units import count

_ANY_TIME = (-(1 << 62), 1 << 62)
_CLOCK_ROWS = {"wire": 400_000, "marks": 200_000, "flows": 100_000}
"""What clocks are found from: the newest rows of all hosts together."""
_STEP_NS = 400_000_000
"""Of all hosts something is new all the time; looking at it anew is what costs."""
_AT_ONCE = 200_000
"""Rows that are handed on before they are taken in."""
_CAUGHT_UP_BATCHES, _LEAST_CAUGHT_UP = 200, 16
"""Of all hosts together, and of each at least, the newest batches of a table that are looked at at first."""
_LOOK_FOR_MORE_S = 2.0
_COUNTED = (int(MarkKind.DDP_WAIT), *LASTING)
"""Marks that matter however old they are: they number the iterations, and tell of what lasts."""
_QUIET_NAMED = 2
_BEFORE_NS = 10**10
"""How much older marks may be than the first bytes that are read: an iteration begins before it sends any."""


class JobSource:
    """A live view's source that follows the traces that `find` returns; also those that come later.

    The first one that is being recorded has the reference's clock. Those that are not of its job are not followed:
    `left_out` says why. Raises TraceError where there is none.
    """

    def __init__(self, find: Callable[[], Sequence[Path]]) -> None:
        self._find = find
        self._open(find())

    def _open(self, paths: Sequence[Path]) -> None:
        """Begin to follow traces, from the last part of what they hold by now."""
        self._paths, self._find_at_s = list(paths), time.monotonic() + _LOOK_FOR_MORE_S
        self._traces, self.left_out = _of_one_job(self._paths)
        most = {name: rows // len(self._traces) for name, rows in _CLOCK_ROWS.items()}
        self._recent = [RecentRows(trace.path, trace.meta, most) for trace in self._traces]
        self._in_step = InStep(len(self._traces), _STEP_NS)
        past = [(host, *added) for host, trace in enumerate(self._traces) for added in _last_part(trace)]
        for host, name, batch in past:
            self._recent[host].add(name, batch)
        self._clocks = LiveClocks(self._recent)
        self._describe()
        self._inbox = Inbox(self._meta)
        self._inbox.describe(self._meta, self._hosts)
        self._state = LiveState(self._inbox, self._meta.bin_ns)
        for host, name, batch in past:
            self._move(host, name, batch)
        self._in_step.settle()

    @property
    def ended(self) -> str:
        """Why the last recorder stopped, or nothing while any records."""
        reasons = [trace.ended for trace in self._traces]
        return reasons[-1] if all(reasons) else ""

    @property
    def notice(self) -> str:
        """Of which hosts nothing has been added for long; else nothing."""
        quiet = [self._hosts[host].name for host in self._quiet() if not self._traces[host].ended]
        more = f" and {count(len(quiet) - _QUIET_NAMED, 'more host')}" if len(quiet) > _QUIET_NAMED else ""
        return f"nothing new of {', '.join(quiet[:_QUIET_NAMED])}{more}" if quiet else ""

    def look(self) -> Recent:
        """Return what is going on in the job now. Raises TraceError where a trace is damaged before its end."""
        if time.monotonic() >= self._find_at_s:
            self._find_at_s = time.monotonic() + _LOOK_FOR_MORE_S
            if (paths := list(self._find())) != self._paths:
                self._open(paths)
        for host, trace in enumerate(self._traces):
            for name, batch in trace.fresh():
                self._recent[host].add(name, batch)
                self._move(host, name, batch)
        clocks = self._clocks.clocks
        if self._clocks.look():
            self._open(self._paths)
        described = [trace.describe() for trace in self._traces]
        if any(described) or self._clocks.clocks is not clocks:
            self._describe()
            self._inbox.describe(self._meta, self._hosts)
        self._hand_on()
        return self._state.look()

    def _move(self, host: int, name: str, batch: pa.RecordBatch) -> None:
        """Move rows of a host to the job's clock and numbers, to be handed on when all hosts have come as far."""
        own_bin_ns, clock = self._traces[host].meta.bin_ns, self._clocks.clocks[host]
        moved = Mover(clock, self._numbers[host], own_bin_ns, self._meta.bin_ns, *_ANY_TIME).move(name, batch)
        if moved.num_rows:
            self._in_step.add(host, name, recent_rows(name, moved))

    def _hand_on(self) -> None:
        """Hand on the rows that all hosts have come as far as."""
        through_ns, tables = self._in_step.take(self._quiet())
        if through_ns is not None:
            self._inbox.reached(through_ns)
        held = 0
        for name, rows in tables:
            self._inbox.add(name, rows)
            held += len(next(iter(rows.values())))
            if held > _AT_ONCE:
                self._state.take_in()
                held = 0

    def _quiet(self) -> list[int]:
        """Return the hosts that nobody waits for any more."""
        return [host for host, trace in enumerate(self._traces) if trace.ended or trace.silent_s > QUIET_S]

    def _describe(self) -> None:
        """Describe the job, by what its hosts say of themselves now."""
        metas, clocks = [trace.meta for trace in self._traces], self._clocks.clocks
        for recent, meta in zip(self._recent, metas, strict=True):
            recent.meta = meta
        self._numbers = number_growing_hosts(metas)
        names = host_names([(trace.meta.host, trace.path.name) for trace in self._traces])
        self._hosts = [self._host(number, name) for number, name in enumerate(names)]
        began_ns = min(instant(clock, meta.started_ns) for clock, meta in zip(clocks, metas, strict=True))
        self._meta: Meta = meta_of_job(self._hosts, self._numbers, (began_ns, None))

    def _host(self, number: int, name: str) -> Host:
        trace, own = self._traces[number], self._numbers[number]
        clock = self._clocks.clocks[number]
        return Host(name, trace.meta, trace.path.name, clock, own.pid_names, own.netns_names)


def _of_one_job(paths: Sequence[Path]) -> tuple[list[FollowedTrace], list[str]]:
    """Return the traces of the job of the first one that is being recorded, and why the others are left out."""
    most = max(_LEAST_CAUGHT_UP, _CAUGHT_UP_BATCHES // max(1, len(paths)))
    kept: list[FollowedTrace] = []
    said = []
    for trace in sorted((FollowedTrace(path, most) for path in paths), key=_is_over):
        reasons = (why_not_of_job(trace.meta, other.meta, other.path.name) for other in kept)
        if (reason := next(filter(None, reasons), None)) is None:
            kept.append(trace)
        else:
            said.append(f"{trace.path.name} is left out: {reason}")
    if not kept:
        raise TraceError("there is no trace to follow", "name the directories that 'netprof attach --out' made")
    return kept, said


def _is_over(trace: FollowedTrace) -> tuple[bool, bool]:
    """Return what those have that are not being recorded any more; a killed recorder does not say that it ended."""
    return bool(trace.ended), not trace.is_held


def _last_part(trace: FollowedTrace) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of a trace that are about as new as those of `wire` that are read, and older marks that matter."""
    since_ns = trace.meta.started_ns
    first_ns: list[int] = []
    for name, batch in trace.fresh():
        if name == "wire":
            first_ns.append(int(column(batch, str(time_column(name))).min()))
        elif name == "marks":
            since_ns = min(first_ns, default=since_ns) - _BEFORE_NS
            matter = (column(batch, "time_ns") >= since_ns) | np.isin(column(batch, "kind"), _COUNTED)
            batch = batch if matter.all() else batch.filter(pa.array(matter))
        if batch.num_rows:
            yield name, batch
