"""Following the traces of a job's hosts as they are written, as one: what each adds is read once, and moved once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from netprof.analysis.hosts.common_time import host_names
from netprof.analysis.hosts.joined_meta import meta_of_job
from netprof.analysis.hosts.moved import Mover, instant
from netprof.analysis.hosts.numbers import number_growing_hosts
from netprof.analysis.hosts.open_job import why_not_of_job
from netprof.analysis.live.host_clocks import LiveClocks
from netprof.analysis.live.in_step import InStep
from netprof.analysis.live.inbox import Inbox
from netprof.analysis.live.live_state import LiveState
from netprof.analysis.live.now import Recent
from netprof.analysis.tables.columns import column
from netprof.errors import TraceError
from netprof.model import Host, Meta
from netprof.schema import LASTING, MarkKind, time_column
from netprof.session.live_follow import DIED, FollowedTrace, recent_rows
from netprof.trace.columns import select
from netprof.trace.recent_rows import RecentRows
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

    The first one that is being recorded has the reference's clock. Those that are not of its job, or cannot be read,
    are not followed: `left_out` says why. Raises TraceError where there is none that can be.
    """

    def __init__(self, find: Callable[[], Sequence[Path]]) -> None:
        self._find = find
        self._damaged: dict[Path, TraceError] = {}  # what turned out so as its tables were read
        self._open(find())

    def _open(self, paths: Sequence[Path]) -> None:
        """Begin to follow traces, from the last part of what they hold by now."""
        self._paths, self._find_at_s = list(paths), time.monotonic() + _LOOK_FOR_MORE_S
        opened, self._unreadable = _opened(self._paths, self._damaged)
        if not opened:
            hint = "name the directories that 'netprof attach --out' made"
            raise next(iter(self._unreadable.values()), TraceError("there is no trace to follow", hint))
        self._traces, strangers = _of_one_job(opened)
        self.left_out = [*(_left_out(path, error.message) for path, error in self._unreadable.items()), *strangers]
        self._in_step = InStep(len(self._traces), _STEP_NS)
        try:
            past = [(host, *added) for host, trace in enumerate(self._traces) for added in _past(trace)]
        except _DamagedTrace as damaged:
            self._go_on_without(damaged)
            return
        most = {name: rows // len(self._traces) for name, rows in _CLOCK_ROWS.items()}
        self._recent = [RecentRows(trace.path, trace.meta, most) for trace in self._traces]
        for host, name, batch in past:
            self._recent[host].add(name, batch)
        self._clocks = LiveClocks(self._recent)
        self._describe()
        self._inbox = Inbox(self._meta)
        self._inbox.describe(self._meta, self._hosts)
        self._state = LiveState(self._inbox, self._meta.bin_ns, self._seen_since_ns(past))
        for host, name, batch in past:
            self._move(host, name, batch)
        self._in_step.settle()

    def _seen_since_ns(self, past: Sequence[tuple[int, str, pa.RecordBatch]]) -> int:
        """Return from when on the bytes of all hosts are read: before that, nothing would not mean idle."""
        first_ns: dict[int, int] = {}
        for host, name, batch in past:
            if name == "wire":
                first_ns.setdefault(host, instant(self._clocks.clocks[host], _first_ns(batch)))
        return max(first_ns.values(), default=0)

    @property
    def paths(self) -> list[Path]:
        """The traces, those first that are followed, the reference foremost: in this order they are one report."""
        followed = [trace.path for trace in self._traces]
        return [*followed, *(path for path in self._paths if path not in followed)]

    @property
    def ended(self) -> str:
        """Why the last recorder that said so stopped, or that none did; nothing while any records."""
        if not all(trace.ended for trace in self._traces):
            return ""
        reasons = [trace.ended for trace in self._traces if not trace.is_gone]
        return reasons[-1] if reasons else self.notice

    @property
    def goes_on(self) -> bool:
        """Whether something is being added to any."""
        return any(not (trace.ended or trace.is_silent) for trace in self._traces)

    @property
    def notice(self) -> str:
        """Which recorders are gone, and of which hosts nothing has been added for how long; nothing where all is well.

        The longest ones are named.
        """
        gone = [host for host, trace in enumerate(self._traces) if trace.is_gone]
        quiet = [host for host, trace in enumerate(self._traces) if trace.is_silent and not trace.ended]
        sentences = (
            f"the recorder {DIED} on {self._named(gone, '{} {} ago')}" if gone else "",
            f"nothing new of {self._named(quiet, '{} for {}')}" if quiet else "",
        )
        return "; ".join(filter(None, sentences))

    def _named(self, hosts: Sequence[int], form: str) -> str:
        """Return hosts as a person reads them, each with its silence in some form."""
        longest = sorted(hosts, key=lambda host: -self._traces[host].silent_s)
        named = [form.format(self._hosts[host].name, self._traces[host].silence) for host in longest[:_QUIET_NAMED]]
        more = f" and {count(len(hosts) - _QUIET_NAMED, 'more host')}" if len(hosts) > _QUIET_NAMED else ""
        return f"{', '.join(named)}{more}"

    def look(self) -> Recent:
        """Return what is going on in the job now. Raises TraceError where no trace can be read any more."""
        if time.monotonic() >= self._find_at_s:
            self._find_at_s = time.monotonic() + _LOOK_FOR_MORE_S
            if (paths := list(self._find())) != self._paths or any(map(self._is_readable_now, self._unreadable)):
                self._open(paths)
        try:
            self._follow()
        except _DamagedTrace as damaged:
            self._go_on_without(damaged)
        self._hand_on()
        return self._state.look()

    def _follow(self) -> None:
        """Take what the traces' recorders have added. Raises _DamagedTrace."""
        for host, trace in enumerate(self._traces):
            with _reading(trace):
                for name, batch in trace.fresh():
                    self._recent[host].add(name, batch)
                    self._move(host, name, batch)
        clocks = self._clocks.clocks
        if self._clocks.look():
            self._open(self._paths)
        try:
            described = [trace.describe() for trace in self._traces]
        except TraceError:  # opening it again will say why
            self._open(self._paths)
            return
        if any(described) or self._clocks.clocks is not clocks:
            self._describe()
            self._inbox.describe(self._meta, self._hosts)

    def _is_readable_now(self, path: Path) -> bool:
        """Say whether a trace can be read that could not be: its description may just have been on its way."""
        return bool(_opened([path], self._damaged)[0])

    def _go_on_without(self, damaged: _DamagedTrace) -> None:
        """Follow the other traces. Raises TraceError where there are none."""
        self._damaged[damaged.path] = damaged.error
        self._open(self._paths)

    def _move(self, host: int, name: str, batch: pa.RecordBatch) -> None:
        """Move rows of a host to the job's clock and numbers, to be handed on when all hosts have come as far."""
        bin_ns, clock = self._traces[host].meta.bin_ns, self._clocks.clocks[host]
        moved = Mover(clock, self._numbers[host], bin_ns, self._meta.bin_ns, *_ANY_TIME).move(name, batch)
        if moved.num_rows:
            self._in_step.add(host, name, recent_rows(name, moved))

    def _hand_on(self) -> None:
        """Hand on the rows that all hosts have come as far as."""
        quiet = [host for host, trace in enumerate(self._traces) if trace.ended or trace.is_silent]
        through_ns, tables = self._in_step.take(quiet)
        if through_ns is not None:
            self._inbox.reached(through_ns)
        held = 0
        for name, rows in tables:
            self._inbox.add(name, rows)
            held += len(next(iter(rows.values())))
            if held > _AT_ONCE:
                self._state.take_in()
                held = 0

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
        trace, numbers = self._traces[number], self._numbers[number]
        clock = self._clocks.clocks[number]
        return Host(name, trace.meta, trace.path.name, clock, numbers.pid_names, numbers.netns_names)


class _DamagedTrace(Exception):
    """A trace turned out to be damaged as it was read."""

    def __init__(self, path: Path, error: TraceError) -> None:
        super().__init__(path)
        self.path, self.error = path, error


@contextmanager
def _reading(trace: FollowedTrace) -> Iterator[None]:
    """Say of a TraceError which trace it is of, as a _DamagedTrace."""
    try:
        yield
    except TraceError as error:
        raise _DamagedTrace(trace.path, error) from error


def _opened(
    paths: Sequence[Path], damaged: Mapping[Path, TraceError]
) -> tuple[list[FollowedTrace], dict[Path, TraceError]]:
    """Return the traces that can be read, and why the others cannot; those that are known as damaged are not tried."""
    most = max(_LEAST_CAUGHT_UP, _CAUGHT_UP_BATCHES // max(1, len(paths)))
    opened, unreadable = [], {path: error for path, error in damaged.items() if path in paths}
    for path in paths:
        try:
            if path not in damaged:
                opened.append(FollowedTrace(path, most))
        except TraceError as error:
            unreadable[path] = error
    return opened, unreadable


def _of_one_job(traces: Sequence[FollowedTrace]) -> tuple[list[FollowedTrace], list[str]]:
    """Return the traces of the job of the first one that is being recorded, and why the others are left out."""
    of_job: list[FollowedTrace] = []
    left_out = []
    for trace in sorted(traces, key=_is_over):
        reasons = (why_not_of_job(trace.meta, kept.meta, kept.path.name) for kept in of_job)
        if (reason := next(filter(None, reasons), None)) is None:
            of_job.append(trace)
        else:
            left_out.append(_left_out(trace.path, reason))
    return of_job, left_out


def _left_out(path: Path, why: str) -> str:
    return f"{path.name} is left out: {why}"


def _is_over(trace: FollowedTrace) -> tuple[bool, bool]:
    """Return what those have that are not being recorded any more; a killed recorder does not say that it ended."""
    return bool(trace.ended), not trace.is_held


def _past(trace: FollowedTrace) -> list[tuple[str, pa.RecordBatch]]:
    """Return the last part of a trace. Raises _DamagedTrace."""
    with _reading(trace):
        return list(_last_part(trace))


def _last_part(trace: FollowedTrace) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of a trace that are about as new as those of `wire` that are read, and older marks that matter."""
    since_ns = trace.meta.started_ns
    first_ns: list[int] = []
    for name, batch in trace.fresh():
        if name == "wire":
            first_ns.append(_first_ns(batch))
        elif name == "marks":
            since_ns = min(first_ns, default=since_ns) - _BEFORE_NS
            matter = (column(batch, "time_ns") >= since_ns) | np.isin(column(batch, "kind"), _COUNTED)
            batch = batch if matter.all() else select(batch, matter)
        if batch.num_rows:
            yield name, batch


def _first_ns(wire: pa.RecordBatch) -> int:
    return int(column(wire, str(time_column("wire"))).min())
