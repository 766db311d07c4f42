"""Which traces are of one job, what is wrong with the others, and those that are one as a recording."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

from netprof.analysis.hosts.clocks import Span, at, find_clocks
from netprof.analysis.hosts.common_time import ANOTHER_TIME, about, at_one_time, common, host_names
from netprof.analysis.hosts.connected import Against, of_one_job
from netprof.analysis.hosts.host_streams import flow_ends
from netprof.analysis.hosts.joined import JoinedReader
from netprof.analysis.hosts.joined_meta import meta_of_job
from netprof.analysis.hosts.moved import Mover, instant
from netprof.analysis.hosts.numbers import number_hosts
from netprof.copies import as_named
from netprof.errors import TraceError, UsageError
from netprof.files import real_path
from netprof.model import LEFT_OUT, Host, HostClock, Meta
from netprof.schema import UNKNOWN_RANK
from netprof.trace import TraceSource
from netprof.trace.index import TraceIndex
from netprof.trace.ring import reader_of

_LAST_LOOK_NS = 10**9
"""After it stopped a recorder looks once more at what it samples."""


@dataclass(frozen=True, eq=False)
class _HostTrace:
    """The trace of one host, and from when to when it recorded, on its own clock."""

    index: TraceIndex
    span_ns: Span

    @property
    def reader(self) -> TraceSource:
        return self.index.reader

    @property
    def meta(self) -> Meta:
        return self.reader.meta


def open_job(paths: Sequence[Path], only: Collection[str] = ()) -> TraceSource:
    """Open the traces of a job's hosts as one recording; one trace alone as it is.

    Traces that cannot be used (damaged, of other jobs, of the same processes again) are left out, which the recording's
    warnings say. The first one that can be is the reference. Of `only` some hosts, those are all. Raises TraceError
    where no trace can be used, UsageError for a host that none is of.
    """
    if len(paths) == 1 and not only:
        return reader_of(paths[0])
    parts, warnings = _opened(paths)
    parts, warnings = _of_one_job(_on(parts, only) if only else parts, warnings)
    clocks = find_clocks([part.index for part in parts], [part.span_ns for part in parts])
    parts, clocks, apart = _at_one_time(parts, clocks)
    return _joined(parts, clocks, [*warnings, *apart])


def _opened(paths: Iterable[Path]) -> tuple[list[_HostTrace], list[str]]:
    parts, warnings, errors = [], [], []
    for path in dict.fromkeys(map(real_path, paths)):
        try:
            index = TraceIndex(reader_of(path))
            parts.append(_HostTrace(index, _span(index)))
        except TraceError as error:
            warnings.append(as_named(f"{path.name}{LEFT_OUT}{error.message}"))
            errors.append(error)
    if not parts:
        raise errors[0]
    return parts, warnings


def _on(parts: Sequence[_HostTrace], names: Collection[str]) -> list[_HostTrace]:
    """Return the traces of some hosts, named by the host or by the trace."""
    known = [{part.meta.host, name} for part, name in zip(parts, host_names(_called(parts)), strict=True)]
    for name in names:
        if not any(name in each for each in known):
            raise UsageError(f"no trace is of a host '{name}'", f"there are {', '.join(sorted(set().union(*known)))}")
    return [part for part, each in zip(parts, known, strict=True) if each & set(names)]


def _span(index: TraceIndex) -> Span:
    """Return from when to when a trace was recorded: where nothing says when it ended, until the last row."""
    meta = index.reader.meta
    if meta.stopped_ns is not None:
        return meta.started_ns, meta.stopped_ns
    last = [int(rows.last_ns.max()) for rows in index.tables.values() if len(rows.last_ns)]
    return meta.started_ns, max([meta.started_ns + 1, *last])


def _newest(parts: Sequence[_HostTrace]) -> tuple[list[_HostTrace], list[str]]:
    """Leave out what was recorded on one host before a later recording of the same processes, or of the same ranks."""
    names, left_out = _names([part.reader.path for part in parts]), {}
    for earlier, later in permutations(range(len(parts)), 2):
        old, new = parts[earlier], parts[later]
        is_over = old.meta.boot_id == new.meta.boot_id and old.span_ns[1] <= new.span_ns[0]
        if is_over and why_not_of_job(old.meta, new.meta, names[later]) is not None:
            left_out[earlier] = f"{names[earlier]}{LEFT_OUT}{names[later]} is a later recording"
    return [part for number, part in enumerate(parts) if number not in left_out], list(left_out.values())


def _of_one_job(parts: Sequence[_HostTrace], warnings: Sequence[str]) -> tuple[list[_HostTrace], list[str]]:
    """Leave out what is not of the first trace's job, or is in another trace already."""
    parts, earlier = _newest(parts)
    warnings = [*warnings, *earlier]
    names = _names([part.reader.path for part in parts])

    def against(number: int, earlier: Sequence[int]) -> Against | None:
        reasons = (_against(parts[number].meta, parts[known].meta, names[known]) for known in earlier)
        return next(filter(None, reasons), None)

    job = of_one_job([set(flow_ends(part.reader).values()) for part in parts], names, against)
    left_out = [f"{names[number]}{LEFT_OUT}{why}" for number, why in sorted(job.left_out.items())]
    return [parts[number] for number in job.kept], [*warnings, *left_out, *job.notes(names)]


