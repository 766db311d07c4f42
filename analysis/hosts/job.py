"""Which traces are of one job, what is wrong with the others, and those that are one as a recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from netprof.analysis.hosts.clocks import REALTIME, Span, at, find_clocks
from netprof.analysis.hosts.joined import JoinedReader
from netprof.analysis.hosts.meta import meta_of_job
from netprof.analysis.hosts.moved import Mover, instant
from netprof.analysis.hosts.numbers import number_hosts
from netprof.errors import TraceError, UsageError
from netprof.model import Host, HostClock, Meta
from netprof.schema import UNKNOWN_RANK
from netprof.trace import TraceReader, TraceSource
from netprof.trace.index import TraceIndex
from netprof.units import duration

_WORTH_SAYING_NS = 2 * 10**9
"""How much of a host's recording is left out without a word: recorders are not started in one moment."""
_MOST_OF_IT = 0.5
"""Share of the longest recording that a host has to have recorded for the report to be cut to its time."""


@dataclass(frozen=True, eq=False)
class _Part:
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
        return TraceReader(paths[0])
    parts, warnings = _opened(paths)
    parts, warnings = _of_one_job(_on(parts, only) if only else parts, warnings)
    clocks = find_clocks([part.index for part in parts], [part.span_ns for part in parts])
    parts, clocks, apart = _at_one_time(parts, clocks)
    return _joined(parts, clocks, [*warnings, *apart])


def _opened(paths: Iterable[Path]) -> tuple[list[_Part], list[str]]:
    parts, warnings, errors = [], [], []
    for path in dict.fromkeys(path.resolve() for path in paths):
        try:
            index = TraceIndex(TraceReader(path))
            parts.append(_Part(index, _span(index)))
        except TraceError as error:
            warnings.append(f"{path.name} is left out: {error.message}")
            errors.append(error)
    if not parts:
        raise errors[0]
    return parts, warnings


def _on(parts: Sequence[_Part], names: Collection[str]) -> list[_Part]:
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
    last = [int(found.last_ns.max()) for found in index.tables.values() if len(found.last_ns)]
    return meta.started_ns, max([meta.started_ns + 1, *last])


def _of_one_job(parts: Sequence[_Part], warnings: Sequence[str]) -> tuple[list[_Part], list[str]]:
    """Leave out what is not of the first trace's job, or is in another trace already."""
    kept: list[_Part] = []
    said = list(warnings)
    for part in parts:
        reasons = (why_not_of_job(part.meta, other.meta, other.reader.path.name) for other in kept)
        reason = next(filter(None, reasons), None)
        if reason is None:
            kept.append(part)
        else:
            said.append(f"{part.reader.path.name} is left out: {reason}")
    return kept, said


def why_not_of_job(meta: Meta, other: Meta, name: str) -> str | None:
    """Say why a trace cannot be read together with another one, called `name`; None where nothing speaks against it."""
    if meta.boot_id == other.boot_id and _processes(meta) & _processes(other):
        return f"it has the same processes of the same host as {name}"
    sizes = [{t.world_size for t in each.targets if t.world_size is not None} for each in (meta, other)]
    if all(sizes) and not sizes[0] & sizes[1]:
        own, its = ("/".join(map(str, sorted(each))) for each in sizes)
        return f"it is of another job: of {own} ranks, while {name} is of one of {its}"
    ranks = [{t.rank for t in each.targets if t.rank != UNKNOWN_RANK} for each in (meta, other)]
    if both := sorted(ranks[0] & ranks[1]):
        return f"it has rank {both[0]} as {name} has: it is of another job, or of another run of this one"
    return None


def _processes(meta: Meta) -> set[tuple[int, ...]]:
    """Return what tells each process from all others of its host, wherever its recorder ran.

    That is its number in its own pid namespace. An older trace has only the number that its recorder knew it by.
    """
    return {(t.pid_namespace, t.inner_pid or t.pid, t.start_ticks, t.netns) for t in meta.targets}


def _at_one_time(parts: Sequence[_Part], clocks: Sequence[HostClock]) -> tuple[list[_Part], list[HostClock], list[str]]:
    """Leave out what was recorded at another time than the first trace and those that recorded most of it."""
    spans = _on_reference(parts, clocks)
    kept: list[int] = []
    for number in sorted(range(len(spans)), key=lambda each: not _recorded_most(spans)[each]):  # those come first
        if _overlap([spans[each] for each in kept], spans[number]):
            kept.append(number)
    said = [
        f"{part.reader.path.name} is left out: it was recorded at another time than the others"
        for number, part in enumerate(parts)
        if number not in kept
    ]
    return [parts[number] for number in sorted(kept)], [clocks[number] for number in sorted(kept)], said


