"""How the hosts' clocks run beside the first one's: by the streams between them, or by what else there is."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.hosts.by_collectives import begun_to_done, by_ends, same_collectives
from netprof.analysis.hosts.corridor import Corridor, Line, corridor
from netprof.analysis.hosts.detours import Ways, there_and_back
from netprof.analysis.hosts.streams import Delays, delays, read_streams
from netprof.model import Clock, HostClock
from netprof.trace.index import TraceIndex

REFERENCE, SAME_HOST, FLOWS, COLLECTIVES = "reference", "same host", "flows", "collectives"
REALTIME = "realtime"
_EVER = (-(1 << 62), 1 << 62)
_MOST_ROWS = 4_000_000
"""Rows of `wire` of one host that are looked at: memory is what limits them."""
_WINDOWS, _SHORTEST_NS = 32, 2 * 10**9
_ROUNDED_NS = 1.0
"""Times are whole nanoseconds."""

Span = tuple[int, int]
"""From when to when a host recorded, on its own clock, ns."""


def find_clocks(indexes: Sequence[TraceIndex], spans: Sequence[Span]) -> list[HostClock]:
    """Return how the clock of each host runs beside the first one's, over the time that it recorded.

    Hosts that no streams join to the first one, by way of others either, are put in place by what they do together
    with it, and if that tells nothing, by their realtime clocks.
    """
    readers = [index.reader for index in indexes]
    rough = [by_realtime(readers[0].meta.clock, reader.meta.clock) for reader in readers]
    windows = windows_of(indexes, spans[0])
    streams = [
        read_streams(index, [_moved(window, clock) for window in windows])
        for index, clock in zip(indexes, rough, strict=True)
    ]
    ways: dict[tuple[int, int], Delays] = {}
    steps: dict[int, dict[int, HostClock]] = {host: {} for host in range(len(readers))}
    for one, other in combinations(range(len(readers)), 2):
        if readers[one].meta.boot_id == readers[other].meta.boot_id:
            join(steps, one, other, HostClock(SAME_HOST, at_ns=spans[one][0]))
            continue
        ways[one, other], ways[other, one] = delays(streams[one], streams[other])
        join(steps, one, other, by_delays(ways[one, other], ways[other, one], spans[one]))
    join_by_detours(steps, ways, 0, spans[0])
    known = nearest(steps)
    for host in sorted(steps.keys() - known.keys()):
        both = same_collectives(readers[0], readers[host], rough[host])
        if both is not None:
            join(steps, 0, host, by_collectives(*both, spans[0]))
    known = nearest(steps)
    return [known.get(host, rough[host]) for host in range(len(readers))]


def windows_of(indexes: Sequence[TraceIndex], span_ns: Span) -> list[Span]:
    """Return what is looked at of the recordings: all of short ones, of long ones windows that are spread over it."""
    rows = max(int(index.tables["wire"].rows.sum()) for index in indexes)
    if rows <= _MOST_ROWS:
        return [_EVER]
    length_ns = max(_SHORTEST_NS, int((span_ns[1] - span_ns[0]) * _MOST_ROWS / rows / _WINDOWS))
    begins = np.linspace(span_ns[0], span_ns[1] - length_ns, _WINDOWS).astype(np.int64).tolist()
    return [(begin, begin + length_ns) for begin in begins]


def _moved(window: Span, clock: HostClock) -> Span:
    """Return when a window is on another clock."""
    return window if window == _EVER else (window[0] + round(clock.offset_ns), window[1] + round(clock.offset_ns))


def join(steps: dict[int, dict[int, HostClock]], one: int, other: int, clock: HostClock | None) -> None:
    """Note how a host's clock runs beside another one's, and that one's beside it; None: nothing tells."""
    if clock is not None:
        steps[one][other], steps[other][one] = clock, backwards(clock)


def join_by_detours(steps: dict[int, dict[int, HostClock]], ways: Ways, first: int, span_ns: Span) -> None:
    """Join hosts to the first one that no streams there and back join to it, by way of others either."""
    missing = steps.keys() - nearest(steps, first).keys()
    for host, (there, back) in there_and_back(ways, first, missing).items():
        join(steps, first, host, by_delays(there, back, span_ns))


def by_delays(there: Delays, back: Delays, span_ns: Span) -> HostClock | None:
    """Return how one clock runs beside another, given what took how long to it and back; None where nothing tells.

    The bound holds for all of a span of the other, reference's, time.
    """
    found = _corridor(there, back)
    return None if found is None else _clock(FLOWS, found, found.middle(), there, back, span_ns)