def _names(paths: Sequence[Path]) -> list[str]:
    """Return what traces are called: with their folders, as far as these differ, where two have one name."""
    known = Counter(path.name for path in paths)
    above = os.path.commonpath([path.parent for path in paths])
    return [path.name if known[path.name] == 1 else os.path.relpath(path, above) for path in paths]


def why_not_of_job(meta: Meta, known: Meta, name: str) -> str | None:
    """Say why a trace cannot be read together with another one, called `name`; None where nothing speaks against it."""
    against = _against(meta, known, name)
    return None if against is None else against.reason


def _against(meta: Meta, known: Meta, name: str) -> Against | None:
    if meta.boot_id == known.boot_id and set(processes_of(meta)) & set(processes_of(known)):
        return Against(f"it has the same processes of the same host as {name}", of_job=False)
    sizes = [{t.world_size for t in each.targets if t.world_size is not None} for each in (meta, known)]
    if all(sizes) and not sizes[0] & sizes[1]:
        size, known_size = ("/".join(map(str, sorted(each))) for each in sizes)
        return Against(f"it is of another job: of {size} ranks, while {name} is of one of {known_size}", of_job=True)
    if both := sorted(stated_ranks(meta) & stated_ranks(known)):
        why = f"it has rank {both[0]} as {name} has: it is of another job, or of another run of this one"
        return Against(why, of_job=True)
    return None


def stated_ranks(meta: Meta) -> frozenset[int]:
    """Return the ranks that the description of a trace tells."""
    return frozenset(target.rank for target in meta.targets if target.rank != UNKNOWN_RANK)


def processes_of(meta: Meta) -> list[tuple[int, ...]]:
    """Return what tells each process from all others of its host, wherever its recorder ran.

    That is its number in its own pid namespace. An older trace has only the number that its recorder knew it by.
    """
    return [(t.pid_namespace, t.inner_pid or t.pid, t.start_ticks, t.netns) for t in meta.targets]


def _at_one_time(
    parts: Sequence[_HostTrace], clocks: Sequence[HostClock]
) -> tuple[list[_HostTrace], list[HostClock], list[str]]:
    """Leave out what was recorded at another time than the first trace and those that recorded most of it."""
    kept = at_one_time(_on_reference(parts, clocks))
    left_out = [
        f"{part.reader.path.name}{LEFT_OUT}{ANOTHER_TIME}" for number, part in enumerate(parts) if number not in kept
    ]
    return [parts[number] for number in kept], [clocks[number] for number in kept], left_out


def _on_reference(parts: Sequence[_HostTrace], clocks: Sequence[HostClock]) -> list[Span]:
    """Return from when to when each trace was recorded, on the reference's clock."""
    return [
        (instant(clock, part.span_ns[0]), instant(clock, part.span_ns[1]))
        for part, clock in zip(parts, clocks, strict=True)
    ]


def _joined(parts: Sequence[_HostTrace], clocks: Sequence[HostClock], warnings: Sequence[str]) -> TraceSource:
    spans = _on_reference(parts, clocks)
    begin_ns, end_ns = common(spans)
    numbers = number_hosts([part.reader for part in parts])
    names = host_names(_called(parts))
    hosts = [
        Host(
            name,
            part.meta,
            part.reader.path.name,
            at(clock, (begin_ns + end_ns) // 2),
            host_numbers.pid_names,
            host_numbers.netns_names,
            left_out_ns=max(0, begin_ns - first) + max(0, last - end_ns),
            gpus=host_numbers.gpu_names(part.meta),
        )
        for name, part, clock, host_numbers, (first, last) in zip(names, parts, clocks, numbers, spans, strict=True)
    ]
    meta = meta_of_job(hosts, numbers, (begin_ns, end_ns))
    meta = replace(meta, warnings=(*warnings, *about(hosts, names, spans), *meta.warnings))
    movers = [
        Mover(clock, host_numbers, part.meta.bin_ns, meta.bin_ns, *_wanted(span, (begin_ns, end_ns), part.meta.bin_ns))
        for part, clock, host_numbers, span in zip(parts, clocks, numbers, spans, strict=True)
    ]
    return JoinedReader([part.reader for part in parts], movers, hosts, meta)


def _wanted(span: Span, common_ns: Span, bin_ns: int) -> Span:
    """Return from when on and until when rows of a host are of the common time.

    Where it recorded no longer, they are all: its first bin begins before it did, and a last look is after its end.
    """
    begin_ns = common_ns[0] if span[0] < common_ns[0] else common_ns[0] - bin_ns
    return begin_ns, common_ns[1] + 1 if span[1] > common_ns[1] else common_ns[1] + _LAST_LOOK_NS


def _called(parts: Sequence[_HostTrace]) -> list[tuple[str, str]]:
    return [(part.meta.host, part.reader.path.name) for part in parts]
