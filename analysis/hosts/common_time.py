"""What recordings of a job's hosts have in common: the time that the report is of, and what has to be said of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from netprof.analysis.hosts.clocks import REALTIME, Span
from netprof.model import Host
from netprof.units import duration, listed

ANOTHER_TIME = "it was recorded at another time than the others"
_NAMED = 4
_WORTH_SAYING_NS = 2 * 10**9
"""How much of a host's recording is left out without a word: recorders are not started in one moment."""
_MOST_OF_IT = 0.5
"""Share of the longest recording that a host has to have recorded for the report to be cut to its time."""


def at_one_time(spans: Sequence[Span]) -> list[int]:
    """Return the numbers of the hosts that recorded at the time of the first one and of those that recorded most of it.

    `spans` are from when to when each recorded, on one clock.
    """
    most = recorded_most(spans)
    begin, end = spans[0]
    kept = []
    for number in sorted(range(len(spans)), key=lambda each: not most[each]):  # those come first
        first, last = spans[number]
        if number == 0 or max(begin, first) < min(end, last):
            kept.append(number)
            if most[number]:
                begin, end = max(begin, first), min(end, last)
    kept.sort()
    if len(kept) == len(spans):
        return kept
    return [kept[number] for number in at_one_time([spans[number] for number in kept])]  # others may be the longest now


def recorded_most(spans: Sequence[Span]) -> list[bool]:
    """Return which hosts' time the report is of: a recorder that died early does not shorten it for all others.

    The first trace always counts: it is the reference.
    """
    longest = max(last - first for first, last in spans)
    return [number == 0 or last - first >= _MOST_OF_IT * longest for number, (first, last) in enumerate(spans)]


def common(spans: Sequence[Span]) -> Span:
    """Return the time that all recorded that recorded most of it."""
    most = [span for span, counts in zip(spans, recorded_most(spans), strict=True) if counts]
    return max(first for first, _ in most), min(last for _, last in most)


def host_names(called: Sequence[tuple[str, str]]) -> list[str]:
    """Return what each host is called, given its name and its trace's: where several have one name, like its trace."""
    known = Counter(host for host, _ in called)
    names = [host if known[host] == 1 else trace.removesuffix(".netprof") for host, trace in called]
    again = Counter(names)
    return [name if again[name] == 1 else f"{name} ({number})" for number, name in enumerate(names, 1)]


def about(hosts: Sequence[Host], names: Sequence[str], spans: Sequence[Span]) -> list[str]:
    """Return what one must know of the recordings of hosts, called so: their times, recorders and clocks."""
    return [*_about_time(names, spans), *_about_recorders(hosts)]


def _about_time(names: Sequence[str], spans: Sequence[Span]) -> Iterator[str]:
    """Yield what has to be said of the time that hosts, called so, did and did not record."""
    begin, end = common(spans)
    whole = duration((end - begin) / 1e9)
    lengths = [(name, last - first) for name, (first, last) in zip(names, spans, strict=True)]
    cut = [f"{duration(ns / 1e9)} on {name}" for name, ns in lengths if ns > end - begin + _WORTH_SAYING_NS]
    if cut:
        yield (
            f"the hosts recorded at different times: this is the {whole} that they have in common, of "
            f"{listed(cut, _NAMED)}"
        )
    for name, (first, last), most in zip(names, spans, recorded_most(spans), strict=True):
        if not most:
            inside = min(last, end) - max(first, begin)
            yield (
                f"{name} recorded only {duration(inside / 1e9)} of these {whole}: what its ranks did in the rest is "
                "unknown, and so is what others then waited for"
            )


def _about_recorders(hosts: Sequence[Host]) -> Iterator[str]:
    """Yield what has to be said of recorders that differ, and of hosts whose clocks were not compared."""
    versions = sorted({host.meta.netprof_version for host in hosts})
    if len(versions) > 1 or len({host.meta.schema_version for host in hosts}) > 1:
        yield f"the traces were recorded by different versions of netprof ({', '.join(versions)})"
    if names := [host.name for host in hosts if host.clock.source == REALTIME]:
        yield (
            f"no stream of bytes that both ends recorded leads from {hosts[0].name} to {listed(names, _NAMED)} and "
            "back, by way of others either: its times are put in place by the hosts' realtime clocks, which may be "
            "seconds apart; what happened first on which host is not known"
        )