def _on_reference(parts: Sequence[_Part], clocks: Sequence[HostClock]) -> list[Span]:
    """Return from when to when each trace was recorded, on the reference's clock."""
    return [
        (instant(clock, part.span_ns[0]), instant(clock, part.span_ns[1]))
        for part, clock in zip(parts, clocks, strict=True)
    ]


def _recorded_most(spans: Sequence[Span]) -> list[bool]:
    """Return which hosts' time the report is of: a recorder that died early does not shorten it for all others.

    The first trace always counts: it is the reference.
    """
    longest = max(last - first for first, last in spans)
    return [number == 0 or last - first >= _MOST_OF_IT * longest for number, (first, last) in enumerate(spans)]


def _common(spans: Sequence[Span]) -> Span:
    """Return the time that all recorded that recorded most of it."""
    most = [span for span, counts in zip(spans, _recorded_most(spans), strict=True) if counts]
    return max(first for first, _ in most), min(last for _, last in most)


def _overlap(spans: Sequence[Span], another: Span) -> bool:
    """Tell whether another host recorded any of the time that some have in common."""
    if not spans:
        return True
    begin, end = _common(spans)
    return max(begin, another[0]) < min(end, another[1])


def _joined(parts: Sequence[_Part], clocks: Sequence[HostClock], warnings: Sequence[str]) -> TraceSource:
    spans = _on_reference(parts, clocks)
    begin_ns, end_ns = _common(spans)
    numbers = number_hosts([part.reader for part in parts])
    names = host_names(_called(parts))
    hosts = [
        Host(
            name,
            part.meta,
            part.reader.path.name,
            at(clock, (begin_ns + end_ns) // 2),
            own.pid_names,
            own.netns_names,
            left_out_ns=max(0, begin_ns - first) + max(0, last - end_ns),
        )
        for name, part, clock, own, (first, last) in zip(names, parts, clocks, numbers, spans, strict=True)
    ]
    meta = meta_of_job(hosts, numbers, (begin_ns, end_ns))
    said = [*warnings, *_about_time(names, spans), *_about_versions(hosts), *_about_clocks(hosts)]
    movers = [
        Mover(clock, own, part.meta.bin_ns, meta.bin_ns, begin_ns, end_ns + 1)
        for part, clock, own in zip(parts, clocks, numbers, strict=True)
    ]
    return JoinedReader([part.reader for part in parts], movers, hosts, replace(meta, warnings=(*said, *meta.warnings)))


def _called(parts: Sequence[_Part]) -> list[tuple[str, str]]:
    return [(part.meta.host, part.reader.path.name) for part in parts]


def host_names(called: Sequence[tuple[str, str]]) -> list[str]:
    """Return what each host is called, given its name and its trace's: where several have one name, like its trace."""
    known = Counter(host for host, _ in called)
    found = [host if known[host] == 1 else trace.removesuffix(".netprof") for host, trace in called]
    again = Counter(found)
    return [name if again[name] == 1 else f"{name} ({number})" for number, name in enumerate(found, 1)]


def _about_time(names: Sequence[str], spans: Sequence[Span]) -> list[str]:
    begin, end = _common(spans)
    whole = duration((end - begin) / 1e9)
    said, cut = [], []
    for name, (first, last), most in zip(names, spans, _recorded_most(spans), strict=True):
        inside = min(last, end) - max(first, begin)
        if last - first > end - begin + _WORTH_SAYING_NS:
            cut.append(f"{duration((last - first) / 1e9)} on {name}")
        if not most:
            said.append(
                f"{name} recorded only {duration(inside / 1e9)} of these {whole}: what its ranks did in the rest is "
                "unknown, and so is what others then waited for"
            )
    if cut:
        which = ", ".join(cut)
        said.insert(
            0, f"the hosts recorded at different times: this is the {whole} that they have in common, of {which}"
        )
    return said


def _about_versions(hosts: Sequence[Host]) -> list[str]:
    versions = sorted({host.meta.netprof_version for host in hosts})
    schemas = sorted({host.meta.schema_version for host in hosts})
    if len(versions) == 1 and len(schemas) == 1:
        return []
    return [f"the traces were recorded by different versions of netprof ({', '.join(versions)})"]


def _about_clocks(hosts: Sequence[Host]) -> list[str]:
    names = [host.name for host in hosts if host.clock.source == REALTIME]
    if not names:
        return []
    return [
        f"no connection joins {', '.join(names)} to {hosts[0].name}: its times are put in place by the hosts' realtime "
        "clocks, which may be seconds apart; what happened first on which host is not known"
    ]
