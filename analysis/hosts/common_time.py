"""What recordings of a job's hosts have in common: the time that the report is of, and what has to be said of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from netprof.analysis.hosts.clocks import REALTIME, Span
from netprof.model import Host
from netprof.units import duration

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
        if max(begin, first) < min(end, last):
            kept.append(number)
            if most[number]:
                begin, end = max(begin, first), min(end, last)
    return sorted(kept)


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
    found = [host if known[host] == 1 else trace.removesuffix(".netprof") for host, trace in called]
    again = Counter(found)
    return [name if again[name] == 1 else f"{name} ({number})" for number, name in enumerate(found, 1)]


def about(hosts: Sequence[Host], names: Sequence[str], spans: Sequence[Span]) -> list[str]:
    """Return what one must know of the recordings of hosts, called so: their times, recorders and clocks."""
    return [*_about_time(names, spans), *_about_versions(hosts), *_about_clocks(hosts)]


def _about_time(names: Sequence[str], spans: Sequence[Span]) -> list[str]:
    """Return what has to be said of the time that hosts, called so, did and did not record."""
    begin, end = common(spans)
    whole = duration((end - begin) / 1e9)
    said, cut = [], []
    for name, (first, last), most in zip(names, spans, recorded_most(spans), strict=True):
        inside = min(last, end) - max(first, begin)
        if last - first > end - begin + _WORTH_SAYING_NS:
            cut.append(f"{duration((last - first) / 1e9)} on {name}")
        if not most:
            said.append(
                f"{name} recorded only {duration(inside / 1e9)} of these {whole}: what its ranks did in the rest is "
                "unknown, and so is what others then waited for"
            )
    if cut:
        which = ", ".join(cut[:_NAMED]) + (f" and {len(cut) - _NAMED} more" if len(cut) > _NAMED else "")
        said.insert(
            0, f"the hosts recorded at different times: this is the {whole} that they have in common, of {which}"
        )
    return said


def _about_versions(hosts: Sequence[Host]) -> list[str]:
    """Return what has to be said of the recorders."""
    versions = sorted({host.meta.netprof_version for host in hosts})
    schemas = sorted({host.meta.schema_version for host in hosts})
    if len(versions) == 1 and len(schemas) == 1:
        return []
    return [f"the traces were recorded by different versions of netprof ({', '.join(versions)})"]


def _about_clocks(hosts: Sequence[Host]) -> list[str]:
    """Return what has to be said of hosts whose clocks were not compared."""
    names = [host.name for host in hosts if host.clock.source == REALTIME]
    if not names:
        return []
    return [
        f"no bytes went from {hosts[0].name} to {', '.join(names)} and back, by way of others either: its times are "
        "put in place by the hosts' realtime clocks, which may be seconds apart; what happened first on which host is "
        "not known"
    ]