def by_collectives(mine: Collectives, its: Collectives, span_ns: Span) -> HostClock | None:
    """Return how one clock runs beside another, given the same collectives on both; None where nothing tells.

    Ranks are done at about the same time, but all that is sure is that nobody is before all have begun.
    """
    there, back = begun_to_done(mine, its)
    found = _corridor(there, back)
    return None if found is None else _clock(COLLECTIVES, found, by_ends(mine, its), there, back, span_ns)


def _corridor(there: Delays, back: Delays) -> Corridor | None:
    upper, lower = there.arrived_ns - there.sent_ns, back.sent_ns - back.arrived_ns
    return corridor(there.sent_ns, upper, back.arrived_ns, lower)


def _clock(source: str, found: Corridor, line: Line, there: Delays, back: Delays, span_ns: Span) -> HostClock:
    above = there.arrived_ns - there.sent_ns - line.of(there.sent_ns)
    below = line.of(back.arrived_ns) - (back.sent_ns - back.arrived_ns)
    return HostClock(
        source,
        line.offset_ns,
        line.drift,
        line.at_ns + round(line.offset_ns),
        bound_ns=_ROUNDED_NS + max(found.farthest_ns(line, time_ns) for time_ns in span_ns),
        drift_bound=_drift_bound(found, line.drift),
        residual_ns=float(np.median(np.concatenate((above - above.min(), below - below.min())))),
        pairs=len(there) + len(back),
    )


def _drift_bound(found: Corridor, drift: float) -> float:
    return float(max(found.drifts[-1] - drift, drift - found.drifts[0]))


def by_realtime(reference: Clock, clock: Clock) -> HostClock:
    """Return how a clock runs beside the reference if both hosts' realtime clocks are right; how far, nobody knows."""
    offset_ns = (clock.monotonic_ns - clock.realtime_ns) - (reference.monotonic_ns - reference.realtime_ns)
    offset_ns = min(max(offset_ns, _EVER[0]), _EVER[1])  # centuries apart is apart enough: 64 bits hold the times
    return HostClock(REALTIME, float(offset_ns), 0.0, clock.monotonic_ns, bound_ns=None, drift_bound=None)


def backwards(clock: HostClock) -> HostClock:
    """Return how the reference runs beside a clock."""
    drift = -clock.drift / (1 + clock.drift)
    return replace(clock, offset_ns=-clock.offset_ns, drift=drift, at_ns=clock.at_ns - round(clock.offset_ns))


def one_after_other(first: HostClock, second: HostClock) -> HostClock:
    """Return how a clock runs beside the reference that runs like `second` beside one that runs like `first`."""
    reference_ns = first.at_ns - round(first.offset_ns)
    gained_ns = second.drift * (first.at_ns - (second.at_ns - second.offset_ns))
    offset_ns = first.offset_ns + second.offset_ns + gained_ns
    return HostClock(
        second.source if first.source in (REFERENCE, SAME_HOST) else first.source,
        offset_ns,
        (1 + first.drift) * (1 + second.drift) - 1,
        reference_ns + round(offset_ns),
        bound_ns=_sum(first.bound_ns, second.bound_ns),
        drift_bound=_sum(first.drift_bound, second.drift_bound),
        residual_ns=_sum(first.residual_ns or 0.0, second.residual_ns or 0.0),
        pairs=first.pairs + second.pairs,
    )


def at(clock: HostClock, reference_ns: int) -> HostClock:
    """Return the same clock with its offset at another moment of the reference's time."""
    offset_ns = clock.offset_ns + clock.drift * (reference_ns - (clock.at_ns - clock.offset_ns))
    return replace(clock, offset_ns=offset_ns, at_ns=reference_ns + round(offset_ns))


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


Steps = Mapping[int, Mapping[int, HostClock]]
"""By host, how the clocks of others run beside its own, as far as something compares the two."""


def nearest(steps: Steps, first: int = 0) -> dict[int, HostClock]:
    """Return the clocks of the hosts that can be reached from the first one, on the way with the smallest bound."""
    found: dict[int, HostClock] = {}
    waiting: list[tuple[float, int, int, HostClock]] = [(0.0, 0, first, HostClock())]
    turn = 0
    while waiting:
        _, _, host, clock = heapq.heappop(waiting)
        if host in found:
            continue
        found[host] = clock
        for other, step in steps[host].items():
            turn += 1
            there = one_after_other(clock, step)
            heapq.heappush(waiting, (there.bound_ns or 0.0, turn, other, there))
    return found
